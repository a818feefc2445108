"""A set of images that can be the cases of an index."""

from __future__ import annotations

import re
from dataclasses import dataclass

from m3b.data.spec.model import Images
from m3b.data.survey.facts import FileGroup, Member, Series
from m3b.data.survey.item_facts import ItemSet


@dataclass(frozen=True)
class ImageSet:
    """Images that can be the cases of an index.

    Args:
        count: cases, as far as the survey can tell.
        levels: of each folder level, value -> files, where it has at most 60 values.
        doubt: what a person should say of what is a case.
        items: of items of arrays in files of their own, what siblings say of them.
    """

    groups: tuple[FileGroup, ...]
    images: Images
    count: int
    levels: dict[str, dict[str, int]]
    member: Member | None = None
    series: Series | None = None
    doubt: str = ""
    stack: bool = False
    items: ItemSet | None = None

    @property
    def id(self) -> str:
        """Of its first group."""
        return self.groups[0].id

    @property
    def single(self) -> FileGroup | None:
        """Its group, where it is one alone and each file a case."""
        return self.groups[0] if len(self.groups) == 1 and self.items is None else None

    @property
    def title(self) -> str:
        """For people."""
        if self.items is not None:
            return self.items.file + (f"#{self.items.key}" if self.items.key else "")
        name = self.groups[0].title if len(self.groups) == 1 else f"{len(self.groups)} groups of images"
        return f"{name}#{self.member.key}" if self.member else name


def literal(key: str) -> str:
    """A pattern that matches one key of an array alone."""
    return "re:" + re.escape(key)
