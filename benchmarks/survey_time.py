"""Compare the time of surveying a folder of many files with a bare scan of the same folder.

    python benchmarks/survey_time.py [--files 200000] [--names 1000000] [--folder DIR]

The script prints the median CPU seconds, for which other work on the machine does not count, taking turns in one process
with warm caches: of a bare `os.scandir` that keeps the names, of the walk, and of the survey; the ratios to the bare
scan; the memory that the survey added; and the CPU seconds in which a million names are grouped.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from previews import make_files


def scan_folder(path: Path) -> list[str]:
    """Return the paths of all files, in the order of the file system."""
    paths: list[str] = []
    pending = [(str(path), "")]
    while pending:
        folder, prefix = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, f"{prefix}{entry.name}/"))
                else:
                    paths.append(prefix + entry.name)
    return paths


def walk_folder(path: Path) -> object:
    """Walk a folder."""
    from m3b.dataset.survey.walk import walk

    return walk(path)


def survey_folder(path: Path) -> object:
    """Survey a folder."""
    from m3b.dataset.survey.survey import survey

    return survey(path)


def median_cpu_seconds(actions: Sequence[Callable[[Path], object]], path: Path, turns: int) -> list[float]:
    """Return the median CPU seconds of each action, taking turns."""
    seconds: list[list[float]] = [[] for _ in actions]
    for _ in range(turns):
        for action, own in zip(actions, seconds, strict=True):
            started = time.process_time()
            action(path)
            own.append(time.process_time() - started)
    return [statistics.median(own) for own in seconds]


def group_names(count: int) -> float:
    """Return the CPU seconds in which so many names are grouped; their files need not exist."""
    import polars as pl

    from m3b.dataset.inventory import Inventory
    from m3b.dataset.survey.facts import SurveyLimits
    from m3b.dataset.survey.groups import GroupFinder

    paths = [f"site_{i % 7}/pat_{i // 100:05d}/img_{i:07d}_{'LR'[i % 2]}.txt" for i in range(count)]
    files = pl.DataFrame({"path": paths}).with_columns(bytes=pl.lit(None, pl.Int64))
    started = time.process_time()
    GroupFinder(Inventory(Path("/nowhere"), files), SurveyLimits()).find()
    return time.process_time() - started


def main() -> None:
    """Make the files, then measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        top = Path(name)
        make_files(top, options.files)
        scan_folder(top)
        survey_folder(Path(__file__).parent)
        memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        survey_folder(top)
        added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before) / 1024
        actions = [scan_folder, walk_folder, survey_folder]
        scan, walk, survey = median_cpu_seconds(actions, top, options.turns)
        print(
            f"{options.files:,} files: bare scan {scan:.2f} s; walk {walk:.2f} s (x {walk / scan:.2f}); survey {survey:.2f} s "
            f"(x {survey / scan:.2f}, +{added:.0f} MiB)"
        )
    print(f"{options.names:,} names grouped in {group_names(options.names):.1f} CPU s")


if __name__ == "__main__":
    main()
