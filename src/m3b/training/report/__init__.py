"""Reports written from images."""
