"""Manifests and Croissant (MLCommons' format for data sets): a manifest written as one, and one read as overrides.

Needs `m3b[croissant]`. Nothing is ever fetched: a file that names a remote context is refused before it is parsed, and
only files in the data folder count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.dataset.formats.base import naming_file
from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.model import Manifest, Task, ValueSource
from m3b.dataset.manifest.overrides import Overrides, parse_manifest
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.manifest.resolve import resolve
from m3b.dataset.proposals.decide import decide
from m3b.dataset.proposals.outcome import Evidence, ManifestProposal, Outcome
from m3b.dataset.proposals.overriding import check_names
from m3b.dataset.proposals.request import Request
from m3b.dataset.proposals.roles import roles_of
from m3b.dataset.survey.facts import Survey
from m3b.dataset.survey.words import side_of
from m3b.errors import DataError
from m3b.isolation.untrusted import parse_data_json

MANIFEST_KEY = "m3b:manifest"
"""Where the whole manifest stands in a file that m3b wrote."""
MAX_BYTES = 16 * 2**20
MAX_FILES = 50
"""JSON files at the top of a folder that are looked into."""
SCORE = 0.8
"""Score of a manifest by the makers of the data, if it fits the folder."""
_COLUMN = re.compile(r"\{([^{}.()]+)\.([^{}()]+)\}")


def load_library() -> Any:
    """Return the module `mlcroissant`.

    Raises:
        DataError: it is not installed.
    """
    try:
        import mlcroissant
    except ImportError as error:
        raise DataError("Croissant files need mlcroissant: pip install 'm3b[croissant]'.") from error
    return mlcroissant


def load_croissant(file: Path) -> dict[str, Any]:
    """Return the JSON of a Croissant file, parsed by the library.

    Raises:
        DataError: it is none, is too large, names a remote context, or the library objects to it.
    """
    if file.stat().st_size > MAX_BYTES:
        raise DataError(f"{file.name} is larger than {MAX_BYTES // 2**20} MiB.")
    try:
        document = parse_data_json(file.read_bytes())
    except ValueError as error:
        raise DataError(f"{file.name} is no JSON: {error}.") from error
    if not isinstance(document, dict) or "mlcommons.org/croissant" not in json.dumps(document.get("conformsTo", "")):
        raise DataError(f"{file.name} does not say that it conforms to Croissant.")
    if not isinstance(document.get("@context"), dict) or any(map(_is_remote, _list_contexts(document))):
        raise DataError(
            f"{file.name}: its @context is elsewhere; m3b fetches nothing. Write the context into the file."
        )
    library = load_library()
    with naming_file(file.name):  # the library raises errors of many kinds for what a file can hold
        library.Metadata.from_json(ctx=library.Context(), json_=dict(document))
    return document


def _list_contexts(value: object) -> list[Any]:
    """Every `@context` and `@import` within."""
    if isinstance(value, Mapping):
        contexts = [value[key] for key in ("@context", "@import") if key in value]
        return contexts + [context for part in value.values() for context in _list_contexts(part)]
    return [context for part in value for context in _list_contexts(part)] if isinstance(value, list) else []


def _is_remote(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and any(map(_is_remote, value)))


def parse_croissant(document: Mapping[str, Any]) -> Overrides:
    """Return what a Croissant file says of labels, images, patients and split.

    Raises:
        DataError: it names no column of a table for the labels.
    """
    if MANIFEST_KEY in document:
        try:  # one text: nested, it would be taken for linked data
            return Overrides(manifest=parse_manifest(parse_data_json(str(document[MANIFEST_KEY]))))
        except ValueError as error:
            raise DataError(f"{MANIFEST_KEY} holds no JSON: {error}") from error
    tables = {
        item.get("@id"): str(item.get("contentUrl", ""))
        for item in _list_objects(document.get("distribution"))
        if item.get("@type") in ("cr:FileObject", "sc:FileObject")
    }
    columns: dict[str, tuple[str, str]] = {}
    for record_set in _list_objects(document.get("recordSet")):
        for field in _list_objects(record_set.get("field")):
            source = field.get("source") or {}
            column = (source.get("extract") or {}).get("column")
            table = tables.get((source.get("fileObject") or {}).get("@id"))
            if column and table:
                role = "image" if field.get("references") else _find_role(str(field.get("name", "")))
                columns.setdefault(role, (table, str(column)))
    if "label" not in columns:
        raise DataError("no field of its record sets takes labels from a table")
    labels, label_column = columns["label"]
    in_table = {role: column for role, (table, column) in columns.items() if table == labels}
    return Overrides(
        labels=labels,
        label_column=label_column,
        image_column=in_table.get("image", ""),
        patient_column=in_table.get("patient", ""),
        split=in_table.get("split", ""),
    )


def _list_objects(value: object) -> list[Any]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Mapping)]


def _find_role(name: str) -> str:
    roles = roles_of(name)
    if side_of(name):
        return "split"
    return next((role for role in ("patient", "split", "label") if role in roles), name.casefold())


def decide_by_croissant(
    survey: Survey, inventory: Inventory, request: Request, *, readers: FolderReaders, tasks: Sequence[Task] = ()
) -> Outcome | None:
    """Return the decision by the first Croissant file at the top of the folder that fits it and the tasks; None if none does."""
    files = [path for path in inventory.paths if "/" not in path and path.lower().endswith(".json")]
    for path in files[:MAX_FILES]:
        try:
            overrides = parse_croissant(load_croissant(inventory.root / path))
            check_names(overrides, inventory, readers)
        except (DataError, OSError):
            continue
        evidence = Evidence(code="croissant", message=f"as the Croissant file {path} says")
        if overrides.manifest is not None:
            resolved = resolve(overrides.manifest, inventory, readers=readers)
            if (tasks and overrides.manifest.task not in tasks) or resolved.errors or not len(resolved.frame):
                continue
            proposal = ManifestProposal(
                manifest=overrides.manifest,
                title=f"the manifest in {path}",
                score=SCORE,
                evidence=(evidence,),
                cases=len(resolved.frame),
            )
            return Outcome(kind="proposed", task=overrides.manifest.task, proposals=(proposal,))
        outcome = decide(survey, inventory, replace(request, overrides=overrides), readers=readers, tasks=tasks)
        if outcome.kind == "refuse":
            continue
        best, *other_proposals = outcome.proposals
        updated = {"score": max(best.score, SCORE), "evidence": (evidence, *best.evidence)}
        return outcome.model_copy(update={"proposals": (best.model_copy(update=updated), *other_proposals)})
    return None


def export_croissant(manifest: Manifest, inventory: Inventory, name: str) -> dict[str, Any]:
    """Return a manifest as a Croissant file: its images as a set of files, its tables, and a record set of the cases.

    Raises:
        DataError: the manifest does not fit the folder, or the library is missing.
    """
    library = load_library()
    resolved = resolve(manifest, inventory)
    if resolved.errors:
        raise DataError(" ".join(problem.message for problem in resolved.errors[:5]))
    paths = sorted({path for paths in resolved.frame["paths"].to_list() for path in paths})
    globs = sorted({f"{path.rpartition('/')[0]}/*{Path(path).suffix}".lstrip("/") for path in paths})
    types = sorted({f"image/{Path(path).suffix.lstrip('.').lower() or 'octet-stream'}" for path in paths})
    distribution = [library.FileSet(id="images", name="images", includes=globs, encoding_formats=types)]
    columns = _list_columns(manifest, set(inventory.paths))
    tables = sorted({table for table, _, _ in columns.values()})
    distribution += [
        library.FileObject(
            id=table,
            name=table,
            content_url=table,
            encoding_formats=["text/csv"],
            sha256=hashlib.sha256((inventory.root / table).read_bytes()).hexdigest(),
        )
        for table in tables
    ]
    content = library.Source(file_set="images", extract=library.Extract(file_property="content"))
    file_name = library.Source(file_set="images", extract=library.Extract(file_property="filename"))
    images = [
        _make_field(library, "images_in_order", "image", content, library.DataType.IMAGE_OBJECT),
        _make_field(library, "images_in_order", "file", file_name),
    ]
    record_sets = [library.RecordSet(id="images_in_order", name="images_in_order", fields=images)]
    for number, table in enumerate(tables):
        own_columns = {role: (key, column) for role, (path, key, column) in columns.items() if path == table}
        record_sets.append(_make_record_set(library, f"cases{number or ''}", table, own_columns))
    metadata = library.Metadata(
        name=name,
        description=f"A manifest of the folder {name} for {manifest.task}, by m3b.",
        license=["unknown"],
        url="https://localhost/",
        distribution=distribution,
        record_sets=record_sets,
    )
    document: dict[str, Any] = json.loads(json.dumps(metadata.to_json(), default=str))
    return {**document, MANIFEST_KEY: manifest.model_dump_json(exclude_defaults=True)}


def _list_columns(manifest: Manifest, paths: set[str]) -> dict[str, tuple[str, str, str]]:
    """Role -> (file, key column, column) of tables whose rows name files by one column; Croissant has no word for other joins."""
    values: dict[str, ValueSource | None] = {"patient": manifest.patient, "split": manifest.split.value}
    if manifest.labels is not None:
        values |= {"label": manifest.labels.value} if manifest.labels.value else {
            f"label_{place}": value for place, value in enumerate(manifest.labels.columns.values())
        }  # fmt: skip
    if manifest.states is not None:
        values.setdefault("label", manifest.states.value)
    if manifest.report is not None:
        values |= {"findings": manifest.report.findings, "impression": manifest.report.impression}
    columns = {}
    for role, value in values.items():
        match = _COLUMN.fullmatch(value.value) if value is not None else None
        table = manifest.tables.get(match[1]) if match else None
        key = re.fullmatch(r"\{([^{}()]+)\}", table.keys[0]) if table is not None else None
        if match and table is not None and key and table.patterns[0] in paths:
            columns[role] = (table.patterns[0], key[1], match[2])
    return columns


def _make_record_set(library: Any, name: str, table: str, columns: Mapping[str, tuple[str, str]]) -> Any:
    """A record set of a table's rows, joined with the images by the column that names them."""
    key = next(iter(columns.values()))[0]
    source = library.Source(file_object=table, extract=library.Extract(column=key))
    fields = [_make_field(library, name, "image_file", source, references=library.Source(field="images_in_order/file"))]
    for role, (_, column) in columns.items():
        source = library.Source(file_object=table, extract=library.Extract(column=column))
        fields.append(_make_field(library, name, role, source))
    return library.RecordSet(id=name, name=name, fields=fields)


def _make_field(library: Any, owner: str, name: str, source: Any, kind: Any = None, references: Any = None) -> Any:
    options = {"references": references} if references is not None else {}
    return library.Field(
        id=f"{owner}/{name}", name=name, data_types=kind or library.DataType.TEXT, source=source, **options
    )
