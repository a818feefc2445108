"""Compare memory maps, blosc2 and zarr 3 as stores of preprocessed volumes: bytes, and milliseconds to write and to read.

    python benchmarks/cache_formats.py IMAGES... [--patch 32] [--limit 40] [--half]

IMAGES are volumes (globs of your shell). Each is normalised to mean 0 and deviation 1 in single (or half) precision, as a cached
case is. Columns: bytes compared with the memory map; milliseconds a case to write; milliseconds to read a random cubic patch with the
file's pages in memory (opened each time: `patch`; kept open: `open patch`), and the whole case. One thread.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blosc2
import numpy as np
import zarr

from m3b.dataset.formats import read_image

READS = 20


def write_map(file: Path, array: np.ndarray) -> None:
    np.save(file.with_suffix(".npy"), array)


def open_map(file: Path) -> Any:
    return np.load(file.with_suffix(".npy"), mmap_mode="r")


def make_blosc2(codec: Any, filter_: Any, level: int, block: int) -> tuple[Callable[..., None], Callable[..., Any]]:
    """Return writer and opener of blosc2 arrays."""

    def write(file: Path, array: np.ndarray) -> None:
        blocks = tuple(min(n, block if i else 1) for i, n in enumerate(array.shape))
        chunks = tuple(min(n, 4 * block if i else 1) for i, n in enumerate(array.shape))
        cparams = {"codec": codec, "filters": [filter_], "clevel": level, "nthreads": 1}
        blosc2.asarray(
            array, urlpath=str(file.with_suffix(".b2nd")), mode="w", chunks=chunks, blocks=blocks, cparams=cparams
        )

    def open_array(file: Path) -> Any:
        return blosc2.open(str(file.with_suffix(".b2nd")), mode="r", dparams={"nthreads": 1}, mmap_mode="r")

    return write, open_array


def write_zarr(file: Path, array: np.ndarray) -> None:
    chunks = (1, *(min(n, 32) for n in array.shape[1:]))
    compressor = zarr.codecs.BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle")
    target = zarr.create_array(
        str(file.with_suffix(".zarr")),
        shape=array.shape,
        dtype=array.dtype,
        chunks=chunks,
        compressors=[compressor],
        overwrite=True,
    )
    target[:] = array


def open_zarr(file: Path) -> Any:
    return zarr.open_array(str(file.with_suffix(".zarr")), mode="r")


FORMATS: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "memory map": (write_map, open_map),
    "blosc2 lz4": make_blosc2(blosc2.Codec.LZ4, blosc2.Filter.BITSHUFFLE, 5, 32),
    "blosc2 zstd 1": make_blosc2(blosc2.Codec.ZSTD, blosc2.Filter.BITSHUFFLE, 1, 32),
    "blosc2 zstd 5": make_blosc2(blosc2.Codec.ZSTD, blosc2.Filter.BITSHUFFLE, 5, 32),
    "blosc2 zstd 5 shuffle": make_blosc2(blosc2.Codec.ZSTD, blosc2.Filter.SHUFFLE, 5, 32),
    "zarr 3 blosc zstd": (write_zarr, open_zarr),
}


def measure(name: str, arrays: list[np.ndarray], patch: int) -> str:
    """Return the row of a format."""
    write, open_array = FORMATS[name]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"case{n}" for n in range(len(arrays))]
        start = time.perf_counter()
        for file, array in zip(files, arrays, strict=True):
            write(file, array)
        written = time.perf_counter() - start
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        seconds = {"patch": 0.0, "open": 0.0, "whole": 0.0}
        for file, array in zip(files, arrays, strict=True):
            opened = open_array(file)
            begin = time.perf_counter()
            assert np.array_equal(opened[:], array)
            begin = time.perf_counter()
            np.array(opened[:])
            seconds["whole"] += time.perf_counter() - begin
            for _ in range(READS):
                corner = [int(rng.integers(max(1, n - patch + 1))) for n in array.shape[1:]]
                window = (slice(None), *(slice(c, c + patch) for c in corner))
                begin = time.perf_counter()
                np.array(open_array(file)[window])
                seconds["patch"] += time.perf_counter() - begin
                begin = time.perf_counter()
                np.array(opened[window])
                seconds["open"] += time.perf_counter() - begin
        shutil.rmtree(folder, ignore_errors=True)
        Path(folder).mkdir()
    total, cases = sum(array.nbytes for array in arrays), len(arrays)
    figures = [
        1e3 * written / cases,
        *(1e3 * seconds[key] / cases / count for key, count in (("patch", READS), ("open", READS), ("whole", 1))),
    ]
    return f"| {name} | {size / total:.2f} | " + " | ".join(f"{value:.2f}" for value in figures) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="+")
    parser.add_argument("--patch", type=int, default=32)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--mask", action="store_true", help="files are masks: stored as bytes")
    options = parser.parse_args()
    arrays = []
    for path in options.images[: options.limit]:
        array = read_image(path).array.astype(np.float32)
        if options.mask:
            arrays.append(array.astype(np.uint8))
            continue
        array = (array - array.mean()) / max(array.std(), 1e-6)
        arrays.append(array.astype(np.float16 if options.half else np.float32))
    mib = sum(array.nbytes for array in arrays) / 2**20
    print(
        f"{len(arrays)} volumes, {mib:.1f} MiB, median shape {np.median([a.shape for a in arrays], axis=0).astype(int).tolist()}\n"
    )
    print("| format | size | write | patch | open patch | whole |\n|---|---|---|---|---|---|")
    for name in FORMATS:
        print(measure(name, arrays, options.patch), flush=True)


if __name__ == "__main__":
    main()
