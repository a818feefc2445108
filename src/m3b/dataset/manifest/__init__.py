"""The manifest: how a data folder is to be read, as JSON, and its execution."""
