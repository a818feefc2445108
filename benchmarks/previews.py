"""Measure speed and memory of previews: a folder of many files against a bare walk, large tables against a bare read.

    python benchmarks/previews.py [--files 200000] [--mib 2048] [--folder DIR] [--sandbox auto] [--through-alone]

The script prints the ratio of times (median of runs that take turns; files read from the disk, and again from the page cache,
where reading is only a copy in memory) and the peak of memory that the preview added, each in its own process.
Then it compares the tools in the process and through the reader (`m3b.isolation.reader`), in turns: small files of many kinds,
forty a call, and the folder and tables above; with the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def make_files(folder: Path, count: int) -> None:
    """Make almost empty files: half in one folder, half in folders of a hundred."""
    for index in range(count):
        subfolder = folder / "flat" if index % 2 else folder / "cases" / f"case_{index // 200:05d}"
        if index % 200 < 2:
            subfolder.mkdir(parents=True, exist_ok=True)
        (subfolder / f"image_{index:06d}.png").write_bytes(b"x")


def make_table(path: Path, mib: int, *, quoted: bool) -> None:
    """Make a CSV with a label, numbers, a free text (quoted or not) and a patient."""
    text = '"small, unclear ""shadow"" on the left"' if quoted else "small unclear shadow on the left"
    rows = [f"img_{i:07d}.png,{i % 5},{i * 7 % 1000 / 10},patient{i // 3},{text}\n" for i in range(20_000)]
    _repeat(path, "image,label,score,patient,report\n", "".join(rows), mib)


def make_records(path: Path, mib: int) -> None:
    """Make JSON lines with a label, a number and a list."""
    rows = [
        json.dumps(
            {"image": f"img_{i:07d}.png", "label": ["a", "b", "c"][i % 3], "box": [i, 2, 3, 4], "patient": i // 3}
        )
        for i in range(20_000)
    ]
    _repeat(path, "", "\n".join(rows) + "\n", mib)


def _repeat(path: Path, head: str, block: str, mib: int) -> None:
    data = block.encode()
    with path.open("wb") as file:
        file.write(head.encode())
        file.write(data)
        while file.tell() < mib * 2**20:
            file.write(data)


def bare_walk(top: Path) -> int:
    """Walk the folder without any preview."""
    pending, count = [str(top)], 0
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    count += 1
    return count


def bare_read(path: Path) -> int:
    """Read the file in blocks of 1 MiB."""
    buffer, count = bytearray(1 << 20), 0
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(buffer):
            count += got
    return count


def median_seconds(
    works: list[Callable[[Path], object]], path: Path, *, cold: bool = False, turns: int = 9
) -> list[float]:
    """Return the median seconds of each, taking turns; `cold` drops the file from the page cache before each run."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(3 if cold else turns):
        for work, run_times in zip(works, times, strict=True):
            if cold:
                drop_from_cache(path)
            start = time.perf_counter()
            work(path)
            run_times.append(time.perf_counter() - start)
    return [statistics.median(run_times) for run_times in times]


def drop_from_cache(path: Path) -> None:
    """Drop a file from the page cache, so that the next read comes from the disk."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def run_preview(path: Path) -> object:
    """Run the tool's preview of a folder or file."""
    if path.is_dir():
        from m3b.tools.preview_dirs import format_report, walk_folder

        return format_report(walk_folder(path), path.name, path, 5)
    from m3b.tools.previews import records, tables

    return (tables if path.suffix == ".csv" else records).preview(path, "mask")


def measure_preview(path: Path) -> None:
    """Measure, in its own process, the times of both and the memory that the preview added."""
    import numpy  # noqa: F401 - its own memory and start are not the preview's

    run_preview(Path(__file__).parent if path.is_dir() else path.with_name("tiny" + path.suffix))
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = run_preview(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before
    works: list[Callable[[Path], object]] = [bare_walk if path.is_dir() else bare_read, run_preview]
    size = len(result if isinstance(result, str) else "\n".join(result))  # type: ignore[call-overload]
    for cold in (False,) if path.is_dir() else (True, False):
        bare_s, preview_s = median_seconds(works, path, cold=cold)
        source = "from disk" if cold else "cached"
        times = f"bare {bare_s:6.2f} s  preview {preview_s:6.2f} s  ratio {preview_s / bare_s:5.2f}"
        print(f"{path.name:12} {source:10} {times}  +{peak / 1024:.0f} MiB  {size} characters", flush=True)


def make_small(folder: Path) -> None:
    """Make forty files of eight kinds."""
    import nibabel
    import numpy as np
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(5):
        pixels = rng.integers(0, 255, (512, 512), dtype=np.uint8)
        volume = rng.normal(size=(96, 96, 48)).astype(np.float32)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        Image.fromarray(pixels).save(folder / f"{number}.jpg")
        np.save(folder / f"{number}.npy", pixels)
        np.savez(folder / f"{number}.npz", image=pixels, label=number)
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), folder / f"{number}.nii.gz")
        nibabel.save(nibabel.Nifti1Image((volume > 0).astype(np.uint8), np.eye(4)), folder / f"{number}_mask.nii")
        make_table(folder / f"{number}.csv", 0, quoted=False)
        make_records(folder / f"{number}.jsonl", 0)


def compare_with_reader(path: Path, sandbox: str) -> None:
    """Compare the same call of a tool in this process and through a running reader, in turns."""
    from m3b.isolation.reader import Reader
    from m3b.isolation.sandbox import Mounts, choose_sandbox
    from m3b.tools.preview_tools import PREVIEW_JOB, PreviewCall, run_preview_tool

    tool = "preview_files" if path.name == "small" or path.is_file() else "preview_dirs"
    names = (
        sorted(f"data/x/{entry.name}" for entry in path.iterdir()) if path.name == "small" else [f"data/x/{path.name}"]
    )
    arguments = {"path": names[0]} if tool == "preview_dirs" else {"paths": names}
    top = path if path.name == "small" else path.parent
    request = PreviewCall(tool, arguments, path.parent, {"data/x": top}, "mask", 8000)  # type: ignore[arg-type]
    started = time.perf_counter()
    with Reader(choose_sandbox(sandbox), Mounts(read=(path.parent,))) as reader:
        assert reader.run_job(PREVIEW_JOB, request) == run_preview_tool(request)
        start = time.perf_counter() - started
        inprocess_s, reader_s = median_seconds(
            [lambda _: run_preview_tool(request), lambda _: reader.run_job(PREVIEW_JOB, request)], path, turns=5
        )
    times = f"in process {inprocess_s:7.3f} s  reader {reader_s:7.3f} s  ratio {reader_s / inprocess_s:5.2f}"
    load = os.getloadavg()[0]
    print(
        f"{path.name:12} {reader.sandbox.name:10} {times}  first call of both {start:.2f} s  load {load:.1f}",
        flush=True,
    )


def main() -> None:
    """Make the data, then measure each in a new process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--through-alone", action="store_true", help="only the comparison with the reader")
    parser.add_argument("--compare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure_preview(options.measure)
        return
    if options.compare:
        compare_with_reader(options.compare, options.sandbox)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        top = Path(name)
        make_table(top / "tiny.csv", 0, quoted=False)
        make_records(top / "tiny.jsonl", 0)
        jobs: list[tuple[Path, Callable[[Path], None]]] = [
            (top / "files", lambda path: make_files(path, options.files)),
            (top / "plain.csv", lambda path: make_table(path, options.mib, quoted=False)),
            (top / "quoted.csv", lambda path: make_table(path, options.mib, quoted=True)),
            (top / "lines.jsonl", lambda path: make_records(path, options.mib)),
        ]
        make_small(top / "small")
        compare_command = [sys.executable, __file__, "--sandbox", options.sandbox, "--compare"]
        subprocess.run([*compare_command, str(top / "small")], check=True)
        for path, make in jobs:
            make(path)
            if not options.through_alone:
                subprocess.run([sys.executable, __file__, "--measure", str(path)], check=True)
            subprocess.run([*compare_command, str(path)], check=True)
            if path.is_file():
                path.unlink()


if __name__ == "__main__":
    main()
