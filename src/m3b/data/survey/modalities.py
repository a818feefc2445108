"""DICOM files of one form of name that hold different things: structure sets and segmentations beside the images that they mark,
and several modalities of the same studies. Exports and archives name them all alike, in one folder or in one a series.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from m3b.data.survey.dicom import Header
from m3b.data.survey.name_templates import NamedFiles

NO_IMAGES = frozenset(("RTSTRUCT", "SEG", "SR", "PR", "KO", "REG", "RTPLAN", "RTDOSE", "RTRECORD", "DOC"))
"""Modalities (DICOM PS3.3 C.7.3.1.1.1) whose files are no images to learn from."""
BOTH = 0.5
"""Share of the studies of the rarer modality that must have the other one for the two to be told apart."""


def modalities_apart(files: NamedFiles, header: Callable[[str], Header | None], most: int) -> list[NamedFiles]:
    """A fine group of DICOM files as one a modality, where they do not all hold the same; else as it is.

    Args:
        header: reads one file's.
        most: headers that may be read; of more files those that lie together must be alike.
    """
    headers = _headers(files, header, most)
    by: dict[str, list[Header]] = defaultdict(list)
    for one in headers.values():
        if one is not None and one.modality:
            by[one.modality].append(one)
    marks = [name for name in by if name in NO_IMAGES]
    images = sorted((name for name in by if name not in NO_IMAGES), key=lambda name: (-len(by[name]), name))
    apart = [name for name in images[1:] if _of_the_same(by[images[0]], by[name])]
    if not images or not (marks or apart):
        return [files]
    kinds = {path: one.modality if one and one.modality in (*marks, *apart) else "" for path, one in headers.items()}
    return _parted(files, kinds, tuple(name for name in images if name not in apart))


def _headers(files: NamedFiles, header: Callable[[str], Header | None], most: int) -> Mapping[str, Header | None]:
    """Of every file; where that is too many, that of the first one in its folder, if the last one is of the same kind."""
    if files.count <= most:
        return {path: header(path) for path in files.paths()}
    found: dict[str, Header | None] = {}
    if 2 * len(files.members) > most:
        return found
    for folder, names in files.members:
        paths = ["/".join((*folder, name)) for name in names]
        first, last = header(paths[0]), header(paths[-1])
        if first is None or last is None or first.modality != last.modality:
            return {}
        found |= dict.fromkeys(paths, first)
    return found


def _of_the_same(images: Sequence[Header], others: Sequence[Header]) -> bool:
    """Whether two modalities are of the same studies, so that a case has both; films of CR and of DX are of different ones."""
    for tag in ("StudyInstanceUID", "PatientID"):
        mine, theirs = ({one.tags.get(tag, "") for one in some} - {""} for some in (images, others))
        if mine and theirs and len(mine & theirs) >= BOTH * min(len(mine), len(theirs)):
            return True
    return False


def _parted(files: NamedFiles, kinds: Mapping[str, str], rest: tuple[str, ...]) -> list[NamedFiles]:
    """One group a kind, and one of the `rest`."""
    made: dict[str, NamedFiles] = {}
    for folder, names in files.members:
        here: dict[str, list[str]] = defaultdict(list)
        for name in names:
            here[kinds.get("/".join((*folder, name)), "")].append(name)
        for kind, some in here.items():
            if kind not in made:
                own = (kind,) if kind else rest
                made[kind] = NamedFiles(files.levels, files.name, files.suffix, files.kind, modality=own)
            made[kind].add(folder, some)
    return [made[kind] for kind in sorted(made)]
