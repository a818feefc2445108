"""Measure the cost of the view of training cases: many small files by each way of providing them, and one large HDF5 file.

python benchmarks/view_cost.py --files 200000 --hdf5-gib 10 --folder /somewhere/with/room
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from m3b.data.records import Record
from m3b.dataset.view import make_view, needed_files_of

TRAINING_SHARE = 0.8
FILES_PER_FOLDER = 1000


def time_action(label: str, step: Callable[[], object]) -> object:
    wall_start, processor_start = time.perf_counter(), time.process_time()
    value = step()
    processor_s = time.process_time() - processor_start
    print(f"{label:48} {time.perf_counter() - wall_start:8.2f} s, {processor_s:8.2f} s of the processor", flush=True)
    return value


def measure_small_files(folder: Path, count: int, size: int) -> None:
    """Measure one file a case, as in archives of radiographs."""
    base = folder / "raw"
    content = np.random.default_rng(0).bytes(size)
    for number in range(count):
        file = base / f"data/x/{number // FILES_PER_FOLDER:04d}/{number:07d}.png"
        if number % FILES_PER_FOLDER == 0:
            file.parent.mkdir(parents=True)
        file.write_bytes(content)
    records = [
        Record(f"data/x/{n // FILES_PER_FOLDER:04d}/{n:07d}.png", ("a",), str(n))
        for n in range(int(count * TRAINING_SHARE))
    ]
    print(f"{count:,} files of {size:,} bytes, {len(records):,} of them training cases")
    needed_files = time_action("what they need", lambda: needed_files_of(records, base))
    for name, link in (("hard links", True), ("copies or shared blocks", False)):
        view = folder / "view"
        view_report = time_action(
            name, lambda link=link, view=view: make_view(needed_files, base, lambda p: view / p, link=link)
        )  # type: ignore[misc,arg-type]
        print(f"  {view_report}")
        time_action("  removed", lambda view=view: shutil.rmtree(view))  # type: ignore[misc]


def measure_large_hdf5(folder: Path, gib: float, *, is_packed: bool) -> None:
    """Measure one data set of 512 x 512 slices that holds all cases."""
    import h5py

    items = max(10, int(gib * 2**30 / (512 * 512 * 2)))
    base = folder / "stack"
    base.mkdir()
    block = np.random.default_rng(0).integers(0, 4000, (64, 512, 512)).astype(np.int16)
    with h5py.File(base / "all.h5", "w") as out:
        storage_options = {"chunks": (1, 512, 512), "compression": "gzip", "compression_opts": 1} if is_packed else {}
        data = out.create_dataset("images", (items, 512, 512), np.int16, **storage_options)
        for start in range(0, items, 64):
            data[start : start + 64] = block[: min(64, items - start)]
    size = (base / "all.h5").stat().st_size / 2**30
    training_records = [Record(f"all.h5#images[{n}]", ("a",), str(n)) for n in range(items) if n % 5]
    print(
        f"HDF5 of {size:.1f} GiB, {items:,} items, {'gzip' if is_packed else 'not packed'}, {len(training_records):,} for training"
    )
    needed_files = needed_files_of(training_records, base)
    time_action(
        "written with the other items zero",
        lambda: make_view(needed_files, base, lambda p: folder / "h5" / p, link=True),
    )
    print(f"  {(folder / 'h5/all.h5').stat().st_size / 2**30:.1f} GiB")
    shutil.rmtree(folder / "h5")
    shutil.rmtree(base)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=4096, help="of each file")
    parser.add_argument("--hdf5-gib", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, help="where to work; default: the system's temporary folder")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="m3b-view-", dir=options.folder))
    try:
        measure_small_files(folder, options.files, options.bytes)
        for is_packed in (False, True):
            measure_large_hdf5(folder, options.hdf5_gib, is_packed=is_packed)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
