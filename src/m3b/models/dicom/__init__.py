"""Predictions as DICOM objects: masks as segmentations that refer to their source instances, classes and numbers as
structured reports (TID 1500). Needs highdicom, the extra `dicom`.
"""
