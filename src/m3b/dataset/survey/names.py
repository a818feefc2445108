"""Names as tokens: suffixes, shapes of names, and the manifest patterns that match them.

A shape is a name with each run of digits, letters, ... replaced by one private character, so that names of one form have equal shapes.
All of it is done in polars, since a folder can hold a million names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import polars as pl

from m3b.dataset.inventory import with_path_columns
from m3b.dataset.survey.facts import SlotKind

NUMBER, WORD, HASH, UID, MIXED = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004"
"""Characters of a shape: a run of digits, of letters, a long hexadecimal text, numbers with dots, letters and digits mixed."""
TOKENS = {
    NUMBER: r"([0-9]+)",
    WORD: r"([\p{L}\p{M}]+)",
    HASH: r"([0-9A-Fa-f]{16,}(?:-[0-9A-Fa-f]+)*|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})",
    UID: r"([0-9]+(?:\.[0-9]+){4,})",
    MIXED: r"([\p{L}\p{M}0-9]+)",
}
_KINDS: dict[str, SlotKind] = {NUMBER: "number", WORD: "word", HASH: "hash", UID: "uid", MIXED: "text"}
_SLOT_NAMES: dict[SlotKind, str] = {
    "number": "number",
    "word": "word",
    "hash": "id",
    "uid": "uid",
    "text": "text",
    "date": "number",
}

_FAMILIES = {
    "picture": "png jpg jpeg jpe jfif tif tiff bmp gif webp pgm ppm pnm ome.tif ome.tiff svs jp2 j2k",
    "dicom": "dcm dicom ima",
    "nifti": "nii nii.gz img hdr mgh mgz",
    "itk": "nrrd nhdr seg.nrrd mha mhd",
    "array": "npy npz zarr",
    "pickle": "pkl pickle pck pt pth",
    "hdf5": "h5 hdf5 hdf he5",
    "mat": "mat",
    "video": "mp4 avi mov mpeg mpg mkv webm wmv m4v",
    "archive": "zip tar tar.gz tgz tar.bz2 tbz2 tar.xz txz 7z rar gz bz2 xz",
    "table": "csv tsv tab xlsx xlsm xls ods parquet",
    "json": "json jsonl ndjson geojson",
    "xml": "xml",
    "text": "txt dat list lst ids names",
    "document": "md rst pdf html htm docx doc rtf py ipynb m r sh yml yaml toml cfg ini log bib license",
}
FORMAT_OF_SUFFIX = {f".{suffix}": family for family, names in _FAMILIES.items() for suffix in names.split()}
"""Suffix, in lower case with its dot -> family of the format."""
IMAGE_FORMATS = frozenset({"picture", "dicom", "nifti", "itk", "array", "pickle", "hdf5", "mat", "video"})
CONTAINER_FORMATS = frozenset({"array", "pickle", "hdf5", "mat", "archive"})
TABLE_FORMATS = frozenset({"table", "json", "xml", "text"})
RECORD_SUFFIXES = frozenset({".cfg", ".ini", ".toml", ".yaml", ".yml"})
"""Suffixes of documents of which several files of one name template, each with one record, are a table."""
DOCUMENT_NAMES = r"^(?:readme|licen[cs]e|copying|changelog|citation|authors|notice|makefile|requirements)"
DOCUMENT_SUFFIXES = ("", ".txt", ".md", ".rst")


def to_int(value: Any) -> int:
    """Return an aggregate of a polars series as a whole number; 0 if there is none."""
    return int(value or 0)


def split_names(paths: pl.Series) -> pl.DataFrame:
    """Return `path`, `folder`, `name`, `stem`, `suffix` (lower case) and `depth` (folders on the way) of paths."""
    path = pl.col("path")
    frame = pl.DataFrame({"path": paths}).with_columns(depth=path.str.count_matches("/", literal=True))
    frame = with_path_columns(frame, ["name", "folder", "stem", "suffix"])
    # A name that is all suffix has none.
    is_bare = pl.col("stem") == ""
    return frame.with_columns(
        folder=pl.col("folder").fill_null(""),
        stem=pl.when(is_bare).then("name").otherwise("stem"),
        suffix=pl.when(is_bare).then(pl.lit("")).otherwise(pl.col("suffix").fill_null("")),
    )


def format_of(suffix: str) -> str:
    """Return the family of a suffix: of all of it, else of its last part; "" if it is unknown."""
    return FORMAT_OF_SUFFIX.get(suffix) or FORMAT_OF_SUFFIX.get(suffix[suffix.rfind(".") :], "") if suffix else ""


def shape_of(text: pl.Expr, *, coarse: bool = False) -> pl.Expr:
    """Return the shapes of texts; `coarse` ones take letters and digits that follow one another as one token."""
    begin = r"(^|[^0-9\p{L}])"
    long_id = r"(?:[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|[0-9A-Fa-f]{20,})"
    shape = text.str.replace_all(begin + long_id, "${1}" + HASH)
    shape = shape.str.replace_all(begin + r"[0-9]+(?:\.[0-9]+){4,}", "${1}" + UID)
    if coarse:
        letters = r"[\p{L}\p{M}]"
        shape = shape.str.replace_all(rf"(?:[0-9]+{letters}+|{letters}+[0-9]+)[\p{{L}}\p{{M}}0-9]*", MIXED)
    return shape.str.replace_all(r"[0-9]+", NUMBER).str.replace_all(r"[\p{L}\p{M}]+", WORD)


def shape_regex(shape: str) -> str:
    """Return the regular expression of a shape, with one group a token."""
    return "^" + "".join(TOKENS.get(char) or re.escape(char) for char in shape) + "$"


def extract_tokens(text: pl.Series, shape: str) -> pl.DataFrame:
    """Return one column of texts for each token of a shape."""
    tokens = [char for char in shape if char in TOKENS]
    if not tokens:
        return pl.DataFrame()
    struct = text.str.extract_groups(shape_regex(shape)).struct
    frame = struct.unnest()
    return frame.rename(dict(zip(frame.columns, (f"t{at}" for at in range(len(tokens))), strict=True)))


def split_shape(shape: str) -> list[tuple[str, SlotKind | None]]:
    """Return the pieces of a shape: fixed text with None, or "" with the kind of a token."""
    pieces: list[tuple[str, SlotKind | None]] = []
    for char in shape:
        if char in TOKENS:
            pieces.append(("", _KINDS[char]))
        elif pieces and pieces[-1][1] is None:
            pieces[-1] = (pieces[-1][0] + char, None)
        else:
            pieces.append((char, None))
    return pieces


@dataclass(frozen=True)
class Piece:
    """A piece of a pattern: fixed text, one of several texts, or a slot.

    Args:
        text: fixed text.
        choices: texts of which one stands here; of a slot, all that it may hold.
        slot: name of a slot; "*" for a whole folder or stem, whose column is `folderN` or `stem`.
        kind: of the slot.
    """

    text: str = ""
    choices: tuple[str, ...] = ()
    slot: str = ""
    kind: SlotKind = "text"


_SPECIAL = re.compile(r"[{}*,]")


def write_pattern(levels: Sequence[Sequence[Piece]], suffixes: Sequence[str]) -> str:
    """Return the manifest pattern of pieces: each folder's, then the name's; a regular expression after `re:` if a fixed text
    holds a character that patterns use."""
    texts = [text for level in levels for piece in level for text in (piece.text, *piece.choices)]
    ending = list(dict.fromkeys(suffixes))
    has_chosen_slots = any(piece.slot and piece.choices for level in levels for piece in level)
    if has_chosen_slots or any(_SPECIAL.search(text) for text in (*texts, *ending)):
        return _write_regex(levels, ending)
    body = "/".join("".join(_write_piece(piece) for piece in level) for level in levels)
    if len(ending) == 1:
        return body + ending[0]
    return body + ".{" + ",".join(suffix.removeprefix(".") for suffix in ending) + "}"


def _write_piece(piece: Piece) -> str:
    if piece.slot == "*":
        return "*"
    if piece.slot:
        kind = {"number": ":number", "date": ":number", "word": ":word"}.get(piece.kind, "")
        return "{" + piece.slot + kind + "}"
    if piece.choices:
        return "{" + ",".join(piece.choices) + "}"
    return piece.text


def write_regex(levels: Sequence[Sequence[Piece]], suffixes: Sequence[str]) -> str:
    """Return the regular expression of all paths that the pattern of these pieces matches; letter case does not matter."""
    return f"(?i)^{_write_regex(levels, suffixes).removeprefix('re:')}$"


def _write_regex(levels: Sequence[Sequence[Piece]], suffixes: Sequence[str]) -> str:
    def write(piece: Piece) -> str:
        if piece.slot == "*":
            return "[^/]+"
        if piece.slot:
            inner = {"number": "[0-9]+", "date": "[0-9]+", "word": r"[\p{L}\p{M}]+"}.get(piece.kind, "[^/]+")
            inner = "|".join(re.escape(text) for text in piece.choices) or inner
            return f"(?P<{piece.slot}>{inner})"
        if piece.choices:
            return "(?:" + "|".join(re.escape(text) for text in piece.choices) + ")"
        return re.escape(piece.text)

    body = "/".join("".join(write(piece) for piece in level) for level in levels)
    return f"re:{body}(?:{'|'.join(re.escape(suffix) for suffix in suffixes)})"


class SlotNames:
    """Gives slots their names: `number1`, `word1`, `number2`, ..."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)

    def next(self, kind: SlotKind) -> str:
        """Return the next name for a slot of that kind."""
        stem = _SLOT_NAMES[kind]
        name = next(name for number in count(1) if (name := f"{stem}{number}") not in self._used)
        self._used.add(name)
        return name
