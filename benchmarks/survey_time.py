"""Compare the time of surveying a folder of many files with the preview of the same folder.

    python benchmarks/survey_time.py [--files 200000] [--folder DIR]

The script prints the median seconds of nine runs of each, taking turns in one process with warm caches, their ratio (which should
stay below 2), and the memory that the survey added.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from previews import make_files, median_seconds, run_preview


def survey_folder(path: Path) -> object:
    """Survey a folder."""
    from m3b.data.survey import survey

    return survey(path)


def main() -> None:
    """Make the files, then measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        top = Path(name)
        make_files(top, options.files)
        run_preview(top)
        survey_folder(Path(__file__).parent)
        memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        survey_folder(top)
        added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before) / 1024
        previewed, surveyed = median_seconds([run_preview, survey_folder], top)
        print(
            f"{options.files:,} files: preview {previewed:.2f} s, survey {surveyed:.2f} s, "
            f"ratio {surveyed / previewed:.2f}, +{added:.0f} MiB"
        )


if __name__ == "__main__":
    main()
