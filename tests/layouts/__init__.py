"""Generated data folders of many layouts with known truth: `generate.py` draws and writes them, `truth.py` compares an index."""
