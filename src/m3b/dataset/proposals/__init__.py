"""Manifest proposals: candidates by enumeration, measured on the folder, ranked by learnt weights."""
