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
from m3b.reader.inprocess import open_reader

from .choosing import CARVE_JOB, VERIFY_JOB, CarveRequest, VerifyRequest
from .datasets import DatasetSpec
from .hidden import AGENT_FOLDER, CARVE_OUT_FILE, HIDDEN_FOLDER, CarveOut
from .placing import link_or_copy

HIDDEN_TEST_SHARE = 0.2


def carve(
    spec: DatasetSpec,
    source: Path,
    folder: Path,
    *,
    share: float = HIDDEN_TEST_SHARE,
    seed: int = 0,
    stand_in: bool = False,
) -> CarveOut:
    """Make the two copies of `source` below `folder`, and check the agent's with the trusted reader of its layout.

    m3b's confined reader process opens the tables and headers; this one links or copies whole files.

    Files are hard-linked where the file system allows it, else copied; tables are written anew without the rows.

    Raises:
        DataError: the set cannot be read, or something of a hidden patient would remain.
    """
    if (folder / CARVE_OUT_FILE).is_file():
        return CarveOut.load(folder)
    source, folder = source.resolve(), folder.resolve()
    temporary_folder = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary_folder, ignore_errors=True)
    temporary_folder.mkdir(parents=True)
    with undo_on_error(shutil.rmtree, temporary_folder, True):
        with open_reader([source], writable=[temporary_folder]) as reader:
            result = reader.run_job(CARVE_JOB, CarveRequest(spec.name, source, temporary_folder, share, seed))
        for path in result.files:
            _copy_into(source, path, temporary_folder / AGENT_FOLDER)
        for path in sorted({path for case in result.cases for path in (*case.images, case.mask) if path}):
            _copy_into(source, path, temporary_folder / HIDDEN_FOLDER)
        carve_out = CarveOut(
            temporary_folder, spec.name, result.cases, len(result.kept_cases), result.withheld, stand_in, seed
        )
        with open_reader([temporary_folder]) as reader:
            reader.run_job(VERIFY_JOB, VerifyRequest(carve_out, result.kept_cases))
        carve_out.save()
        temporary_folder.rename(folder)
    return replace(carve_out, folder=folder)


def _copy_into(source: Path, path: str, target: Path) -> None:
    """A file of the source below a copy of it. Raises DataError where its name leads out, which no reader gives."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise DataError(f"{path!r} does not lie inside {source}; m3b's reader was led astray. Look at the data.")
    link_or_copy(source / path, target / path)
