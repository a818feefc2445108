"""Readings and Croissant (MLCommons' format for data sets): a reading written as one, and one read as a person's word.

Needs `m3b[croissant]`. Nothing is ever fetched: a file that names a remote context is refused before it is parsed, and
only files that lie in the data folder count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.cases import build_cases
from m3b.data.spec.execute import slots_needed
from m3b.data.spec.folder import DataFolder
from m3b.data.spec.given import Given, spec_of
from m3b.data.spec.model import FromTable, IndexSpec
from m3b.data.spec.patterns import fields
from m3b.data.spec.readers import Readers
from m3b.data.spec.value_sources import ROW
from m3b.data.survey.sides import side_of
from m3b.errors import DataError
from m3b.isolation.untrusted import parse_data_json

SPEC = "m3b:indexSpec"
"""Where the whole reading stands in a file that m3b wrote."""
MAX_BYTES = 16 * 2**20
PATIENT, LABEL = ("patient", "subject", "person"), ("label", "class", "diagnosis", "category", "target", "finding")
MISSING = "Croissant files need mlcroissant: pip install 'm3b[croissant]'."


def library() -> Any:
    """The module `mlcroissant`.

    Raises:
        DataError: it is not installed.
    """
    try:
        import mlcroissant
    except ImportError as error:
        raise DataError(MISSING) from error
    return mlcroissant


def is_croissant(raw: object) -> bool:
    """Whether a JSON document calls itself one."""
    return isinstance(raw, Mapping) and "mlcommons.org/croissant" in json.dumps(raw.get("conformsTo", ""))


def load(file: Path) -> dict[str, Any]:
    """The JSON of a Croissant file, parsed by the library.

    Raises:
        DataError: it is none, is too large, names a remote context, or the library objects to it.
    """
    if file.stat().st_size > MAX_BYTES:
        raise DataError(f"{file.name} is larger than {MAX_BYTES // 2**20} MiB.")
    try:
        raw = parse_data_json(file.read_bytes())
    except ValueError as error:
        raise DataError(f"{file.name} is no JSON: {error}.") from error
    if not is_croissant(raw):
        raise DataError(f"{file.name} does not say that it conforms to Croissant.")
    if not isinstance(raw.get("@context"), dict) or any(_remote(value) for value in _contexts(raw)):
        raise DataError(
            f"{file.name}: its @context lies elsewhere; m3b fetches nothing. Write the context into the file."
        )
    mlc = library()
    try:
        attempt(lambda: mlc.Metadata.from_json(ctx=mlc.Context(), json_=dict(raw)))
    except Unreadable as error:
        raise DataError(f"{file.name} is no valid Croissant file: {str(error)[:300]}") from error
    found: dict[str, Any] = raw
    return found


def _contexts(value: object) -> list[Any]:
    """Every `@context` and `@import` within."""
    if isinstance(value, Mapping):
        own = [value[key] for key in ("@context", "@import") if key in value]
        return own + [one for part in value.values() for one in _contexts(part)]
    return [one for part in value for one in _contexts(part)] if isinstance(value, list) else []


def _remote(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and any(map(_remote, value)))


def given_by(raw: Mapping[str, Any]) -> Given:
    """What a Croissant file says of labels, images, patients and split.

    Raises:
        DataError: it names no column of a table for the labels.
    """
    if SPEC in raw:
        return Given(index=_own(raw[SPEC]))
    tables = {one.get("@id"): str(one.get("contentUrl", "")) for one in _list(raw.get("distribution"))
              if one.get("@type") in ("cr:FileObject", "sc:FileObject")}  # fmt: skip
    columns: dict[str, tuple[str, str]] = {}
    for record in _list(raw.get("recordSet")):
        for field in _list(record.get("field")):
            source = field.get("source") or {}
            column = (source.get("extract") or {}).get("column")
            table = tables.get((source.get("fileObject") or {}).get("@id"))
            if column and table:
                role = "image" if field.get("references") else _role(str(field.get("name", "")))
                columns.setdefault(role, (table, str(column)))
    if "label" not in columns:
        raise DataError("no field of its record sets takes labels from a table")
    table, label = columns["label"]
    beside = {role: column for role, (where, column) in columns.items() if where == table}
    return Given(labels=table, label_column=label, image_column=beside.get("image", ""),
                 patient_column=beside.get("patient", ""), split=beside.get("split", ""))  # fmt: skip


def _own(text: object) -> IndexSpec:
    """The reading that m3b wrote down as one text: nested, it would be taken for linked data."""
    try:
        return spec_of(parse_data_json(str(text)))
    except ValueError as error:
        raise DataError(f"{SPEC} holds no JSON: {error}") from error


def _list(value: object) -> list[Any]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Mapping)]


def _role(name: str) -> str:
    low = name.casefold()
    if any(word in low for word in PATIENT):
        return "patient"
    if low == "split" or side_of(name):
        return "split"
    return "label" if any(word in low for word in LABEL) else low


def written(spec: IndexSpec, root: Path, name: str) -> dict[str, Any]:
    """A reading as a Croissant file: its images as a set of files, its tables, and a record set of the cases.

    Raises:
        DataError: the spec does not fit the folder, or the library is missing.
    """
    mlc, readers = library(), Readers(root)
    folder = DataFolder(root, readers.files(), readers.lookup)
    cases = build_cases(folder, spec.images, Accounting(), slots_needed(spec))
    paths = sorted({path for case in cases for path in case.files})
    globs = sorted({f"{path.rpartition('/')[0]}/*{Path(path).suffix}".lstrip("/") for path in paths})
    types = sorted({f"image/{Path(path).suffix.lstrip('.').lower() or 'octet-stream'}" for path in paths})
    files = [mlc.FileSet(id="images", name="images", includes=globs, encoding_formats=types)]
    columns = _columns(spec)
    tables = sorted({source.file for source in columns.values()} & set(folder.files))
    files += [
        mlc.FileObject(id=table, name=table, content_url=table, encoding_formats=["text/csv"],
                       sha256=hashlib.sha256((root / table).read_bytes()).hexdigest()) for table in tables
    ]  # fmt: skip
    sets = [mlc.RecordSet(id="images_in_order", name="images_in_order", fields=[
        _field(mlc, "images_in_order", "image", mlc.Source(file_set="images", extract=mlc.Extract(file_property="content")),
               mlc.DataType.IMAGE_OBJECT),
        _field(mlc, "images_in_order", "file", mlc.Source(file_set="images", extract=mlc.Extract(file_property="filename"))),
    ])]  # fmt: skip
    for number, table in enumerate(tables):
        mine = {role: source for role, source in columns.items() if source.file == table}
        sets.append(_cases(mlc, f"cases{number or ''}", table, mine))
    made = mlc.Metadata(name=name, description=f"A reading of the folder {name} for {spec.task}, by m3b.", license=["unknown"],
                        url="https://localhost/", distribution=files, record_sets=sets)  # fmt: skip
    found: dict[str, Any] = json.loads(json.dumps(made.to_json(), default=str))
    return {**found, SPEC: spec.model_dump_json(exclude_defaults=True)}


def _columns(spec: IndexSpec) -> dict[str, FromTable]:
    """Role -> column of a table whose rows name files; Croissant has no word for rows or arrays that speak of items by their place."""
    values: dict[str, Any] = {"patient": spec.patient, "split": spec.split.source}
    labels = spec.labels.sources if spec.labels else (spec.states.source,) if spec.states else ()
    values |= {"label" if len(labels) == 1 else f"label_{place}": one for place, one in enumerate(labels)}
    if spec.report is not None:
        values |= {"findings": spec.report.findings, "impression": spec.report.impression}
    tables = {role: one for role, one in values.items() if isinstance(one, FromTable)}
    return {role: one for role, one in tables.items() if ROW not in fields(one.row)}


def _cases(mlc: Any, name: str, table: str, columns: Mapping[str, FromTable]) -> Any:
    """A record set of a table's rows, joined with the images by the column that names them."""
    keys: Sequence[str] = fields(next(iter(columns.values())).row)
    made = [
        _field(mlc, name, "image_file", mlc.Source(file_object=table, extract=mlc.Extract(column=key)),
               references=mlc.Source(field="images_in_order/file")) for key in keys[:1]
    ]  # fmt: skip
    made += [_field(mlc, name, role, mlc.Source(file_object=table, extract=mlc.Extract(column=one.column)))
             for role, one in columns.items() if "{" not in one.column]  # fmt: skip
    return mlc.RecordSet(id=name, name=name, fields=made)


def _field(mlc: Any, owner: str, name: str, source: Any, kind: Any = None, references: Any = None) -> Any:
    more = {"references": references} if references is not None else {}
    return mlc.Field(id=f"{owner}/{name}", name=name, data_types=kind or mlc.DataType.TEXT, source=source, **more)
