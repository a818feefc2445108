"""What lies within the files of a group: arrays by key, and what each of them holds."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.array_files import opened_members
from m3b.data.survey.array_members import Format, Inner
from m3b.data.survey.facts import Container, Member, SurveyLimits, Value
from m3b.data.survey.samples import MASKS, FileSample, content, from_array
from m3b.data.survey.sides import side_of

MAX_KEYS = 24
_READ = 2**26
"""Values of one member that are read."""
_TEXTS = frozenset("SUO")


@dataclass(frozen=True)
class KeyForm:
    """One form of key in one file: a member, how many keys have that form, and what the member holds."""

    inner: Inner
    keys: int
    look: FileSample
    values: tuple[Value, ...]
    stacked: bool


def container_of(
    group: str, files: int, paths: list[Path], suffix: str, limits: SurveyLimits
) -> tuple[Container | None, int]:
    """The facts of a group of array files, from some of them, and how many of those do not open."""
    seen: dict[str, list[KeyForm]] = defaultdict(list)
    formats = Counter[Format]()
    failed = 0
    for path in paths:
        if not path.is_file() or path.stat().st_size > 64 * limits.file_bytes:
            continue
        try:
            formats[attempt(partial(_see, path, suffix, seen, limits), path)] += 1
        except Unreadable:
            failed += 1
    if not formats:
        return None, failed
    members = [_member(key, found) for key, found in sorted(seen.items())[:MAX_KEYS]]
    facts = Container(
        group=group, format=formats.most_common(1)[0][0], files=files, looked=formats.total(), members=tuple(members),
        note=f"{len(seen)} forms of keys" if len(seen) > MAX_KEYS else "",
    )  # fmt: skip
    return facts, failed


def _see(path: Path, suffix: str, seen: dict[str, list[KeyForm]], limits: SurveyLimits) -> Format:
    """Look at every form of key of one file."""
    with opened_members(path, suffix) as (form, inners):
        for key, found in _seen(inners, limits):
            seen[key].append(found)
        return form


def _seen(inners: list[Inner], limits: SurveyLimits) -> list[tuple[str, KeyForm]]:
    found: list[tuple[str, KeyForm]] = []
    by_form: dict[str, list[Inner]] = defaultdict(list)
    for inner in inners:
        by_form[form_of(inner.key) if len(inners) > 8 else inner.key].append(inner)
    lengths = {max(inner.shape) for inner in inners if len(inner.shape) == 1 or _is_vector(inner.shape)} - {1}
    for form, some in by_form.items():
        stacked = is_stack(some[0].shape, lengths)
        look, values = _look(some[0], limits, stacked)
        found.append((form, KeyForm(some[0], len(some), look, values, stacked)))
    return found


def form_of(key: str) -> str:
    """A key with its numbers as `#`."""
    return re.sub(r"\d+", "#", key)


def _look(inner: Inner, limits: SurveyLimits, stacked: bool) -> tuple[FileSample, tuple[Value, ...]]:
    """What a member holds: the vocabulary of a vector, else the look of an image or of the first items of a stack."""
    size = 1
    for side in inner.shape:
        size *= side
    kind = inner.dtype.lstrip("<>|=")[:1]
    if "object" in inner.dtype or kind in _TEXTS or (len(inner.shape) <= 1 or _is_vector(inner.shape)):
        return FileSample("vector"), _vocabulary(inner, size, limits)
    import numpy as np

    part = None
    if size > min(_READ, limits.pixels):
        first = max(int(min(_READ, limits.pixels) // max(size // inner.shape[0], 1)), 1)
        part = (slice(0, first),)
        if size // inner.shape[0] > limits.pixels:
            return FileSample("large"), ()
    elif len(inner.shape) >= 3 and inner.shape[0] > 4 * max(inner.shape[1:3]) // 3:
        part = (slice(0, 64),)
    array = np.asarray(inner.read(part))
    if array.dtype.kind not in "biuf":
        return FileSample("vector"), ()
    return _as_images(array, inner, stacked), ()


def _is_vector(shape: tuple[int, ...]) -> bool:
    if len(shape) > 2:
        return max(shape[1:]) == 1  # PatchCamelyon has its labels as (n, 1, 1, 1)
    return len(shape) == 2 and min(shape) <= 32 and (min(shape) == 1 or shape[1] <= 32 < shape[0])


def _vocabulary(inner: Inner, size: int, limits: SurveyLimits) -> tuple[Value, ...]:
    import numpy as np

    if size > limits.pixels or ("object" in inner.dtype and not inner.shape):
        return ()
    try:
        flat = np.asarray(inner.read(None)).ravel()
    except ValueError:
        return ()
    if flat.dtype.kind == "O":
        flat = np.array([one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in flat])
    found, counts = np.unique(flat, return_counts=True)
    if len(found) > 200:
        return ()
    return tuple(Value(text=_plain(value), count=int(count)) for value, count in zip(found, counts, strict=True))


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def _as_images(array: Any, inner: Inner, stacked: bool) -> FileSample:
    """A look at one image or volume of a member: `(H, W)`, `(H, W, 3)`, `(N, H, W)`, `(N, H, W, C)`, `(H, W, D)`."""
    items = array[: min(len(array), 32)] if stacked else array[None]
    one = items[0]
    if one.ndim == 3 and one.shape[-1] in (1, 3, 4):
        items = items[..., 0] if one.shape[-1] == 1 else items
        dims, channels = 2, one.shape[-1]
    else:
        dims, channels = (2 if one.ndim == 2 else 3), 1
    look = from_array(items.reshape(1, *items.shape[:1], -1), 2, None, "", inner.dtype)
    shape = items.shape[1:3] if channels > 1 or dims == 2 else items.shape[1:]
    return FileSample(
        "", tuple(map(int, shape)), int(channels), int(shape[-1]) if dims == 3 else 1, dims, inner.dtype, None, "",
        look.values,
    )  # fmt: skip


def is_stack(shape: tuple[int, ...], lengths: set[int]) -> bool:
    """Whether the first axis counts items: four axes, many alike pictures, or a vector of that length beside it."""
    if len(shape) >= 4:
        return True
    if len(shape) == 3 and shape[0] in lengths and shape[0] not in shape[1:]:
        return True
    return len(shape) == 3 and shape[-1] not in (1, 3, 4) and shape[1] == shape[2] and shape[0] > 2 * shape[1]


def _member(key: str, found: list[KeyForm]) -> Member:
    looks = [one.look for one in found if one.look.error != "vector"]
    shapes = {one.inner.shape for one in found}
    side = side_of(key)
    values = Counter[str]()
    for seen in found:
        values.update({one.text: one.count for one in seen.values})
    facts = content(looks) if looks else None
    first = [one.inner.shape[0] for one in found if one.inner.shape]
    return Member(
        key=key,
        files=len(found),
        keys=int(median(one.keys for one in found)),
        content=facts,
        rows=int(median(first)) if first and (not looks or any(one.stacked for one in found)) else None,
        role=_role(facts, values, shapes, found),
        split=side if side in ("train", "val", "test") else "",
        values=tuple(Value(text=text, count=count) for text, count in sorted(values.items())) if len(values) <= 200 else (),
    )  # fmt: skip


def _role(
    facts: Any, values: Counter[str], shapes: set[tuple[int, ...]], found: list[KeyForm]
) -> Literal["image", "mask", "labels", "text", "scalar", "unknown"]:
    if facts is not None:
        return "mask" if facts.values in MASKS else "image" if facts.failed < facts.looked else "unknown"
    if all(max(shape, default=1) == 1 for shape in shapes):
        return "scalar"
    kinds = {one.inner.dtype.lstrip("<>|=")[:1] for one in found}
    if kinds <= set("SUo"):
        return "text"
    return "labels" if values else "unknown"
