"""Natural order (`m3b.data.natural`), for the tools that list names."""

from m3b.data.natural import natural

__all__ = ["natural"]
