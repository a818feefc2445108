"""What kind of file a name speaks of; of files without a suffix, what their first bytes say."""

from __future__ import annotations

import os
from pathlib import Path

from m3b.data.patterns import extension
from m3b.data.survey.facts import FileKind

_BY_SUFFIX: dict[str, FileKind] = {}
_SUFFIXES: dict[FileKind, str] = {
    "picture": ".png .jpg .jpeg .jpe .jfif .tif .tiff .bmp .gif .webp .pgm .ppm .ome.tif .ome.tiff .svs .jp2",
    "dicom": ".dcm .dicom .ima",
    "nifti": ".nii .nii.gz .img .hdr",
    "itk": ".nrrd .nhdr .mha .mhd",
    "array": ".npy .npz .pkl .pickle .pck .pt .pth",
    "hdf5": ".h5 .hdf5 .hdf .he5",
    "mat": ".mat",
    "video": ".mp4 .avi .mov .mpeg .mpg .mkv .webm .wmv .m4v",
    "archive": ".zip .tar .tar.gz .tgz .tar.bz2 .tar.xz .7z .rar .gz .bz2 .xz",
    "table": ".csv .tsv .tab .xlsx .xlsm",
    "json": ".json .jsonl .ndjson .geojson",
    "xml": ".xml",
    "text": ".txt .dat",
    "list": ".list .lst .ids",
    "document": ".md .rst .pdf .html .htm .docx .doc .rtf .py .ipynb .m .r .sh .yml .yaml .toml .cfg .ini .log .bib",
}
for _kind, _listed in _SUFFIXES.items():
    _BY_SUFFIX.update(dict.fromkeys(_listed.split(), _kind))
_DOCUMENTS = ("readme", "licen", "copying", "changelog", "citation", "authors", "notice", "makefile", "requirements")

IMAGES: frozenset[FileKind] = frozenset({"picture", "dicom", "nifti", "itk", "array", "hdf5", "mat", "video"})
"""What may hold images."""
TEXTS: frozenset[FileKind] = frozenset({"table", "json", "xml", "text", "list"})
"""What may hold tables, lists or annotations."""


def cut(name: str) -> tuple[str, str]:
    """Stem and suffix of a file's name; the suffix in lower case, double ones (`.nii.gz`) whole."""
    end = extension(name)
    if end and end not in _BY_SUFFIX and any(ch.isdigit() for ch in end[1:2]):
        end = ""
    return (name[: len(name) - len(end)], end) if end else (name, "")


def kind_of_name(stem: str, suffix: str) -> FileKind:
    """The kind that a name speaks of; "other" where it says nothing."""
    if stem.lower().startswith(_DOCUMENTS) and suffix in ("", ".txt", ".md", ".rst"):
        return "document"
    if stem.upper() == "DICOMDIR":
        return "document"
    return _BY_SUFFIX.get(suffix, "other")


def kind_of_content(path: Path) -> FileKind:
    """What the first bytes of a regular file say; "other" where they say nothing or cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return "other"
    try:
        head = os.read(handle, 264)
    except OSError:
        return "other"
    finally:
        os.close(handle)
    marks: tuple[tuple[bytes, FileKind], ...] = (
        (b"\x89PNG", "picture"), (b"\xff\xd8\xff", "picture"), (b"II*\0", "picture"), (b"MM\0*", "picture"),
        (b"GIF8", "picture"), (b"BM", "picture"), (b"\x89HDF", "hdf5"), (b"MATLAB", "mat"), (b"\x93NUMPY", "array"),
        (b"PK\x03\x04", "archive"), (b"\x1f\x8b", "archive"), (b"RIFF", "video"), (b"NRRD", "itk"),
        (b"ObjectType", "itk"), (b"<?xml", "xml"), (b"{", "json"), (b"[", "json"),
    )  # fmt: skip
    if head[128:132] == b"DICM" or head[:4] == b"\x08\0\x05\0":
        return "dicom"
    if head[4:8] == b"ftyp" or head[:4] == b"\0\0\1\xba":
        return "video"
    for mark, kind in marks:
        if head.startswith(mark):
            return kind
    return "text" if head and b"\0" not in head and _decodes(head) else "other"


def _decodes(head: bytes) -> bool:
    for end in range(4):
        try:
            head[: len(head) - end].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return True
    return False
