"""A reading of a data folder as data: `IndexSpec`, and m3b executing it into an index with every file accounted for."""
