"""Cases that cannot serve: images that do not open, exact copies, and copies under different labels."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from folder_layouts import Case
from Utils.formats import DataError, read_image

OPEN_AT_MOST = 30_000
OPEN_SECONDS = 300.0
THREADS = 4


def drop_faulty(
    cases: list[Case], kind: str, open_images: bool, own_test: Collection[str] = (), seconds: float = OPEN_SECONDS
) -> list[Case]:
    """The cases that are left; what was dropped is printed. After `seconds` the rest is taken unopened.

    A data set's own test part stays as its owners made it: of copies, those whose split is in `own_test` all stay and
    the training ones go.

    Args:
        kind: labels, masks, boxes or reports; copies contradict each other only under different labels.
    """
    end = time.monotonic() + seconds
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        looked = list(pool.map(lambda case: _look(case, kind, open_images, end), cases))
    bad = [fault for _, fault, _ in looked if fault]
    unopened = sum(not opened for _, fault, opened in looked if not fault) if open_images else 0
    same: dict[str, list[Case]] = defaultdict(list)
    for case, (key, fault, _) in zip(cases, looked, strict=True):
        if not fault:
            same[key].append(case)
    if bad:
        print(f"dropped, do not open: {len(bad)} (e.g. {bad[0]})")
    if unopened:
        print(f"not opened, because {seconds:g} s were spent: {unopened}")
    groups = list(same.values())
    torn = (
        [group for group in groups if len({tuple(sorted(case.values)) for case in group}) > 1]
        if kind == "labels"
        else []
    )
    if torn:
        print(f"dropped, the same pixels under different labels: {sum(map(len, torn))} images")
        if any(len({str(case.image) for case in group}) < len(group) for group in torn):
            print("  (some are one file that several rows name: --join-rows gives it the labels of all its rows)")
    apart = {id(group) for group in torn}
    kept = [group for group in groups if id(group) not in apart]
    chosen = [[case for case in group if case.split.lower() in own_test] or group[:1] for group in kept]
    if copies := sum(map(len, kept)) - sum(map(len, chosen)):
        print(f"dropped, exact copies: {copies}")
    join_patients(kept)
    return [case for group in chosen for case in group]


def _look(case: Case, kind: str, open_images: bool, end: float) -> tuple[str, str, bool]:
    """(a key that copies share, what is wrong, whether the image was opened)."""
    if not open_images or time.monotonic() >= end:
        return f"path {case.image}", "", False
    digest = hashlib.blake2b(digest_size=16)
    views = case.image if kind == "reports" and isinstance(case.image, list) else [case.image]
    try:
        for view in views:
            array = read_image(view).array
            digest.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
    except DataError as error:
        return "", str(error), True
    return digest.hexdigest(), "", True


def join_patients(groups: Iterable[list[Case]]) -> None:
    """Patients who share an image are one, so that the copy that is kept stands for all of them."""
    groups = list(groups)
    leader: dict[str, str] = {}

    def head(name: str) -> str:
        while (above := leader.get(name, name)) != name:
            leader[name] = leader.get(above, above)
            name = above
        return name

    for group in groups:
        for case in group[1:]:
            one, other = head(group[0].patient), head(case.patient)
            if one != other:
                leader[other] = one
    for group in groups:
        for case in group:
            case.patient = head(case.patient)
