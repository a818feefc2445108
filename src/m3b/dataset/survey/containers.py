"""What lies within array files (NPY, NPZ, HDF5, MAT) and archives: members, lengths of the first axis, kinds of values."""

from __future__ import annotations

import math
import re
import tarfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

from m3b.data.opening import Unreadable, attempt
from m3b.dataset.archives import local_file
from m3b.dataset.reading import open_arrays, read_values
from m3b.dataset.survey.contents import Sample, holds_part, is_stack, sample_array, summarise
from m3b.dataset.survey.facts import Container, Member, SurveyLimits, ValueCount
from m3b.dataset.survey.groups import Group, spread
from m3b.dataset.survey.walk import sort_naturally
from m3b.dataset.survey.words import side_of
from m3b.isolation.untrusted import announce_opening

_MAX_KEYS = 40
_MAX_NPY_FILES = 40
"""NPY files of a folder whose shapes are compared."""
_MAX_VOCABULARY = 60
_MAX_NAMED_KEYS = 8
"""Arrays of one file whose names are taken as they are; of more, numbers in names are slots."""
MemberKind = Literal["images", "masks", "vector", "scalar", "text", "unknown"]


@dataclass(frozen=True)
class _Array:
    """One array of one file, as far as it was looked at."""

    shape: tuple[int, ...]
    dtype: str
    kind: MemberKind
    length: int | None = None
    samples: tuple[Sample, ...] = ()
    values: tuple[str, ...] = ()


def describe_container(group: Group, root: Path, limits: SurveyLimits) -> Container | None:
    """Return what lies in the files of a group; None if none of them opens."""
    if group.format == "archive":
        return _describe_archive(group, root, limits)
    arrays: dict[str, list[_Array]] = defaultdict(list)
    keys_per_form: dict[str, list[int]] = defaultdict(list)
    opened_files = 0
    paths = spread(group.paths, limits.samples)
    for path in paths:
        try:
            forms = attempt(partial(_read_file, local_file(root, path), len(group.frame), limits), root, path)
        except Unreadable:
            continue
        opened_files += 1
        for form, same_form in forms.items():
            arrays[form].append(same_form[0])
            keys_per_form[form].append(len(same_form))
    if not opened_files:
        return None
    members = [
        _describe_member(form, arrays[form], int(median(keys_per_form[form])))
        for form in sort_naturally(list(arrays))[:_MAX_KEYS]
    ]
    return Container(
        group=group.id, format=group.format, files=len(group.frame), samples=opened_files, members=tuple(members)
    )


def _read_file(path: Path, files: int, limits: SurveyLimits) -> dict[str, list[_Array]]:
    contents = {**open_arrays(path), **read_values(path)}
    return _read_arrays(contents, files, limits, _vectors_beside(path), holds_part(path.name, files))


def _vectors_beside(path: Path) -> set[int]:
    """Lengths of the vectors in the NPY files beside one: `labels.npy` beside `images.npy`."""
    import numpy as np

    if path.suffix.lower() != ".npy":
        return set()
    lengths = set()
    for file in sorted(path.parent.glob("*.npy"))[:_MAX_NPY_FILES]:
        try:
            shape = np.load(file, mmap_mode="r", allow_pickle=False).shape
        except (OSError, ValueError):
            continue
        if file != path and _is_vector(shape) and shape[0] > 1:
            lengths.add(int(shape[0]))
    return lengths


def _read_arrays(
    contents: Mapping[str, Any], files: int, limits: SurveyLimits, beside: set[int], is_part: bool
) -> dict[str, list[_Array]]:
    names = list(contents)
    forms: dict[str, list[str]] = defaultdict(list)
    for name in names:
        forms[re.sub(r"\d+", "{number}", name) if len(names) > _MAX_NAMED_KEYS else name].append(name)
    vectors = {
        shape[0] for name in names if len(shape := _shape_of(contents[name])) and _is_vector(shape) and shape[0] > 1
    } | beside
    result: dict[str, list[_Array]] = {}
    for form, members in forms.items():
        first = _read_array(contents[members[0]], vectors, files, limits, is_part)
        result[form] = [first] * len(members)
    return result


def _shape_of(array: Any) -> tuple[int, ...]:
    return tuple(int(side) for side in getattr(array, "shape", (len(array),)))


def _is_vector(shape: tuple[int, ...]) -> bool:
    """One value an item, or a row of a few yes/no values."""
    if len(shape) > 2:
        return max(shape[1:]) == 1
    return len(shape) == 1 or (len(shape) == 2 and shape[1] <= 32 and shape[0] > shape[1])


def _read_array(array: Any, vectors: set[int], files: int, limits: SurveyLimits, is_part: bool) -> _Array:
    import numpy as np

    shape, dtype = _shape_of(array), str(getattr(array, "dtype", "object"))
    size = math.prod(shape)
    letters = np.dtype(dtype).kind if dtype != "object" else "O"
    if letters not in "biuf":
        values = (
            tuple(str(value) for value in np.asarray(array[...] if shape else array).ravel()[:100_000])
            if size <= 2**22
            else ()
        )
        return _Array(shape, dtype, "text", shape[0] if shape else None, values=values)
    if size == 1:
        return _Array(shape, dtype, "scalar", values=(_write(np.asarray(array[...] if shape else array).ravel()[0]),))
    if _is_vector(shape):
        values = tuple(_write(value) for value in np.asarray(array[...]).ravel()) if size <= 2**22 else ()
        return _Array(shape, dtype, "vector", shape[0], values=values)
    stack = is_stack(shape, vectors, files, is_part=is_part)
    if size // (shape[0] if stack else 1) > limits.pixels:
        return _Array(shape, dtype, "unknown", shape[0] if stack else None)
    places = [int((at + 0.5) * shape[0] / limits.samples) for at in range(limits.samples)] if stack else []
    items = [np.asarray(array[place]) for place in dict.fromkeys(places)] if stack else [np.asarray(array[...])]
    samples = tuple(sample_array(item) for item in items)
    masks = sum(sample.is_mask for sample in samples)
    pictures = sum(not sample.is_mask and sample.structure.kind != "constant" for sample in samples)
    return _Array(shape, dtype, "masks" if masks > pictures else "images", shape[0] if stack else None, samples)


def _write(value: Any) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() else f"{number:.6g}"


def _describe_member(key: str, arrays: Sequence[_Array], keys: int) -> Member:
    kinds = Counter(array.kind for array in arrays)
    kind = kinds.most_common(1)[0][0]
    samples = [sample for array in arrays for sample in array.samples]
    lengths = [array.length for array in arrays if array.length is not None]
    values = Counter(value for array in arrays for value in array.values)
    frequent = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    if len(set(values.values())) == 1:
        frequent = list(values.items())  # a list of names, in its order
    frequent = frequent[: _MAX_VOCABULARY if len(values) <= _MAX_VOCABULARY else 10]
    return Member(
        key=key,
        files=len(arrays),
        keys=keys,
        length=int(median(lengths)) if lengths else None,
        lengths_differ=len(set(lengths)) > 1,
        shape=arrays[0].shape,
        dtype=arrays[0].dtype,
        kind=kind,
        content=summarise(samples) if samples else None,
        distinct=len(values),
        values=tuple(ValueCount(text=text, count=count) for text, count in frequent),
        side=side_of(key),
    )


def _describe_archive(group: Group, root: Path, limits: SurveyLimits) -> Container | None:
    """The names in archives, by their suffixes; nothing is unpacked."""
    members: dict[str, list[int]] = defaultdict(list)
    opened_files = 0
    for path in spread(group.paths, limits.samples):
        try:
            announce_opening(str(root), path)
            names = _list_archive(local_file(root, path))
        except (OSError, zipfile.BadZipFile, tarfile.TarError, EOFError, ValueError):
            continue
        opened_files += 1
        for suffix, count in Counter(Path(name).suffix.lower() for name in names).items():
            members[suffix].append(count)
    if not opened_files:
        return None
    facts = [
        Member(key=f"**{suffix}", files=len(counts), keys=int(median(counts)))
        for suffix, counts in sorted(members.items())
    ]
    return Container(
        group=group.id, format="archive", files=len(group.frame), samples=opened_files, members=tuple(facts[:_MAX_KEYS])
    )


def _list_archive(path: Path) -> list[str]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return [info.filename for info in archive.infolist()[:100_000] if not info.is_dir()]
    with tarfile.open(path) as archive:
        names = []
        for info in archive:
            if info.isfile():
                names.append(info.name)
            if len(names) >= 100_000:
                break
        return names
