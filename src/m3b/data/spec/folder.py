"""The files of a data folder, and the arrays within them, that patterns and headers choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from m3b.data.reading import shared
from m3b.data.spec.model import Files
from m3b.data.spec.patterns import PatternError, compiled

Lookup = Callable[[str, dict[str, str]], dict[str, str]]
"""Adds slots that need a look into the file (DICOM tags) to those of its path."""


@dataclass(frozen=True)
class Item:
    """A file, or one array or item of a container, with its slots.

    Args:
        path: below the data folder.
        reference: what an index names, relative to the data folder: the path, `path#key[3]`, or `path#frames=1`.
    """

    path: str
    reference: str
    slots: dict[str, str]


class DataFolder:
    """The files of a data folder, matched against patterns once each.

    Args:
        root: the data folder.
        files: paths of its regular files, in natural order.
        lookup: adds slots that the path alone does not hold.
    """

    def __init__(self, root: Path, files: Sequence[str], lookup: Lookup) -> None:
        self.root, self.files, self.lookup = root, files, lookup
        self._matched: dict[str, list[Item]] = {}

    def items(self, files: Files, keys: Sequence[str] = ()) -> list[Item]:
        """The items of these files, in natural order.

        Args:
            keys: whose slots are needed.

        Raises:
            PatternError: a pattern cannot be used, or a container has no such member.
        """
        known = files.model_dump_json()
        if known not in self._matched:
            self._matched[known] = self._find(files)
        wanted = "".join(keys)
        return [Item(i.path, i.reference, self.lookup(wanted, i.slots)) for i in self._matched[known]]

    def _find(self, files: Files) -> list[Item]:
        pattern, exclude = compiled(files.pattern), [compiled(one) for one in files.exclude]
        found: list[Item] = []
        for path in self.files:
            slots = pattern.match(path)
            if slots is None or any(one.match(path) is not None for one in exclude) or not self._tagged(files, slots):
                continue
            found += self._members(path, slots, files.member) if files.member else [Item(path, path, slots)]
        return found

    def _tagged(self, files: Files, slots: dict[str, str]) -> bool:
        """Whether a file's header has what is asked for."""
        found = self.lookup("".join(f"{{tag.{name}}}" for name in files.tags), slots)
        return all(found.get(f"tag.{name}", "").strip().casefold() in {text.casefold() for text in texts}
                   for name, texts in files.tags.items())  # fmt: skip

    def _members(self, path: str, slots: dict[str, str], member: str) -> list[Item]:
        """The arrays of a container whose key matches, or the items along their first axis."""
        each = member.endswith("[#]")
        pattern = compiled(member.removesuffix("[#]"))
        try:
            arrays = shared().arrays.open_arrays(self.root / path)
        except shared().arrays.ArrayError as error:
            raise PatternError(str(error)) from error
        found = []
        for key in arrays:
            inner = pattern.regex.fullmatch(key)
            if inner is None:
                continue
            here = {**slots, **{name: value or "" for name, value in inner.groupdict().items()}, "member": key}
            if not each:
                found.append(Item(path, f"{path}#{key}", here))
                continue
            length = shared().arrays.array_shape(self.root / path, key)[0]
            found += [Item(path, f"{path}#{key}[{at}]", {**here, "index": str(at)}) for at in range(length)]
        if not found:
            raise PatternError(f"{path} has no array {member!r}; it has {', '.join(map(repr, list(arrays)[:12]))}.")
        return found
