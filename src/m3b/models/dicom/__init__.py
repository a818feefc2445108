"""Predictions as DICOM objects. Needs highdicom, the extra `dicom`.

Masks become segmentations that refer to their source instances, classes and numbers structured reports (TID 1500).
"""
