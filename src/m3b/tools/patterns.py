"""File names grouped by pattern: re-exports `m3b.data.patterns` for the previews."""

from m3b.data.patterns import MAX_SHAPES, PatternGroup, collapse, extension, group_names, shapes

__all__ = ["MAX_SHAPES", "PatternGroup", "collapse", "extension", "group_names", "shapes"]
