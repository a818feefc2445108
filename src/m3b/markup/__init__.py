"""Build pages: HTML elements, SVG charts, and numbers as texts; knows nothing of what a page is about."""
