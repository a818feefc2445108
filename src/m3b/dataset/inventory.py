"""The files of a data folder, as a frame: what every part of `m3b.dataset` matches, groups and joins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

KNOWN_SUFFIXES = """
png jpg jpeg jpe jfif jp2 j2k jpx jpf bmp dib webp gif pnm pgm ppm pbm pam tif tiff ome btf
dcm dicom dic ima nii hdr img nrrd nhdr seg mha mhd raw zraw mgh mgz par rec
npy npz h5 hdf5 hdf he5 mat zarr n5 parquet arrow feather pt pth pkl pickle
mp4 avi mov mkv mpg mpeg m4v webm wmv svs ndpi scn mrxs bif czi lif nd2 vsi
zip tar tgz gz bz2 xz zst 7z
csv tsv tab txt text json jsonl ndjson geojson xml xlsx xlsm xls ods yaml yml ini cfg toml list lst names data
md rst html htm pdf rtf doc docx odt
"""
"""Endings of names that say a format and never what a file is about. Formats and annotation formats may have more."""

KNOWN_SUFFIX_REGEX = rf"(?i)(?:\.(?:{'|'.join(KNOWN_SUFFIXES.split())}))+$"
_SUFFIX_REGEX = rf"(?i)((?:\.(?:{'|'.join(KNOWN_SUFFIXES.split())}))+|\.[A-Za-z][A-Za-z0-9]{{0,7}})$"

PATH_COLUMNS = ("path", "folder", "name", "stem", "suffix", "parent")
"""Columns that every path has, besides `folder0`, `folder1`, ..."""


@dataclass(frozen=True)
class Inventory:
    """The regular files below a folder.

    Args:
        root: the folder.
        files: `path` (below `root`, with `/`, natural order) and `bytes`.
        undecodable: names that are not UTF-8, as Python's `surrogateescape` writes them.
        notes: code -> paths of what is no regular file or was not looked into (links, special files, too deep, unreadable).
    """

    root: Path
    files: pl.DataFrame
    undecodable: tuple[str, ...] = ()
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """All paths, in natural order."""
        return self.files["path"].to_list()


def is_path_column(name: str) -> bool:
    """Return whether every path has this column, if it is deep enough."""
    return name in PATH_COLUMNS or (name.startswith("folder") and name[6:].isdecimal())


def with_path_columns(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Add columns of the path (`PATH_COLUMNS`, `folder0`, ...); those that a path has not are null."""
    columns_to_add = [name for name in names if is_path_column(name) and name not in frame.columns]
    if not columns_to_add:
        return frame
    path = pl.col("path")
    base = path.str.extract(r"([^/]*)$", 1)
    folder = path.str.extract(r"^(.*)/", 1)
    columns = {
        "folder": folder,
        "name": base,
        "stem": base.str.replace(_SUFFIX_REGEX, ""),
        "suffix": base.str.extract(_SUFFIX_REGEX, 1).str.to_lowercase(),
        "parent": folder.str.extract(r"([^/]*)$", 1),
    }
    parts = folder.str.split("/")
    return frame.with_columns(
        (columns[name] if name in columns else parts.list.get(int(name[6:]), null_on_oob=True)).alias(name)
        for name in columns_to_add
    )
