"""What lies within array files (NPY, NPZ, HDF5, MAT) and archives: members, lengths of the first axis, kinds of values."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import polars as pl

from m3b.data.opening import Unreadable, attempt
from m3b.data.phi import Siblings, cell, is_personal, mask
from m3b.dataset.archives import list_members, local_file
from m3b.dataset.inventory import with_path_columns
from m3b.dataset.manifest.templates import parse_template
from m3b.dataset.reading import open_arrays, read_values
from m3b.dataset.survey.contents import MAX_CONTAINERS, Sample, holds_part, is_stack, sample_array, summarise
from m3b.dataset.survey.facts import Container, Join, Member, Pairing, SurveyLimits, ValueCount
from m3b.dataset.survey.groups import Group, spread
from m3b.dataset.survey.tables import SurveyTable
from m3b.dataset.survey.walk import sort_naturally
from m3b.dataset.survey.words import side_of
from m3b.dataset.tables import FILE_COLUMN
from m3b.errors import DataError
from m3b.isolation.untrusted import announce_opening

_MAX_KEYS = 40
_ARRAY_SUFFIXES = (".npy", ".h5", ".hdf5")
_MAX_FILES_BESIDE = 40
"""Files of arrays of a folder whose shapes are compared."""
MAX_STACK_FILES = 2
"""Files so few that images and masks of the same length are stacks: a set of one or two volumes trains nothing."""
_MIN_STACK = 8
MAX_ITEM_FILES = 24
"""Files up to which every one is opened to count its items."""
_MAX_VOCABULARY = 60
_MAX_TEXTS = 100_000
"""Texts and numbers of an array that are counted."""
_MAX_WIDE_VECTOR, _MAX_COORDINATES = 32, 8
"""Columns of an array with a row for each item: one-hot classes, and coordinates."""
_MAX_NAMED_KEYS = 8
"""Arrays of one file whose names are taken as they are; of more, numbers in names are slots."""
_MIN_FULL_GROUPS = 0.9
"""Arrays of groups, as a part of what they are if each group has an array of each name, from which on a group is a case."""
MemberKind = Literal["images", "masks", "vector", "scalar", "text", "unknown"]


@dataclass(frozen=True)
class _Array:
    """One array of one file, as far as it was looked at."""

    shape: tuple[int, ...]
    dtype: str
    kind: MemberKind
    length: int | None = None
    samples: tuple[Sample, ...] = ()
    values: Mapping[str, int] = field(default_factory=dict)
    """Texts and numbers, and how often each occurs."""


def describe_container(
    group: Group, root: Path, limits: SurveyLimits, row_counts: Collection[int] = ()
) -> Container | None:
    """Return what lies in the files of a group; None if none of them opens.

    Args:
        row_counts: rows of the tables of the folder, of which one may have a row for each item of an array.
    """
    if group.format == "archive":
        return _describe_archive(group, root, limits)
    arrays: dict[str, list[_Array]] = defaultdict(list)
    keys_per_form: dict[str, list[int]] = defaultdict(list)
    opened_files = 0
    lengths = set(row_counts) if len(group.frame) <= MAX_CONTAINERS else set()
    own_names = {path.rpartition("/")[2] for path in group.paths}
    for path in spread(group.paths, limits.samples):
        file = local_file(root, path)
        beside = lengths | _lengths_beside(file, own_names, len(group.frame))
        try:
            forms = attempt(partial(_read_file, file, len(group.frame), limits, beside), root, path)
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


def _read_file(path: Path, files: int, limits: SurveyLimits, lengths: set[int]) -> dict[str, list[_Array]]:
    contents = {**open_arrays(path), **read_values(path)}
    return _read_arrays(contents, files, limits, lengths, holds_part(path.name, files))


def _lengths_beside(path: Path, own_names: set[str], files: int) -> set[int]:
    """Numbers of items that files of other names beside one have: `labels.npy` beside `images.npy`, and `masks.npy` if both hold
    too few files for one image a file."""
    lengths = set()
    array_files = [file for file in sorted(path.parent.iterdir()) if file.suffix.lower() in _ARRAY_SUFFIXES]
    other_files = [
        file for file in array_files if file.name not in own_names or (files <= MAX_STACK_FILES and file != path)
    ]
    for file in other_files[:_MAX_FILES_BESIDE]:
        try:
            shapes = [_shape_of(array) for array in attempt(partial(open_arrays, file), file).values()]
        except Unreadable:
            continue
        lengths |= {shape[0] for shape in shapes if shape and shape[0] > 1 and _is_vector(shape, {shape[0]})}
        if len(array_files) <= MAX_STACK_FILES:
            lengths |= {shape[0] for shape in shapes if len(shape) > 2 and shape[0] >= _MIN_STACK}
    return lengths


def _read_arrays(
    contents: Mapping[str, Any], files: int, limits: SurveyLimits, beside: set[int], is_part: bool
) -> dict[str, list[_Array]]:
    import numpy as np

    names = list(contents)
    forms: dict[str, list[str]] = defaultdict(list)
    for name, form in zip(names, _write_forms(names), strict=True):
        forms[form].append(name)
    shapes = {name: _shape_of(contents[name]) for name in names}
    stacks = {shape[0] for shape in shapes.values() if len(shape) > 2 or (len(shape) == 1 and shape[0] > 1)} | beside
    rows = [name for name, shape in shapes.items() if len(shape) == 2 and shape[0] == 1 < shape[1] in stacks]
    contents = {**contents, **{name: np.asarray(contents[name]).reshape(-1) for name in rows}}  # a row vector of MATLAB
    shapes |= {name: shapes[name][1:] for name in rows}
    vectors = {shape[0] for shape in shapes.values() if _is_vector(shape, stacks) and shape[0] > 1} | beside
    if files <= MAX_STACK_FILES:
        alone = [shapes[members[0]] for members in forms.values() if len(members) == 1]  # others hold a case each
        counts = Counter(shape[0] for shape in alone if len(shape) > 2 and shape[0] >= _MIN_STACK)
        vectors |= {length for length, count in counts.items() if count > 1}
    result: dict[str, list[_Array]] = {}
    for form, members in forms.items():
        is_vector = _is_vector(shapes[members[0]], stacks)
        first = _read_array(
            contents[members[0]],
            vectors,
            files,
            limits,
            is_part=len(members) == 1 and (is_part or (files <= MAX_CONTAINERS and bool(side_of(members[0])))),
            is_vector=is_vector,
        )
        result[form] = [first] * len(members)
    return result


def _write_forms(names: Sequence[str]) -> list[str]:
    """Return the form of each name: numbers are slots if there are many names, and so are groups of many names."""
    if len(names) <= _MAX_NAMED_KEYS:
        return list(names)
    forms = [re.sub(r"\d+", "{number}", name) for name in names]
    levels = [name.split("/") for name in names]
    depths = {len(parts) for parts in levels}
    if len(set(forms)) <= _MAX_NAMED_KEYS or len(depths) > 1:
        return forms
    counts = [len({parts[level] for parts in levels}) for level in range(min(depths))]
    places = [level for level, count in enumerate(counts) if count > _MAX_NAMED_KEYS]
    if len(places) != 1 or len(names) < _MIN_FULL_GROUPS * math.prod(counts):
        return forms
    return ["/".join("{case}" if level == places[0] else part for level, part in enumerate(parts)) for parts in levels]


def _shape_of(array: Any) -> tuple[int, ...]:
    shape = array.shape if hasattr(array, "shape") else (len(array),)
    return tuple(int(side) for side in shape)


def _is_vector(shape: tuple[int, ...], stacks: set[int]) -> bool:
    """Whether an array holds a value, or a row of a few values, for each item.

    Args:
        stacks: lengths of what else could have an entry for each item. Without any of that length, rows too long for
            coordinates are those of a narrow picture.
    """
    if len(shape) != 2:
        return bool(shape) and max(shape[1:], default=1) == 1
    rows, columns = shape
    return columns < rows and columns <= (_MAX_WIDE_VECTOR if rows in stacks else _MAX_COORDINATES)


def _read_array(
    array: Any, vectors: set[int], files: int, limits: SurveyLimits, *, is_part: bool, is_vector: bool
) -> _Array:
    import numpy as np

    shape, dtype = _shape_of(array), str(getattr(array, "dtype", "object"))
    size = math.prod(shape)
    letters = np.dtype(dtype).kind if dtype != "object" else "O"
    if letters not in "biuf":
        flat = np.asarray(array[...] if shape else array).ravel()[:_MAX_TEXTS] if size <= 2**22 else np.empty(0, str)
        values = _write_records(flat) if flat.dtype.names else tuple(map(_decode, flat))
        if size == 1:
            return _Array(shape, dtype, "scalar", values=Counter(values))
        return _Array(shape, dtype, "text", shape[0] if shape else None, values=Counter(values))
    if size == 1:
        return _Array(shape, dtype, "scalar", values=_count_numbers(array[...] if shape else array))
    if is_vector:
        counts = _count_numbers(array[...]) if size <= 2**22 else {}
        return _Array(shape, dtype, "vector", shape[0], values=counts)
    stack = is_stack(shape, vectors, files, is_part=is_part)
    if size // (shape[0] if stack else 1) > limits.pixels:
        return _Array(shape, dtype, "unknown", shape[0] if stack else None)
    places = [int((at + 0.5) * shape[0] / limits.samples) for at in range(limits.samples)] if stack else []
    items = [np.asarray(array[place]) for place in dict.fromkeys(places)] if stack else [np.asarray(array[...])]
    samples = tuple(sample_array(item) for item in items)
    masks = sum(sample.is_mask for sample in samples)
    pictures = sum(not sample.is_mask and sample.structure.kind != "constant" for sample in samples)
    return _Array(shape, dtype, "masks" if masks > pictures else "images", shape[0] if stack else None, samples)


def _decode(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _write_records(records: Any) -> tuple[str, ...]:
    """Return the records of a structured array as texts, their personal fields masked."""
    names = Siblings(records.dtype.names)
    columns = []
    for name in records.dtype.names:
        texts = list(map(_decode, records[name]))
        columns.append([mask(text) if is_personal(name, texts, names) else cell(text) for text in texts])
    return tuple(f"({', '.join(row)})" for row in zip(*columns, strict=True))


def _count_numbers(array: Any) -> dict[str, int]:
    """Return the first numbers of an array as texts in their order, and how often each occurs."""
    import numpy as np

    numbers, places, counts = np.unique(np.asarray(array), return_index=True, return_counts=True)
    texts: Counter[str] = Counter()
    for rank in np.argsort(places)[:_MAX_TEXTS]:
        texts[_write(numbers[rank])] += int(counts[rank])
    return texts


def _write(value: Any) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() else f"{number:.6g}"


def _describe_member(key: str, arrays: Sequence[_Array], keys: int) -> Member:
    kinds = Counter(array.kind for array in arrays)
    kind = kinds.most_common(1)[0][0]
    samples = [sample for array in arrays for sample in array.samples]
    lengths = [array.length for array in arrays if array.length is not None]
    values: Counter[str] = Counter()
    for array in arrays:
        values.update(array.values)
    frequent = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    if len(set(values.values())) == 1:
        frequent = list(values.items())  # a list of names, in its order
    frequent = frequent[: _MAX_VOCABULARY if len(values) <= _MAX_VOCABULARY else 10]
    show = mask if is_personal(key, list(values)) else cell
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
        values=tuple(ValueCount(text=show(text), count=count) for text, count in frequent),
        side=side_of(key),
    )


def counts_items(container: Container) -> bool:
    """Return whether the images or masks in the files are items of arrays, and no file is one image."""
    return any(member.kind in ("images", "masks") and (member.length or 0) > 1 for member in container.members)


def holds_vectors(container: Container) -> bool:
    """Return whether the files hold nothing but a value, or a few, for each item of something else."""
    return container.files <= MAX_ITEM_FILES and all(
        member.kind in ("vector", "text") and (member.length or 0) > 1 for member in container.members
    )


def join_items(
    containers: Sequence[Container],
    groups: Mapping[str, Group],
    tables: Sequence[SurveyTable],
    pairings: Sequence[Pairing],
    root: Path,
) -> list[Join]:
    """Return the tables that have a row for each item of an array, in the same order, in one file or in one for each.

    Args:
        groups: by id.
    """
    joins = []
    for container in containers:
        for member in container.members:
            if member.kind not in ("images", "masks") or (member.length or 0) < 2 or container.files > MAX_ITEM_FILES:
                continue
            items = _count_items(groups[container.group], member.key, root)
            for table in tables:
                keys = _find_row_keys(table, groups, container.group, items, pairings)
                if keys is not None and table.facts.group != container.group:
                    count = sum(items.values())
                    joins.append(
                        Join(
                            table=table.id,
                            group=f"{container.group}#{member.key}",
                            key=keys[0],
                            image=keys[1],
                            match="exact",
                            rows=len(table.frame),
                            rows_matched=count,
                            files=count,
                            files_matched=count,
                            rows_per_file=1,
                            files_per_row=1,
                        )
                    )
    return joins


def _count_items(group: Group, key: str, root: Path) -> dict[str, int]:
    counts = {}
    for path in group.paths:
        try:
            array = attempt(partial(open_arrays, local_file(root, path)), root, path).get(key)
        except Unreadable:
            continue
        if array is not None:
            counts[path] = _shape_of(array)[0]
    return counts


def _find_row_keys(
    table: SurveyTable,
    groups: Mapping[str, Group],
    owner: str,
    items: Mapping[str, int],
    pairings: Sequence[Pairing],
) -> tuple[str, str] | None:
    """The templates of rows and items that give a row to each item; None if a file has other rows than items."""
    rows = count_rows(table)
    if len(rows) == len(items) == 1:
        return ("{(row)}", "{index}") if [*rows.values()] == [*items.values()] else None
    for pairing in pairings:
        if pairing.match != "exact" or {pairing.image_group, pairing.partner_group} != {owner, table.facts.group}:
            continue
        is_owner = pairing.image_group == owner
        key, image = (pairing.key, pairing.image) if is_owner else (pairing.image, pairing.key)
        counts = _count_by(groups[table.facts.group], key, rows)
        if len(counts) == len(rows) and counts == _count_by(groups[owner], image, items) and len(counts) == len(items):
            return f"{_name_slot(table, groups[table.facts.group], key)}/{{(row)}}", f"{image}/{{index}}"
    return None


def _name_slot(table: SurveyTable, group: Group, key: str) -> str:
    """The slot of a table's own pattern that holds what a key of the whole group does: slots of a part are counted anew."""
    texts = dict(_texts_of(group, key).iter_rows())
    for name in re.findall(r"\{(\w+):\w+\}", table.facts.files):
        if all(texts[path] == text for path, text in table.frame.select(FILE_COLUMN, name).unique().iter_rows()):
            return f"{{{name}}}"
    return key


def count_rows(table: SurveyTable) -> dict[str, int]:
    """Return the rows of each file of a table."""
    if FILE_COLUMN not in table.frame.columns:
        return {table.facts.files: len(table.frame)}
    return dict(table.frame.group_by(FILE_COLUMN).len().iter_rows())


def _count_by(group: Group, template: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Counts of files by a template's text of each."""
    texts = _texts_of(group, template).iter_rows()
    return {text: counts[path] for path, text in texts if text is not None and path in counts}


def _texts_of(group: Group, template: str) -> pl.DataFrame:
    """Path and a template's text of each file; no rows if the files have no such columns."""
    parsed = parse_template(template)
    frame = with_path_columns(group.frame, parsed.columns)
    if set(parsed.columns) - set(frame.columns):
        return pl.DataFrame(schema={"path": pl.String, "text": pl.String})
    return frame.select("path", text=parsed.expression())


def _describe_archive(group: Group, root: Path, limits: SurveyLimits) -> Container | None:
    """The names in archives, by their suffixes; nothing is unpacked."""
    members: dict[str, list[int]] = defaultdict(list)
    opened_files = 0
    for path in spread(group.paths, limits.samples):
        try:
            announce_opening(str(root), path)
            names = [name for name, _ in list_members(local_file(root, path))]
        except (DataError, OSError):
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
