"""Pictures that are there more than once: byte by byte, nearly, or by names that say what was changed."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from m3b.data.image_probe import SIDE, ImageProbe, near_pairs
from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.divisions import Division
from m3b.data.survey.gathering import Gathered, Gathering
from m3b.data.survey.groups import crossings
from m3b.data.survey.kinds import IMAGES, cut
from m3b.data.survey.relations import Copies
from m3b.data.survey.sides import is_split

_WORDS = (
    "transform|augment|aug|rotat|rot|flip|mirror|copy|crop|jitter|noise|blur|bright|contrast|shift|zoom|shear|elastic"
)
_CHANGED = re.compile(
    rf"^(?P<source>.+?)(?P<change>[\W_]+(?:{_WORDS})\w*?(?:[\W_]*\d+)?[\W_]*|\.rf\.[0-9a-f]{{8,}})$", re.I
)
MAX_NEAR = 2_000
"""Pictures of one group that are compared for near copies."""
_NEAR_SHARE = 0.25
"""Of the survey's time, what the search for near copies may take."""


def copies_of(found: Gathering, splits: Sequence[Division]) -> list[Copies]:
    """Exact, near and named copies within each image group."""
    made: list[Copies] = []
    budget = found.tree.limits.hashed_bytes
    for group in found.groups:
        if group.fact.kind not in IMAGES or group.merged.count < 2 or group.is_masks:
            continue
        exact, checked, spent = _exact(found, group, budget)
        budget -= spent
        made += _facts(group, "exact", exact, checked, splits)
        made += _named(group, splits)
        if group.fact.kind == "picture" and group.is_images:
            near, checked = _near(found, group)
            made += _facts(group, "near", near, checked, splits)
    return made


def _facts(
    group: Gathered, kind: str, clusters: list[list[str]], checked: int, splits: Sequence[Division]
) -> list[Copies]:
    if not clusters:
        return []
    values = {path: str(number) for number, some in enumerate(clusters) for path in some}
    return [
        Copies(
            kind="exact" if kind == "exact" else "near", group=group.id, clusters=len(clusters), files=len(values),
            checked=checked, crosses=crossings(values, group.id, splits), label_conflicts=_conflicts(group, clusters),
            examples=tuple(tuple(some[:4]) for some in clusters[:3]),
        )
    ]  # fmt: skip


def _conflicts(group: Gathered, clusters: Iterable[Sequence[str]]) -> int:
    """Clusters whose files lie in folders of different words that are no split."""
    levels = [
        int(part.slot[5:]) for part in group.fact.parts
        if re.fullmatch(r"level\d+", part.slot) and len(part.values) == part.distinct
        and not is_split(value.text for value in part.values)
    ]  # fmt: skip
    return sum(1 for some in clusters if any(len({path.split("/")[level] for path in some}) > 1 for level in levels))


# --- exact --------------------------------------------------------------------------------------------------------


def _exact(found: Gathering, group: Gathered, budget: int) -> tuple[list[list[str]], int, int]:
    """Clusters of the same bytes; files of a size of their own need not be read."""
    if group.merged.count > group.most:
        found.tree.notes.add("copies_not_checked", group.merged.first, group.merged.count)
        return [], 0, 0  # a part of the files says nothing of the rest
    by_size: dict[int, list[str]] = defaultdict(list)
    for path in group.paths:
        by_size[found.tree.size(path)].append(path)
    digests: dict[str, list[str]] = defaultdict(list)
    spent = 0
    checked = sum(len(some) for some in by_size.values() if len(some) == 1)
    for size, some in sorted(by_size.items()):
        if len(some) < 2 or not size:
            continue
        if spent + size * len(some) > budget or found.tree.late:
            found.tree.notes.add("copies_not_checked", some[0], len(some))
            continue
        spent += size * len(some)
        checked += len(some)
        for path in some:
            if digest := _digest(found.tree.root / path):
                digests[digest].append(path)
    return [some for _, some in sorted(digests.items(), key=lambda item: item[1]) if len(some) > 1], checked, spent


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return ""


# --- near ---------------------------------------------------------------------------------------------------------


def _near(found: Gathering, group: Gathered) -> tuple[list[list[str]], int]:
    """Clusters of pictures whose small grey copies correlate, exact copies left out."""
    if group.merged.count > MAX_NEAR or group.fact.bytes > found.tree.limits.hashed_bytes:
        found.tree.notes.add("near_copies_not_checked", group.paths[0], group.merged.count)
        return [], 0
    looks: dict[str, ImageProbe] = {}
    for path in group.paths:
        if found.tree.spent > _NEAR_SHARE * found.tree.limits.seconds:
            found.tree.notes.add("near_copies_not_checked", path, group.merged.count - len(looks))
            break
        if (look := _thumbnail(found.tree.root / path, found.tree.limits.pixels)) is not None:
            looks[path] = look
    joined: dict[str, str] = {path: path for path in looks}
    for one, other in near_pairs(looks):
        low, high = sorted((_root(joined, one), _root(joined, other)))
        joined[high] = low
    clusters: dict[str, list[str]] = defaultdict(list)
    for path in looks:
        clusters[_root(joined, path)].append(path)
    return [some for _, some in sorted(clusters.items()) if len(some) > 1], len(looks)


def _root(joined: dict[str, str], path: str) -> str:
    while joined[path] != path:
        path = joined[path]
    return path


def _thumbnail(path: Path, pixels: int) -> ImageProbe | None:
    """A small grey copy as `near_pairs` compares it; None where the picture does not open."""
    try:
        return attempt(lambda: _small(path, pixels), path)
    except Unreadable:
        return None


def _small(path: Path, pixels: int) -> ImageProbe:
    import numpy as np
    from PIL import Image as Pillow

    with Pillow.open(path) as picture:
        if picture.width * picture.height > pixels:
            raise Unreadable("large", path.name)
        picture.draft("L", (SIDE * 4, SIDE * 4))
        small = np.asarray(picture.convert("L").resize((SIDE, SIDE), Pillow.Resampling.BOX), dtype=np.float64)
    centred = (small - small.mean()).ravel()
    norm = float(np.linalg.norm(centred))
    digest = hashlib.blake2b(small.tobytes(), digest_size=8).hexdigest()
    return ImageProbe(digest=digest + path.name if norm < 1e-9 else digest + str(path.stat().st_size),
                thumbnail=(centred / norm if norm > 1e-9 else centred).astype(np.float32), flat=norm < 1e-9)  # fmt: skip


# --- by names -----------------------------------------------------------------------------------------------------


def _named(group: Gathered, splits: Sequence[Division]) -> list[Copies]:
    """Files whose names say that they were made from another: `x_rotated_90`, `x.rf.3fa8c1...`."""
    clusters: dict[str, list[str]] = defaultdict(list)
    changes = Counter[str]()
    changed: set[str] = set()
    for path in group.looked:
        stem = cut(path.rpartition("/")[2])[0]
        match = _CHANGED.match(stem)
        clusters[match["source"] if match else stem].append(path)
        if match:
            changed.add(path)
            changes[re.sub(r"\d+", "#", re.sub(r"[0-9a-f]{8,}", "*", match["change"]))] += 1
    made = [some for _, some in sorted(clusters.items()) if any(path in changed for path in some)]
    if len(changed) < 3 or sum(1 for some in made if len(some) > 1) < 2:
        return []
    values = {path: str(number) for number, some in enumerate(made) for path in some}
    return [
        Copies(
            kind="named", group=group.id, clusters=len(made), files=len(changed), checked=len(group.looked),
            rule=changes.most_common(1)[0][0], originals=sum(1 for some in made if any(one not in changed for one in some)),
            crosses=crossings(values, group.id, splits), label_conflicts=_conflicts(group, made),
            examples=tuple(tuple(some[:4]) for some in made[:3]),
        )
    ]  # fmt: skip
