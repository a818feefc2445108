"""The audit of the images themselves: opened once, in parallel, and compared with each other."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from m3b.data import kinds
from m3b.data.altered import altered_pairs
from m3b.data.audit_common import Finding, some, truth, unit_key, unit_keys, units
from m3b.data.box_targets import look_at_boxes
from m3b.data.image_headers import burnt_in
from m3b.data.image_probe import ImageProbe, examine, near_pairs
from m3b.data.index import Index, Record
from m3b.data.mask_probe import look_at_masks
from m3b.data.reading import shared_masks
from m3b.isolation.untrusted import should_open_one_by_one

Tick = Callable[[int, int], None]
Looks = dict[str, ImageProbe]
WORKERS = 4
MEMORY = 512 << 20
"""Bytes of pixels that may be open at the same time; a single larger image is opened alone."""
ANISOTROPIC = 3.0
MAX_CHANNELS = 8


def open_all(index: Index, work: Path, without: set[str], deadline: float, tick: Tick | None) -> Looks:
    """A look at every image that was opened in time, in the order of the index.

    Args:
        without: keys of cases that are left out.
    """
    shared_masks()  # loaded here, before several threads ask for it
    todo = [record for record in index.records if record.key not in without]
    todo.sort(key=lambda record: not _made(record))  # what scripts made is looked at in any case
    looks = _in_parallel(_spread(todo), index, work, deadline, tick, len(todo))
    order = [key for record in todo for key in unit_keys(record, index.task)]
    return {key: looks[key] for key in dict.fromkeys(order) if key in looks}


def _in_parallel(
    queue: Iterator[Record], index: Index, work: Path, deadline: float, tick: Tick | None, total: int
) -> Looks:
    looks: Looks = {}
    begun: set[str] = set()
    running: set[Future[Looks]] = set()
    done = 0
    room = 1  # the first tells how large they are
    with ThreadPoolExecutor(WORKERS) as pool:
        while True:
            while len(running) < room and time.monotonic() < deadline and (record := next(queue, None)):
                if record.key not in begun:
                    begun.add(record.key)
                    running.add(pool.submit(_look, record, index, work))
            if not running:
                return looks
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                looks |= future.result()
                done += 1
                if tick and done % 50 == 0 and done < total:
                    tick(done, total)
            room = _room(max(look.bytes for look in looks.values()))


def _room(largest: int) -> int:
    """How many may be open together: the pixels, their copies while they are digested, and the mask."""
    most = 1 if should_open_one_by_one() else WORKERS
    return max(1, min(most, MEMORY // max(1, 3 * largest)))


def _look(record: Record, index: Index, work: Path) -> Looks:
    if index.masked or index.boxed:
        look = examine(
            record.image,
            work,
            lambda array: (
                look_at_masks(record, index.values, work, array),
                look_at_boxes(record, work, array) if index.boxed else None,
            ),
        )
        return {record.key: look}
    return {unit_key(unit): examine(unit, work) for unit in units(record, index.task)}


def _spread(records: Sequence[Record]) -> Iterator[Record]:
    """A spread-out order, so that a cut-off audit has seen a sample of everything rather than the first class."""
    step = max(1, int(len(records) ** 0.5))
    for start in range(step):
        yield from records[start::step]


# --- one by one ---------------------------------------------------------------------------------------------------


def images(index: Index, looks: Looks, *, in_run: bool = False, volumes: bool = True) -> list[Finding]:
    """Everything about the images that were opened.

    Args:
        in_run: whether raw data lies below `data/`, so that everything else was made by scripts.
        volumes: whether to say what is odd about volumes.
    """
    found = [
        *_unreadable(looks, len(index.records)),
        *_duplicates(index, looks, in_run),
        *_blank(looks),
        *_written(looks),
    ]
    return [*found, *_volumes(looks, named=bool(index.channels))] if volumes else found


def _unreadable(looks: Looks, total: int) -> list[Finding]:
    bad = {key: look.error for key, look in looks.items() if look.error}
    if not bad:
        return []
    first = next(iter(bad.values()))
    if len(bad) == len(looks):
        text = f"None of the {len(bad)} images opens. The first says: {first}"
        return [Finding("nothing_opens", "reject", text, some(bad))]
    text = f"{len(bad)} of {total} images do not open; leave them out. The first says: {first}"
    return [Finding("unreadable", "fix", text, some(bad))]


def _blank(looks: Looks) -> list[Finding]:
    flat = [key for key, look in looks.items() if look.flat]
    if not flat:
        return []
    return [Finding("blank", "warn", f"{len(flat)} images have a single grey value throughout.", some(flat))]


def _written(looks: Looks) -> list[Finding]:
    """Text in the pixels: nobody masks it there, and a network may learn who somebody is by it."""
    known = {key: burnt_in(look.header) for key, look in looks.items()}
    said, likely = ([key for key, one in known.items() if one == kind] for kind in ("said", "likely"))
    if not said and not likely:
        return []
    told = [f"{len(said)} say in their DICOM header that text is burnt into the pixels"] if said else []
    told += [f"{len(likely)} are of a kind that often has such text, and do not deny it"] if likely else []
    text = (
        f"Of {len(looks)} images opened, {' and '.join(told)}. It may name patients, nothing masks it there, and a model may learn "
        "from it what it should learn from the image: look at some, and have it removed where it names anybody."
    )
    return [Finding("text_in_pixels", "warn", text, some(said or likely))]


def _volumes(looks: Looks, *, named: bool = False) -> list[Finding]:
    """Single slices among volumes, series of volumes, and slices far thicker than their pixels."""
    opened = {key: look for key, look in looks.items() if not look.error}
    deep = {key: look for key, look in opened.items() if len(look.size) == 4}
    findings = []
    flat = [key for key in opened if key not in deep]
    if deep and flat:
        text = (
            f"{len(flat)} of {len(opened)} images have a single slice, the others are volumes. "
            "They are taken as volumes of one slice; leave them out if they are scouts or secondary captures."
        )
        findings.append(Finding("one_slice", "warn", text, some(flat)))
    findings += [] if named else _channels(deep)
    coarse = {
        key: look.spacing
        for key, look in deep.items()
        if look.spacing and min(look.spacing) > 0 and max(look.spacing) / min(look.spacing) > ANISOTROPIC
    }
    if coarse:
        shown = " x ".join(f"{size:.3g}" for size in next(iter(coarse.values())) or ())
        text = (
            f"{len(coarse)} of {len(deep)} volumes have voxels more than {ANISOTROPIC:g} times as long as wide, "
            f"e.g. {shown} mm. Thin structures may be missed across slices."
        )
        findings.append(Finding("anisotropic", "warn", text, some(coarse)))
    return findings


def _channels(deep: Looks) -> list[Finding]:
    """Files of four axes: several volumes in one, read as channels."""
    several = {key: look.size[0] for key, look in deep.items() if look.size[0] > 1}
    if not several:
        return []
    kinds = Counter(look.size[0] for look in deep.values())
    usual = kinds.most_common(1)[0][0]
    if len(kinds) > 1:
        odd = [key for key, look in deep.items() if look.size[0] != usual]
        text = (
            f"{len(odd)} of {len(deep)} volumes hold another number of channels than the usual {usual} "
            f"({', '.join(f'{count} with {number}' for number, count in kinds.items())}; 4D files are read as "
            "channels). Name them one by one, `image_path: {name: path, ...}`, or leave these out."
        )
        return [Finding("channels_differ", "fix", text, some(odd))]
    timed = {key: look.frames for key, look in deep.items() if look.frames[0] > MAX_CHANNELS}
    if timed:
        return [_over_time(timed, len(deep))]
    text = f"All {len(several)} files are 4D: {usual} volumes each, which are read as channels."
    if usual > MAX_CHANNELS:
        text += " If this is a series over time, write one volume of each to Datapath/images/ and index that."
    return [Finding("four_axes", "warn", text, some(several))]


def _over_time(timed: Mapping[str, tuple[int, float]], total: int) -> Finding:
    """A series over time whose moments would be taken for channels."""
    key, (frames, seconds) = next(iter(timed.items()))
    what = f"{len(timed)} of {total} files are series over time by their headers, e.g. {key}: {frames} volumes, {seconds:g} s apart"
    text = (
        f"{what}; they would be read as {frames} channels. Write one volume of each (the mean, or one moment) to "
        "Datapath/images/ and index that."
    )
    told = f"{what}. A model would take the moments for channels: make one volume of each first, or say which moment counts."
    return Finding("time_as_channels", "fix", text, some(timed), told)


# --- against each other -------------------------------------------------------------------------------------------


def _duplicates(index: Index, looks: Looks, in_run: bool) -> list[Finding]:
    owner = {key: record for record in index.records for key in unit_keys(record, index.task)}
    train = {key for record in index.train for key in unit_keys(record, index.task)}
    groups: dict[str, list[str]] = defaultdict(list)
    for key, look in looks.items():
        if not look.error and not look.flat:
            groups[look.digest].append(key)
    same = [group for group in groups.values() if len(group) > 1]
    taught = {key: _taught(owner[key], index, look) for key, look in looks.items()}
    findings = []
    torn = [group for group in same if len({taught[key] for key in group}) > 1]
    across = [group for group in same if len({key in train for key in group}) > 1]
    if torn:
        word, _, remedy = kinds.of(index.task).taught
        what = "boxes" if index.boxed else "masks" if index.masked else word
        text = (
            f"{len(torn)} images occur under different {what} (same pixels), e.g. {' and '.join(torn[0][:2])}. {remedy}"
        )
        findings.append(Finding("same_image_two_classes", "fix", text, some(k for group in torn for k in group)))
    if across:
        text = (
            f"{len(across)} images are in train and in test with the same pixels. Keep one copy of each, on one side."
        )
        findings.append(Finding("duplicate_across", "fix", text, some(key for group in across for key in group)))
    apart = {id(group) for group in (*torn, *across)}
    within = [group for group in same if id(group) not in apart]
    if within:
        text = f"{len(within)} groups of images have the same pixels on one side of the split."
        findings.append(Finding("duplicate_within", "warn", text, some(key for group in within for key in group)))
    return [*findings, *_near(looks, owner, train, in_run)]


def _near(looks: Looks, owner: dict[str, Record], train: set[str], in_run: bool) -> list[Finding]:
    """Nearly the same image on both sides: to be fixed where a script made one of them, else said."""
    order = sorted(owner, key=lambda key: not _made(owner[key]))
    altered = altered_pairs(looks, [k for k in order if k in train], [k for k in order if k not in train])
    made = [pair for pair in altered if in_run and (_made(owner[pair[0]]) or _made(owner[pair[1]]))]
    findings = []
    if made:
        text = (
            f"{len(made)} images that scripts made are copies, altered a little, of images on the other side of the split, "
            f"e.g. {made[0][0]} and {made[0][1]}. Leave them out, or give both the same patient and one side."
        )
        findings.append(Finding("altered_copy_across", "fix", text, some(key for pair in made for key in pair)))
    pairs = [pair for pair in near_pairs(looks) if (pair[0] in train) != (pair[1] in train)]
    pairs = list({frozenset(pair): pair for pair in (*pairs, *altered) if pair not in made}.values())
    pairs = [pair for pair in pairs if owner[pair[0]].patient != owner[pair[1]].patient]
    if pairs:
        text = (
            f"{len(pairs)} pairs of nearly the same image lie on both sides of the split under different patients, "
            f"e.g. {pairs[0][0]} and {pairs[0][1]}. The test figure may be too high."
        )
        findings.append(Finding("near_duplicate_across", "warn", text, some(key for pair in pairs for key in pair)))
    return findings


def _made(record: Record) -> bool:
    """Whether a script of a run made an image of this case; the rest is raw data."""
    return any(not path.startswith("data/") for path in record.files)


def _taught(record: Record, index: Index, look: ImageProbe) -> str:
    """What is known of an image: for masks their content, since copies have mask files of their own."""
    if index.masked:
        return look.mask.digest if look.mask and not look.mask.empty else ""
    return truth(record, index.task)


def mask_digests(looks: Looks) -> list[list[str]]:
    """Groups of different images whose masks are the same, voxel for voxel, and mark something."""
    groups: dict[str, list[str]] = defaultdict(list)
    for key, look in looks.items():
        if look.mask and not look.mask.error and not look.mask.empty:
            groups[look.mask.digest].append(key)
    return [group for group in groups.values() if len({looks[key].digest for key in group}) > 1]
