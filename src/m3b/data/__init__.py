"""Data cards, index files, image reading and the audit of both."""
