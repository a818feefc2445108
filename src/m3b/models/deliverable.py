"""Is a delivered folder complete, self-contained and free of what must not leave the machine?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.errors import ModelError

from . import contents
from .contents import MAX_CONTENT_BYTES
from .freezing import MAX_BYTES, MAX_FILES
from .running import read_classes

REQUIRED_FILES = ("predict.py", "config.json", "README.md", "requirements.txt")

_M3B_FILES = {"README.md", "metrics.json", "provenance.json"}
"""Written by m3b from what the user said; a path in the request is the user's own word."""

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
"""Characters before an ending that are looked at: a search from the front would take quadratic time."""
_M3B_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+m3b\b", re.MULTILINE)


def check_deliverable(folder: Path) -> list[str]:
    """What is wrong with a delivered folder; empty where nothing is. Nothing in it is executed.

    Checked: the required files; at least one sound safetensors file; classes in config.json; links, hidden files; by
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
    elif content_problem := contents.find_content_problem(file, name):
        yield content_problem
    elif suffix in _TEXT_SUFFIXES:
        yield from _text_problems(file, name)


def _weights_problems(file: Path, name: str) -> Iterator[str]:
    """The layout of safetensors: 8 bytes little-endian header length, that many bytes of JSON, the data."""
    with untrusted.open_file(file.parent, file.name) as stream:
        length = int.from_bytes(stream.read(8), "little")
        is_plausible = 2 <= length <= min(file.stat().st_size - 8, 100_000_000)
        try:
            header = json.loads(stream.read(length)) if is_plausible else None
        except (ValueError, RecursionError):
            header = None
    if not isinstance(header, dict):
        yield f"{name} is no safetensors file; write it with safetensors.torch.save_file"
    elif not set(header) - {"__metadata__"}:
        yield f"{name} holds no tensor"
    elif 8 + length + _tensor_data_end(header) != file.stat().st_size:
        yield f"{name} has bytes that belong to no tensor; write it with safetensors.torch.save_file"


def _tensor_data_end(header: dict[str, Any]) -> int:
    """Where the last tensor ends, in bytes after the header; -1 where the header does not say."""
    try:
        return max(int(tensor["data_offsets"][1]) for key, tensor in header.items() if key != "__metadata__")
    except (KeyError, TypeError, ValueError, IndexError):
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
    """The first path of an image, or of an item of an archive, that a text holds."""
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
