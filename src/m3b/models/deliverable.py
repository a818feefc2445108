"""Is a delivered folder complete, self-contained and free of what must not leave the machine?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from m3b.errors import ModelError

from .freezing import MAX_BYTES, MAX_FILES
from .running import read_classes

REQUIRED = ("predict.py", "config.json", "README.md", "requirements.txt")

_PAPERS = {"README.md", "metrics.json", "provenance.json"}
"""Written by m3b from what the user said; a path in the request is the user's own word."""

_PICKLES = {".pkl", ".pickle", ".pck", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".dill"}
_IMAGES = (
    ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".dcm", ".dicom", ".ima", ".nii", ".nii.gz",
    ".nrrd", ".nhdr", ".mha", ".mhd", ".npz", ".h5", ".hdf5",
)  # fmt: skip
_MAGIC = {b"\x89PNG": "PNG image", b"\xff\xd8\xff": "JPEG image", b"II*\x00": "TIFF image", b"MM\x00*": "TIFF image"}
_TEXT = {".json", ".py", ".md", ".txt", ".csv", ".yaml", ".yml", ".toml", ".sh"}
_OWN_PATH = re.compile(
    r"(?<![\w.:/])/(?:home|root|Users|mnt|media|srv|tmp|scratch|data|private|var)/[\w.\-]+[^\s\"')]*"
)
_IMAGE_PATH = re.compile(
    r"[\w.\-]+/[\w.\-/ ]*\w\.(?:png|jpe?g|tiff?|dcm|nii(?:\.gz)?|nrrd|mha|mhd)\b|[\w.\-/]+\.\w+#[\w/]*\[\d+\]",
    re.IGNORECASE,
)
_USES_M3B = re.compile(r"^\s*(?:from|import)\s+m3b\b", re.MULTILINE)


def check_deliverable(folder: Path) -> list[str]:
    """What is wrong with a delivered folder; empty where nothing is. Nothing in it is executed.

    Checked: the required files; at least one sound safetensors file; classes in config.json; links, pickles, images
    and arrays, paths of this machine or of training images, imports of m3b, size.
    """
    if not folder.is_dir():
        return [f"there is no folder {folder.name}"]
    problems = [f"{name} is missing" for name in REQUIRED if not (folder / name).is_file()]
    if not any(folder.rglob("*.safetensors")):
        problems.append("no weights: at least one *.safetensors file is needed (not a pickle such as .pt)")
    if (folder / "config.json").is_file():
        try:
            read_classes(folder)
        except ModelError as error:
            problems.append(str(error).replace(str(folder) + "/", ""))
    files = sorted(folder.rglob("*"))
    problems.extend(problem for file in files for problem in _file_problems(file, folder))
    plain = [file for file in files if file.is_file() and not file.is_symlink()]
    if len(plain) > MAX_FILES:
        problems.append(f"{len(plain)} files, more than {MAX_FILES}; deliver only what predict.py needs")
    size = sum(file.stat().st_size for file in plain)
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
    if suffix in _PICKLES:
        yield f"{name} is a pickle, which executes code when loaded; save weights as safetensors"
    elif file.name.lower().endswith(_IMAGES):
        yield f"{name} looks like image data; no image may be delivered"
    elif suffix == ".safetensors":
        yield from _weights_problems(file, name)
    elif suffix in _TEXT:
        yield from _text_problems(file, name)
    elif suffix != ".pyc":
        yield from _content_problems(file, name)


def _weights_problems(file: Path, name: str) -> Iterator[str]:
    """The layout of safetensors: 8 bytes little-endian header length, that many bytes of JSON, the data."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        sound = 2 <= length <= min(file.stat().st_size - 8, 100_000_000)
        try:
            header = json.loads(stream.read(length)) if sound else None
        except ValueError:
            header = None
    if not isinstance(header, dict):
        yield f"{name} is no safetensors file; write it with safetensors.torch.save_file"
    elif not set(header) - {"__metadata__"}:
        yield f"{name} holds no tensor"


def _content_problems(file: Path, name: str) -> Iterator[str]:
    with file.open("rb") as stream:
        head = stream.read(132)
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")
    if head[128:] == b"DICM":
        kind = "DICOM image"
    if kind:
        yield f"{name} is a {kind}; no image may be delivered"
    elif head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        yield f"{name} is a pickle, which executes code when loaded; save weights as safetensors"
    elif head.startswith(b"PK\x03\x04"):
        yield f"{name} is an archive; deliver plain files"


def _text_problems(file: Path, name: str) -> Iterator[str]:
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".py" and _USES_M3B.search(text):
        yield f"{name} imports m3b; the model must run without it"
    own = None if name in _PAPERS else _OWN_PATH.search(text)
    if own:
        yield f"{name} names a path of this machine ({own.group()[:80]}); load relative to predict.py's folder"
    if name not in _PAPERS and file.suffix in (".json", ".csv", ".txt", ".yaml", ".yml"):
        image = _IMAGE_PATH.search(text)
        if image:
            yield f"{name} names a case of the data ({image.group()[:80]}); the names of cases may not be delivered"
