"""The survey of a folder, from the walk to the facts."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import polars as pl

from m3b.dataset.annotations import AnnotatedImage, AnnotationSource, detect_annotations
from m3b.dataset.archives import local_file
from m3b.dataset.inventory import Inventory
from m3b.dataset.survey.containers import count_rows, counts_items, describe_container, holds_vectors, join_items
from m3b.dataset.survey.contents import ARRAY_ERRORS
from m3b.dataset.survey.dicom import Headers, describe_series, read_all_headers
from m3b.dataset.survey.documents import collect_legends, find_duplicates, read_documents
from m3b.dataset.survey.facts import VERSION, AnnotationFacts, Container, Note, Survey, SurveyLimits, ValueCount
from m3b.dataset.survey.groups import Group, GroupFinder
from m3b.dataset.survey.joins import find_joins, find_pairings
from m3b.dataset.survey.names import CONTAINER_FORMATS, IMAGE_FORMATS
from m3b.dataset.survey.relations import find_cross_tables, find_name_groups, find_splits
from m3b.dataset.survey.tables import SurveyTable, load_tables, load_vectors
from m3b.dataset.survey.walk import WalkedInventory, walk
from m3b.errors import DataError
from m3b.writing import write_text_atomically

MAX_KEPT = 32
"""Surveys that a cache folder holds; the oldest are removed."""
_TORN_SECONDS = 3600.0
"""Age from which on a half-written survey is one that a killed process left."""
_ANNOTATION_SUFFIXES = (".json", ".geojson", ".jsonl", ".xml", ".txt", ".csv", ".dcm", ".nrrd", ".yaml", ".yml", "")
_MAX_LIST_ROWS = 40
_MAX_ANNOTATION_FILES = 50_000


def survey(root: str | Path, limits: SurveyLimits | None = None, *, cache: Path | None = None) -> Survey:
    """Look once at a folder that nobody prepared, and state what is there.

    The same files give the same facts whatever the order in which the file system lists them. Links are not followed; whatever
    cannot be read is a note.

    Args:
        limits: what may be spent.
        cache: folder of stored surveys. One is taken from it if names, sizes and times of the files are the same (of more than 20,000
            files, those of a part). A stored survey holds values of the data: the file is readable for its owner alone. A survey
            that ran out of time is not stored.

    Raises:
        DataError: `root` is no folder that can be read.
    """
    limits = limits or SurveyLimits()
    started = time.monotonic()
    try:
        inventory = walk(root, limits)
    except OSError as error:
        raise DataError(f"{root}: {error.strerror or error}. Name a folder that can be read.") from error
    return (
        cached_survey(inventory, limits, cache, started=started)
        if cache
        else survey_inventory(inventory, limits, started=started)
    )


def cached_survey(
    inventory: WalkedInventory,
    limits: SurveyLimits,
    cache: Path,
    *,
    started: float | None = None,
    keep_late: bool = False,
) -> Survey:
    """Return the survey of a walked folder, stored or made; see `survey`.

    Args:
        keep_late: whether a survey that ran out of time is stored too, so that one run decides by one survey.
    """
    place = cache / f"dataset-survey-{VERSION}-{inventory.fingerprint}.json"
    stored = _load_stored(place, inventory, limits)
    if stored is not None:
        return stored
    result = survey_inventory(inventory, limits, started=started)
    if keep_late or not any(note.code == "time" for note in result.notes):
        _store(place, result)
    return result


def _load_stored(place: Path, inventory: WalkedInventory, limits: SurveyLimits) -> Survey | None:
    try:
        stored = Survey.model_validate_json(place.read_bytes())
    except (OSError, ValueError):
        return None
    return stored if stored.limits == limits and stored.name == inventory.root.name else None


def _store(place: Path, result: Survey) -> None:
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(place, result.model_dump_json(), is_private=True)
        stored = sorted(place.parent.glob("dataset-survey-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        torn = [
            path
            for path in place.parent.glob(".dataset-survey-*.json.*")
            if path.stat().st_mtime < time.time() - _TORN_SECONDS
        ]
        for path in (*stored[MAX_KEPT:], *torn):
            path.unlink(missing_ok=True)


def survey_inventory(inventory: WalkedInventory, limits: SurveyLimits, *, started: float | None = None) -> Survey:
    """Return the facts of a walked folder."""
    begin = time.monotonic() if started is None else started

    def is_late() -> bool:
        return time.monotonic() - begin > limits.seconds

    root = inventory.root
    finder = GroupFinder(inventory, limits, is_late)
    groups = finder.find()
    sources = _find_annotations(inventory, groups, is_late)
    tabular = [source for source in sources if source.format == "label_studio" and "text" in source.shapes]
    annotation_files = frozenset(path for source in sources if source not in tabular for path in source.files)
    for group in groups:
        finder.set_annotations_apart(group, annotation_files)
    tables = load_tables(groups, root, limits, annotation_files, is_late)
    headers = read_all_headers(groups, root, limits, is_late)
    containers_of = _find_containers(groups, root, limits, tables, is_late)
    containers = list(containers_of.values())
    joins = find_joins(tables, groups, headers, limits, is_late)
    pairings = find_pairings(groups, root, limits, is_late)
    group_of = {group.id: group for group in groups}
    vectors = [group_of[container.group] for container in containers if holds_vectors(container)]
    item_files = {container.files for container in containers if counts_items(container)}
    tables += load_vectors(vectors, root, limits, tables, item_files, pairings) if not is_late() else []
    item_joins = join_items(containers, group_of, tables, pairings, root) if not is_late() else []
    splits = find_splits(groups, tables, joins, containers)
    documents, texts = read_documents(groups, root, _long_lists(groups, tables), tables)
    duplicates = find_duplicates(inventory, groups, limits, is_late)
    facts = Survey(
        name=root.name,
        fingerprint=inventory.fingerprint,
        limits=limits,
        files=len(inventory.files),
        folders=inventory.folders,
        bytes=inventory.bytes,
        exact=inventory.exact,
        groups=tuple(group.facts for group in groups),
        containers=tuple(containers),
        dicom=tuple(
            fact for group in groups if group.id in headers for fact in describe_series(group, headers[group.id])
        ),
        tables=tuple(table.facts for table in tables),
        annotations=tuple(facts for source in sources for facts in _list_annotation_facts(source, groups, headers)),
        joins=(*joins, *item_joins),
        pairings=tuple(pairings),
        splits=tuple(splits),
        name_groups=tuple(find_name_groups(groups, splits)),
        cross_tables=tuple(find_cross_tables(groups, tables, joins, headers)),
        legends=tuple(collect_legends(texts, tables, containers_of)),
        documents=tuple(documents),
        duplicates=duplicates,
        notes=_notes(inventory, groups, is_late(), limits),
    )
    return facts


def _find_containers(
    groups: Sequence[Group],
    root: Path,
    limits: SurveyLimits,
    tables: Sequence[SurveyTable],
    is_late: Callable[[], bool],
) -> dict[str, Container]:
    """Pattern -> what lies in the files; arrays of items, and of values for each item, are no images as a whole."""
    row_counts = {count for table in tables for count in count_rows(table).values()}
    containers = {}
    for group in groups:
        if group.format not in CONTAINER_FORMATS or is_late():
            continue
        container = describe_container(group, root, limits, row_counts)
        if container is None:
            continue
        containers[group.pattern] = container
        if counts_items(container) or holds_vectors(container):
            group.fact = group.facts.model_copy(update={"content": None})
    return containers


def _find_annotations(
    inventory: Inventory, groups: Sequence[Group], is_late: Callable[[], bool]
) -> list[AnnotationSource]:
    """The annotation files of a folder; files that can only be images are not asked for their content."""
    candidates = [
        path
        for group in groups
        if group.format not in IMAGE_FORMATS or any(suffix in _ANNOTATION_SUFFIXES for suffix in group.facts.suffixes)
        for path in group.paths
    ]
    if not candidates or len(candidates) > _MAX_ANNOTATION_FILES or is_late():
        return []
    sizes = dict(inventory.files.iter_rows())
    sizes_in_order = [
        sizes[path] if sizes[path] is not None else _size(local_file(inventory.root, path)) for path in candidates
    ]
    other_files = inventory.files.filter(~pl.col("path").is_in(pl.Series(candidates).implode())).with_columns(
        pl.col("bytes").fill_null(1)
    )
    files = pl.concat(
        [pl.DataFrame({"path": candidates, "bytes": sizes_in_order}, schema=other_files.schema), other_files]
    )
    try:
        return detect_annotations(Inventory(inventory.root, files))
    except (DataError, OSError, ValueError):
        return []


def _long_lists(groups: Sequence[Group], tables: Sequence[SurveyTable]) -> frozenset[str]:
    """Files of tables with many rows, such as lists of names."""
    long = {table.facts.group for table in tables if table.facts.rows > _MAX_LIST_ROWS * table.facts.file_count}
    return frozenset(path for group in groups if group.id in long for path in group.paths)


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


_MAX_TAGS = 20
"""Different texts of whole images from which on they are no tags."""


def _list_annotation_facts(
    source: AnnotationSource, groups: Sequence[Group], headers: Mapping[str, Headers]
) -> Iterator[AnnotationFacts]:
    """Yield the facts of one source; of one with several category keys those of each, from the files that use it."""
    keys = source.annotations.category_keys
    if len(keys) < 2:
        yield _annotation_facts(source, groups, headers)
        return
    for key in keys:
        annotations = source.annotations.select_category_key(key)
        named_sources = {image.source for image in annotations.images}
        files = tuple(path for path in source.files if path in named_sources)
        facts = _annotation_facts(AnnotationSource(source.format, files, annotations), groups, headers)
        yield facts.model_copy(update={"category_key": key})


def _match_group(source: AnnotationSource, group: Group, headers: Mapping[str, Headers]) -> dict[str, AnnotatedImage]:
    """Return path -> image of the files of a group: by the DICOM series that annotations name, else by names."""
    if not any(image.series for image in source.images):
        return source.annotations.match(group.paths)
    if group.id not in headers:
        return {}
    series = headers[group.id].frame.select("SeriesInstanceUID", "path").drop_nulls()
    image_of_series = {uid: source.annotations.find_series(uid) for uid in series["SeriesInstanceUID"].unique()}
    return {path: images[0] for uid, path in series.iter_rows() if (images := image_of_series[uid])}


def _annotation_facts(
    source: AnnotationSource, groups: Sequence[Group], headers: Mapping[str, Headers]
) -> AnnotationFacts:
    """Facts of one source, and the group whose images it names most."""
    names_series = any(image.series for image in source.images)
    best, match_count, n_renamed = "", 0, 0
    images_by_group: dict[str, int] = {}
    for group in groups:
        if group.format in IMAGE_FORMATS and not (group.facts.content and group.facts.content.is_mask):
            matches = _match_group(source, group, headers)
            count = len(set(matches.values()))
            if count:
                images_by_group[group.id] = count
            if count > match_count:
                best, match_count = group.id, count
                suffixes = [
                    (PurePosixPath(path).suffix, PurePosixPath(image.name).suffix) for path, image in matches.items()
                ]
                n_renamed = sum(
                    bool(written_suffix) and suffix.lower() != written_suffix.lower()
                    for suffix, written_suffix in suffixes
                    if not names_series
                )
    tags = Counter(text for image in source.images for text in set(source.annotations.captions.get(image, ())))
    files = set(source.files)
    owners = [group.id for group in groups if not files.isdisjoint(group.paths)]
    owner = next((group.id for group in groups if source.files and source.files[0] in set(group.paths)), "")
    return AnnotationFacts(
        format=source.format,
        files=source.files[:5],
        file_count=len(source.files),
        group=owner,
        groups=tuple(owners),
        shapes=tuple(sorted(source.shapes)),
        classes=tuple(ValueCount(text=name, count=count) for name, count in source.classes.items()),
        images=len(source.images),
        images_found=match_count,
        images_renamed=n_renamed,
        images_group=best,
        images_by_group=images_by_group,
        names_series=names_series,
        tags=tuple(
            ValueCount(text=text, count=count)
            for text, count in (tags.most_common() if len(tags) <= _MAX_TAGS else ())
            if count < len(source.images)
        ),
        notes=tuple(f"{note.code} x{note.count}: {', '.join(note.examples[:3])}" for note in source.notes),
    )


def _notes(inventory: WalkedInventory, groups: Sequence[Group], late: bool, limits: SurveyLimits) -> tuple[Note, ...]:
    notes = [
        Note(code=code, count=count, examples=inventory.notes.get(code, ())[:5], detail=inventory.details.get(code, ""))
        for code, count in inventory.counts.items()
    ]
    failures: dict[str, list[str]] = {}
    for group in groups:
        for path, sample in sorted(group.samples.items()):
            if sample.error and sample.error not in ("no_pixels", "empty", *ARRAY_ERRORS):
                failures.setdefault(sample.error, []).append(path)
    notes += [
        Note(code=f"sample_{code}", count=len(paths), examples=tuple(paths[:5]))
        for code, paths in sorted(failures.items())
    ]
    if late:
        detail = f"stopped after {limits.seconds:g} s; what is missing was not looked at"
        notes.append(Note(code="time", count=1, detail=detail))
    return tuple(notes)
