"""The carve-out: hidden test cases are taken away, by patient, before an agent sees the data.

`carve` turns a copy of a data set into two: `agent/`, in the same layout without anything of the hidden patients (files,
table rows, JSON records), and `hidden/` with their files alone and a manifest in m3b's own index format.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from m3b.cleanup import undo_on_error
from m3b.errors import DataError
from m3b.reader.outside import reading

from .choosing import CARVE, VERIFY, ToCarve, ToVerify
from .datasets import DatasetSpec
from .hidden import AGENT, HIDDEN, MANIFEST, Hidden
from .placing import place

SHARE = 0.2


def carve(
    spec: DatasetSpec, source: Path, folder: Path, *, share: float = SHARE, seed: int = 0, stand_in: bool = False
) -> Hidden:
    """Make the two copies of `source` below `folder`, and check the agent's with the trusted reader of its layout.

    m3b's confined reader process opens the tables and headers; this one links or copies whole files.

    Files are hard-linked where the file system allows it, else copied; tables are written anew without the rows.

    Raises:
        DataError: the set cannot be read, or something of a hidden patient would remain.
    """
    if (folder / MANIFEST).is_file():
        return Hidden.load(folder)
    source, folder = source.resolve(), folder.resolve()
    temporary_folder = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary_folder, ignore_errors=True)
    temporary_folder.mkdir(parents=True)
    with undo_on_error(shutil.rmtree, temporary_folder, True):
        with reading([source], write=[temporary_folder]) as reader:
            result = reader.ask(CARVE, ToCarve(spec.name, source, temporary_folder, share, seed))
        for path in result.files:
            _put(source, path, temporary_folder / AGENT)
        for path in sorted({path for case in result.cases for path in (*case.images, case.mask) if path}):
            _put(source, path, temporary_folder / HIDDEN)
        carve_out = Hidden(temporary_folder, spec.name, result.cases, len(result.kept), result.withheld, stand_in, seed)
        with reading([temporary_folder]) as reader:
            reader.ask(VERIFY, ToVerify(carve_out, result.kept))
        carve_out.save()
        temporary_folder.rename(folder)
    return replace(carve_out, folder=folder)


def _put(source: Path, path: str, target: Path) -> None:
    """A file of the source below a copy of it. Raises DataError where its name leads out, which no reader gives."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise DataError(f"{path!r} does not lie inside {source}; m3b's reader was led astray. Look at the data.")
    place(source / path, target / path)
