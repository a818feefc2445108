"""Deliverable check: a delivered folder must be complete, self-contained and free of patient data."""

from __future__ import annotations

import io
import json
import pickletools
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.isolation import untrusted
from m3b.isolation.untrusted import read_bytes
from m3b.models import hidden_data
from m3b.models.frozen_copy import MAX_BYTES, MAX_FILES
from m3b.models.predict_process import read_classes

MAX_CONTENT_BYTES = 32 * 2**20
"""Maximum size of a file whose content is searched; callers refuse larger ones before."""
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
    """Return what is wrong with the content of a file that is not safetensors; empty if nothing is.

    Args:
        name: the file's name in the message, which begins with it.

    Raises:
        OSError: the file cannot be read, or has more than `MAX_CONTENT_BYTES` bytes.
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
        vocabulary_problem = hidden_data.find_data_in_vocabulary(content)
        return f"{name} {vocabulary_problem}" if vocabulary_problem else ""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f"{name} is neither text nor safetensors; {_REMEDIES['file']}"
    listing = _find_case_literals(text) if file.suffix == ".py" else find_case_listing(text)
    problem = listing or hidden_data.find_data_in_text(text)
    return f"{name} {problem}" if problem else ""


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
    """Return whether a short magic number is reliable: a text may begin with the same two letters."""
    return kind not in ("an archive", "a program") or any(byte < 9 or byte > 126 for byte in head)


def is_pickle(content: bytes) -> bool:
    """Return whether these bytes are one whole pickle of any protocol; nothing of it is executed."""
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
    except (ValueError, IndexError, KeyError, OverflowError, struct.error):  # text, not a pickle
        return False
    return False


def _has_pickle(content: bytes) -> bool:
    """Return whether an archive contains a pickle, as old PyTorch files do; its file list is plain text at the end."""
    return content.startswith(b"PK") and b".pkl" in content[-(2**20) :]


# --- tables of cases -----------------------------------------------------------------------------------------------


def find_case_listing(text: str) -> str:
    """Return which part of a text lists cases one by one, as the end of a sentence; empty if none does."""
    return _find_case_table(text) or _find_case_objects(_parse_json_values(text))


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


def _find_case_literals(code: str) -> str:
    """Return which literal of Python code lists cases one by one."""
    literals = hidden_data.list_literals(code)
    texts = (_find_case_table(literal) for literal in literals if isinstance(literal, str))
    return next(filter(None, texts), "") or _find_case_objects(literals)


def _find_case_objects(values: Sequence[Any]) -> str:
    stack = list(values)
    n_visited = 0
    while stack and n_visited < _MAX_JSON_NODES:
        value = stack.pop()
        n_visited += 1
        if not isinstance(value, dict | list | tuple):
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
    """Return the JSON values of a text: one, or one a line."""
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


MAX_SEARCHED_BYTES = 32 * 2**20
"""Maximum bytes that are searched of one text file, or of one tensor."""
MAX_HEADER_BYTES = 100_000_000
"""Maximum size of the header of a safetensors file."""
MIN_ALPHANUMERIC_CHARS, MIN_DIGIT_CHARS = 4, 7
"""Minimum length of an identifier to search for: of letters and digits (or several words), and of digits alone.

A shorter one, such as 12, or a plain word, such as left, occurs in any configuration without identifying anybody.
"""
_TOKEN = re.compile(r"[^\W_](?:[\w.\-]*[^\W_])?")
_TOKEN_PARTS = re.compile(r"[^\W_]+")


def find_patient_identifiers(folder: Path, patients: Iterable[str]) -> list[str]:
    """Return which files of a folder contain a patient's identifier, one sentence a file.

    The identifier itself is not repeated.

    Searched are names of files and folders, texts, and the names and notes in safetensors files.

    Args:
        patients: as in the index.
    """
    identifiers = {
        identifier for identifier in (patient.strip().casefold() for patient in patients) if _is_distinctive(identifier)
    }
    if not identifiers:
        return []
    problems = []
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if _has_identifier(name, identifiers):
            problems.append("the name of a file holds a patient's identifier; deliver no names of cases")
        elif (
            file.is_file()
            and not file.is_symlink()
            and any(_has_identifier(text, identifiers) for text in _searchable_texts(file))
        ):
            problems.append(f"{name} holds a patient's identifier; no identifier may be delivered")
    return problems


def _is_distinctive(patient: str) -> bool:
    if patient.isdigit():
        return len(patient) >= MIN_DIGIT_CHARS
    return len(patient) >= MIN_ALPHANUMERIC_CHARS and not patient.isalpha()


def _has_identifier(text: str, identifiers: set[str]) -> bool:
    """Return whether a text contains one of `identifiers` as a word, or between the separators of a longer one."""
    for match in _TOKEN.finditer(text.casefold()):
        token = match.group()
        if token in identifiers or any(part in identifiers for part in _TOKEN_PARTS.findall(token)):
            return True
    multiword = [identifier for identifier in identifiers if not _TOKEN.fullmatch(identifier)]
    return any(identifier in text.casefold() for identifier in multiword)


def _searchable_texts(file: Path) -> Iterator[str]:
    if file.suffix.lower() == ".safetensors":
        header, start = _read_header(file)
        if header is None:
            return
        yield json.dumps(header, ensure_ascii=False)
        if _tensor_data_end(header) >= 0:
            for values in hidden_data.read_whole_numbers(file, header, start):
                yield values[:MAX_SEARCHED_BYTES].replace(b"\0", b"").decode("latin-1")
    elif file.stat().st_size <= MAX_SEARCHED_BYTES:
        yield untrusted.read_text(file.parent, file.name, MAX_SEARCHED_BYTES)


REQUIRED_FILES = ("predict.py", "config.json", "README.md", "requirements.txt")

_M3B_FILES = {"README.md", "metrics.json", "provenance.json"}
"""Files that m3b writes from the user's own words; a path in the request may stay in them."""

_PICKLE_SUFFIXES = {".pkl", ".pickle", ".pck", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".dill"}
_IMAGE_SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".dcm", ".dicom", ".ima", ".nii", ".nii.gz",
    ".nrrd", ".nhdr", ".mha", ".mhd", ".npz", ".h5", ".hdf5",
    ".mp4", ".avi", ".mov", ".mpeg", ".mpg", ".mkv", ".webm", ".wmv", ".m4v",
)  # fmt: skip
_TEXT_SUFFIXES = {".json", ".py", ".md", ".txt", ".csv", ".yaml", ".yml", ".toml", ".sh"}
_LOCAL_PATH = re.compile(
    r"(?<![\w.:/])/(?:home|root|Users|mnt|media|srv|tmp|scratch|data|private|var)/[\w.\-]+[^\s\"')]*"
)
_IMAGE_SUFFIX_PATTERN = re.compile(r"(?<=\w)\.(?:png|jpe?g|tiff?|dcm|nii(?:\.gz)?|nrrd|mha|mhd)\b", re.IGNORECASE)
_ARCHIVE_ITEM_PATTERN = re.compile(r"(?<=\w)#[\w/]{0,200}\[\d{1,12}\]")
_MAX_PATH_CHARS = 160
"""Number of characters before a suffix that are searched: a search from the start would take quadratic time."""
_M3B_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+m3b\b", re.MULTILINE)


def check_deliverable(folder: Path) -> list[str]:
    """Return what is wrong with a delivered folder; empty if nothing is. Nothing in it is executed.

    It checks: the required files; at least one sound safetensors file; classes in config.json; links, hidden files; by
    content, whatever the name: pickles, images, arrays, archives, programs, tables of cases, files that are neither
    text nor weights; paths of this machine or of training images, imports of m3b, size.
    """
    if not folder.is_dir():
        return [f"there is no folder {folder.name}"]
    problems = [f"{name} is missing" for name in REQUIRED_FILES if not (folder / name).is_file()]
    if not any(folder.rglob("*.safetensors")):
        problems.append("no weights: at least one *.safetensors file is needed (not a pickle such as .pt)")
    if (folder / "config.json").is_file():
        try:
            read_classes(folder)
        except ModelError as error:
            problems.append(str(error).replace(str(folder) + "/", ""))
    files = sorted(folder.rglob("*"))
    problems.extend(problem for file in files for problem in _file_problems(file, folder))
    for module in hidden_data.list_shadowing_modules(folder):
        problems.append(f"{module} would be imported instead of the library of that name; rename it")
    regular_files = [file for file in files if file.is_file() and not file.is_symlink()]
    if len(regular_files) > MAX_FILES:
        problems.append(f"{len(regular_files)} files, more than {MAX_FILES}; deliver only what predict.py needs")
    size = sum(file.stat().st_size for file in regular_files)
    if size > MAX_BYTES:
        problems.append(
            f"{size / 2**30:.1f} GiB, more than {MAX_BYTES / 2**30:.0f} GiB; deliver fewer or smaller weights"
        )
    return problems


def _file_problems(file: Path, folder: Path) -> Iterator[str]:
    name = file.relative_to(folder).as_posix()
    if file.is_symlink():
        if not file.resolve().is_relative_to(folder.resolve()):
            yield f"{name} is a link out of the folder; copy the file instead"
        return
    if file.is_dir():
        return
    if not file.is_file():
        yield f"{name} is neither a file nor a folder; remove it"
        return
    suffix = file.suffix.lower()
    if suffix in _PICKLE_SUFFIXES:
        yield f"{name} is a pickle, which executes code when loaded; save weights as safetensors"
    elif file.name.lower().endswith(_IMAGE_SUFFIXES):
        yield f"{name} looks like image data; no image may be delivered"
    elif suffix == ".safetensors":
        yield from _weights_problems(file, name)
    elif suffix == ".pyc":
        return  # never delivered
    elif file.stat().st_size > MAX_CONTENT_BYTES:
        yield f"{name} has more than {MAX_CONTENT_BYTES:,} bytes; deliver weights as safetensors and short texts only"
    elif content_problem := find_content_problem(file, name):
        yield content_problem
    elif suffix in _TEXT_SUFFIXES:
        yield from _text_problems(file, name)


def _weights_problems(file: Path, name: str) -> Iterator[str]:
    """Yield problems of a safetensors file."""
    header, start = _read_header(file)
    if header is None:
        yield f"{name} is no safetensors file; write it with safetensors.torch.save_file"
    elif not set(header) - {"__metadata__"}:
        yield f"{name} holds no tensor"
    elif start + _tensor_data_end(header) != file.stat().st_size:
        yield f"{name} has bytes that belong to no tensor; write it with safetensors.torch.save_file"
    else:
        yield from (f"{name} {problem}" for problem in hidden_data.find_data_in_weights(file, header, start))


def _read_header(file: Path) -> tuple[dict[str, Any] | None, int]:
    """Return the header of a safetensors file and where its data begins: 8 bytes of length, little-endian, then so much JSON."""
    with untrusted.open_file(file.parent, file.name) as stream:
        length = int.from_bytes(stream.read(8), "little")
        is_plausible = 2 <= length <= min(file.stat().st_size - 8, MAX_HEADER_BYTES)
        try:
            header = json.loads(stream.read(length)) if is_plausible else None
        except (ValueError, RecursionError):
            header = None
    return (header if isinstance(header, dict) else None), 8 + length


def _tensor_data_end(header: dict[str, Any]) -> int:
    """Return the end of the last tensor, in bytes after the header; -1 if tensors do not follow one another."""
    end = 0
    try:
        tensors = [tensor for key, tensor in header.items() if key != "__metadata__"]
        for begin, stop in sorted((int(start), int(stop)) for start, stop in (t["data_offsets"] for t in tensors)):
            if begin != end or stop < begin:
                return -1
            end = stop
        return end if all(isinstance(tensor["dtype"], str) for tensor in tensors) else -1
    except (KeyError, TypeError, ValueError):
        return -1


def _text_problems(file: Path, name: str) -> Iterator[str]:
    text = untrusted.read_text(file.parent, file.name, MAX_CONTENT_BYTES)
    if file.suffix == ".py" and _M3B_IMPORT.search(text):
        yield f"{name} imports m3b; the model must run without it"
    local_path = None if name in _M3B_FILES else _LOCAL_PATH.search(text)
    if local_path:
        yield f"{name} names a path of this machine ({local_path.group()[:80]}); load relative to predict.py's folder"
    if name not in _M3B_FILES and file.suffix in (".json", ".csv", ".txt", ".yaml", ".yml"):
        case_path = _find_case_path(text)
        if case_path:
            yield f"{name} names a case of the data ({case_path[-80:]}); the names of cases may not be delivered"


def _find_case_path(text: str) -> str:
    """Return the first path of an image, or of an archive item, in a text."""
    for pattern, required_context in ((_IMAGE_SUFFIX_PATTERN, r"[\w.\-]/"), (_ARCHIVE_ITEM_PATTERN, r"\.\w+$")):
        for match in pattern.finditer(text):
            tail = _path_before(text, match.start())
            if re.search(required_context, tail):
                return tail.strip() + match.group()
    return ""


def _path_before(text: str, end: int) -> str:
    window = text[max(0, end - _MAX_PATH_CHARS) : end]
    start = len(window)
    while start and (window[start - 1].isalnum() or window[start - 1] in "_.-/ "):
        start -= 1
    return window[start:]
