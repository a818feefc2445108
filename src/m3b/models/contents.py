"""What a file is by its content, whatever its name says: pickle, image, archive, program, table of cases."""

from __future__ import annotations

import io
import json
import pickletools
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.untrusted import read_bytes

MAX_CONTENT_BYTES = 32 * 2**20
"""Bytes of one file that is looked through; whoever asks refuses larger ones before."""
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"), (b"GIF8", "a GIF image"), (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 image"),
    (b"NRRD000", "an NRRD image"), (b"\x93NUMPY", "a NumPy array"), (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet table"), (b"ARROW1", "an Arrow table"), (b"SQLite format 3", "an SQLite database"),
    (b"\xd0\xcf\x11\xe0", "an Office file"), (b"%PDF", "a PDF file"),
    (b"\x1f\x8b", "an archive"), (b"BZh", "an archive"), (b"\xfd7zXZ", "an archive"), (b"7z\xbc\xaf", "an archive"),
    (b"\x28\xb5\x2f\xfd", "an archive"), (b"Rar!", "an archive"), (b"PK", "an archive"),
    (b"\x7fELF", "a program"), (b"MZ", "a program"), (b"\xca\xfe\xba\xbe", "a program"), (b"\0asm", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"), (b"\xce\xfa\xed\xfe", "a program"),
)  # fmt: skip
_REMEDIES = {
    "image": "no image may be delivered",
    "array": "arrays may be images, and object arrays execute code when loaded; put it into a safetensors file",
    "file": "nobody can tell whose data are in it; deliver text and safetensors only",
    "table": "no table of cases may be delivered",
    "database": "no table of cases may be delivered",
    "archive": "deliver plain files",
    "program": "deliver the source that predict.py needs",
}
PICKLE_MESSAGE = "is a pickle, which executes code when loaded; save weights as safetensors"

_IDENTIFYING_COLUMN = re.compile(
    r"(?:patient|subject|case|study|series|image|file|accession)[ _-]?(?:id|name|nr|no|number|uid|path)?|mrn|path|"
    r"(?:first|last|sur|given|family)[ _-]?name|birth.*|dob|born|date[ _-]?of[ _-]?birth|filename",
    re.IGNORECASE,
)
_IDENTIFYING_KEYS = frozenset(
    ("patient", "patient_id", "patientid", "subject", "subject_id", "mrn", "case_id", "image", "image_path", "image_id",
     "file", "filename", "file_name", "study_id", "series_id", "accession", "dob", "birth_date", "surname", "first_name",
     "last_name", "date_of_birth")
)  # fmt: skip
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{4}|(?:19|20)\d{6}")
_MAX_LINES = 200
_MIN_CASE_ROWS = 3
_MAX_JSON_NODES = 200_000


def find_content_problem(file: Path, name: str) -> str:
    """What is wrong with the content of a file that is no safetensors; empty where nothing is.

    Args:
        name: as it is told; the message begins with it.

    Raises:
        OSError: it cannot be read, or holds more than `MAX_CONTENT_BYTES` bytes.
    """
    content = read_bytes(file.parent, file.name, MAX_CONTENT_BYTES)
    head = content[:512]
    if is_pickle(content):
        return f"{name} {PICKLE_MESSAGE}"
    if kind := _detect_kind(head):
        if kind == "an archive" and _has_pickle(content):
            return f"{name} {PICKLE_MESSAGE}"
        return f"{name} is {kind}; {_REMEDIES[kind.split()[-1]]}"
    if name.endswith((".model", ".spm")) and head.startswith(b"\n"):
        return ""  # the vocabulary of SentencePiece, a protobuf
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f"{name} is neither text nor safetensors; {_REMEDIES['file']}"
    case_listing = "" if file.suffix == ".py" else find_case_listing(text)
    return f"{name} {case_listing}" if case_listing else ""


def _detect_kind(head: bytes) -> str:
    if head[128:132] == b"DICM":
        return "a DICOM image"
    if head[344:348] in (b"n+1\0", b"ni1\0") or head[4:8] in (b"n+2\0", b"ni2\0"):
        return "a NIfTI image"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "a WebP image"
    if head[:2] == b"BM" and b"\0" in head[:14]:
        return "a BMP image"
    if head[257:262] == b"ustar":
        return "an archive"
    if re.match(rb"\s*(?:ObjectType\s*=\s*Image|NDims\s*=)", head):
        return "a MetaImage image"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic) and _is_binary(kind, head)), "")


def _is_binary(kind: str, head: bytes) -> bool:
    """Whether a short mark means what it says: a text may begin with its two letters too."""
    return kind not in ("an archive", "a program") or any(byte < 9 or byte > 126 for byte in head)


def is_pickle(content: bytes) -> bool:
    """Whether these bytes are one whole pickle of any protocol; nothing of it is executed."""
    if content[:1] == b"\x80" and content[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return True
    if content[:1] not in (b"(", b"c", b"]", b"}", b")", b"V", b"S", b"I", b"F") or len(content) > 2**24:
        return False
    count = 0
    try:
        for opcode, _, offset in pickletools.genops(io.BytesIO(content)):
            count += 1
            if opcode.name == "STOP":
                return count > 2 and offset is not None and not content[offset + 1 :].strip()
    except (ValueError, IndexError, KeyError, OverflowError, struct.error):  # text that is no pickle
        return False
    return False


def _has_pickle(content: bytes) -> bool:
    """Whether an archive names one: PyTorch's old files do. Its list stands at its end, as plain text."""
    return content.startswith(b"PK") and b".pkl" in content[-(2**20) :]


# --- tables of cases -----------------------------------------------------------------------------------------------


def find_case_listing(text: str) -> str:
    """What in a text lists cases one by one, as the end of a sentence; empty where nothing does."""
    return _find_case_table(text) or _find_case_objects(text)


def _find_case_table(text: str) -> str:
    lines = [line for line in text[: 2**20].splitlines() if line.strip()][:_MAX_LINES]
    for delimiter in ",;\t|":
        rows = [[cell.strip().strip("\"'") for cell in line.split(delimiter)] for line in lines]
        aligned_rows = [row for row in rows if len(row) == len(rows[0])] if rows else []
        if not rows or len(rows[0]) < 2 or len(aligned_rows) < max(_MIN_CASE_ROWS + 1, len(rows) // 2):
            continue
        identifying_columns = [cell for cell in rows[0] if _IDENTIFYING_COLUMN.fullmatch(cell)]
        if identifying_columns:
            return f"is a table with a row for each case ({', '.join(identifying_columns[:3])}); {_REMEDIES['table']}"
        if any(
            sum(bool(_DATE.fullmatch(row[column])) for row in aligned_rows) >= _MIN_CASE_ROWS
            for column in range(len(rows[0]))
        ):
            return f"is a table with a date in each row; {_REMEDIES['table']}"
    return ""


def _find_case_objects(text: str) -> str:
    stack = _parse_json_values(text)
    n_visited = 0
    while stack and n_visited < _MAX_JSON_NODES:
        value = stack.pop()
        n_visited += 1
        if not isinstance(value, dict | list):
            continue
        children: Sequence[Any] = list(value.values()) if isinstance(value, Mapping) else value
        matches = [
            _IDENTIFYING_KEYS & {str(key).lower() for key in child} for child in children if isinstance(child, Mapping)
        ]
        nonempty_matches = [matched for matched in matches if matched]
        if len(nonempty_matches) >= _MIN_CASE_ROWS:
            return f"lists cases one by one ({', '.join(sorted(nonempty_matches[0])[:3])}); {_REMEDIES['table']}"
        stack.extend(children)
    return ""


def _parse_json_values(text: str) -> list[Any]:
    """The JSON values of a text: one, or one a line."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        return [list(_parse_json_lines(text))]


def _parse_json_lines(text: str) -> Iterator[Any]:
    for line in text.splitlines()[:_MAX_LINES]:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue
