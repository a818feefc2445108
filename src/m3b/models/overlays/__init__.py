"""Pictures of what a model or an index says of images: masks, boxes, probabilities, reports.

Drawing opens images, so it is asked of the reader (`m3b.models.image_jobs`); this package itself imports nothing that does.
"""
