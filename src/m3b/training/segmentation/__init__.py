"""Segmentation of images and volumes."""
