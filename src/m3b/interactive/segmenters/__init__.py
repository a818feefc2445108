"""Segmenters that answer prompts."""
