"""Texts of cases out of array files: a value a file, or an item of a vector beside the images."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.reading import shared
from m3b.data.spec.patterns import PatternError
from m3b.data.survey.array_files import SUFFIXES, opened_members
from m3b.data.survey.array_texts import text_of
from m3b.data.survey.kinds import cut

MOST = 64
"""Arrays that are kept in memory; of files that hold one case each, every one is read once."""

LARGE = 2**26
"""Values from which on an array holds images rather than what is said of them."""


@dataclass
class ArrayValues:
    """Reads single values of arrays below one data folder.

    Args:
        root: the data folder.
        files: the paths below it that may be opened.
    """

    root: Path
    files: Collection[str]
    _seen: set[str] = field(default_factory=set)
    _kept: dict[tuple[str, str], Any] = field(default_factory=dict)

    def text(self, path: str, name: str, index: int | None = None) -> str:
        """The text of an array, or of its item; empty where there is no such file, it does not open, or the array is shorter.

        Raises:
            PatternError: no file so far holds such an array, or the array holds several values for one case.
        """
        array = self._array(path, name) if path in self.files else None
        if array is None or (index is not None and (not array.shape or index >= len(array))):
            return ""
        picked = array if index is None else array[index]
        text = text_of(picked)
        if text is None:
            place = f"{path}#{name}" + ("" if index is None else f"[{index}]")
            count = prod(getattr(picked, "shape", ()))
            raise PatternError(f"{place} holds {count} values for one case; one is needed.")
        return text

    def _array(self, path: str, name: str) -> Any:
        known = path, name
        if known not in self._kept:
            if len(self._kept) >= MOST:
                self._kept.pop(next(iter(self._kept)))
            self._kept[known] = self._read(path, name)
        return self._kept[known]

    def _read(self, path: str, name: str) -> Any:
        """A whole array; of formats that a survey does not open (pickles, PyTorch) as the templates read it."""
        suffix = cut(path.rpartition("/")[2])[1]
        if suffix not in SUFFIXES:
            try:
                return shared().arrays.read_array(self.root / path, name)
            except shared().arrays.ArrayError as error:
                raise PatternError(str(error)) from error
        try:
            array, there = attempt(partial(_held, self.root / path, suffix, name), self.root / path)
        except Unreadable:
            return None
        if array is None and name not in self._seen:
            listed = ", ".join(map(repr, there[:12])) or "none"
            raise PatternError(f"{path} has no array {name!r} of a size that labels have; it has {listed}.")
        self._seen.add(name)
        return array


def _held(file: Path, suffix: str, name: str) -> tuple[Any, list[str]]:
    """An array, or None where there is no such one or it is too large, and the names of all."""
    import numpy as np

    with opened_members(file, suffix) as (_, inners):
        found = next((one for one in inners if one.key == name and prod(one.shape) <= LARGE), None)
        return None if found is None else np.asarray(found.read(None)), [one.key for one in inners]
