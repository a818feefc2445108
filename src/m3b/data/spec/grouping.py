"""In words, what a spec keeps together on one side of the split: patients, or images that are of one thing."""

from __future__ import annotations

from m3b.data.spec.model import FromList, FromMember, FromPath, FromTable, FromTag, IndexSpec, Value


def grouped_by(spec: IndexSpec) -> str:
    """Such as `the column patient of labels.csv` or `the part {id} of {id}_{side:word}.png`; empty where nothing is said."""
    values = [*([spec.patient] if spec.patient is not None else []), *spec.together]
    return ", and ".join(dict.fromkeys(_told(value, spec.images.files.pattern) for value in values))


def _told(value: Value, pattern: str) -> str:
    match value:
        case FromTable(column=column, file=file):
            return f"the column {column} of {file}"
        case FromTag(keyword=keyword):
            return f"the DICOM header field {keyword}"
        case FromMember(key=key):
            return f"the array {key} of the file"
        case FromList():
            return "lists of files"
        case FromPath(value=text, find=find):
            return f"the part {text} of {pattern}" + (f" ({find})" if find else "")
