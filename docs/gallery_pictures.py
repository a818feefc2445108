"""The pictures of docs/gallery.md: runs on generated data, which take some minutes; `python docs/refresh.py --gallery`.

A picture is at most 700 pixels wide and has 128 colours, so that the repository stays small.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

WIDTH, COLOURS = 700, 128
CHEST, HEAD = "chest", "head"
RUNS = {
    CHEST: ("chest", "Build a model that detects lung opacities on chest X-rays"),
    HEAD: ("INSTANCE22", "Segment intracranial hemorrhage on head CT"),
}
"""Name of a run -> the generated data set and the request."""


def draw_gallery(place: Path, target: Path, names: Sequence[str] = tuple(RUNS), minutes: float = 1.0) -> list[Path]:
    """Make data, runs and a prediction in a folder, and write their pictures to another one; return the files.

    Args:
        names: of the runs.
        minutes: of each training.
    """
    from terminal_picture import draw_report

    files = []
    for name in names:
        data_set, request = RUNS[name]
        data, run = place / f"{name}-data", place / name
        run_m3b("data", "make", data_set, str(data))
        run_m3b("run", request, "--data", str(data), "--train-minutes", str(minutes), "--out", str(run), "--quiet")
        for page in ("report", "manifest"):
            screenshot = place / f"{name}-{page}.png"
            if draw_report(run / f"{page}.html", screenshot, place):
                files.append(shrink(screenshot, target / f"{name}-{page}.png"))
        if name == CHEST:
            image = sorted((data / "unseen").glob("opacity*.png"))[0]
            run_m3b("predict", str(run / "model"), str(image), "-o", str(place / "found"), "--overlay", "--saliency")
            (overlay,) = (place / "found" / "overlays").glob("*.png")
            files.append(shrink(overlay, target / f"{name}-overlay.png"))
    return files


def run_m3b(*words: str) -> None:
    """Run a command of m3b.

    Raises:
        RuntimeError: it ends with an error; a model below its range is none.
    """
    ran = subprocess.run([sys.executable, "-m", "m3b", *words], capture_output=True, text=True)
    if ran.returncode not in ((0, 1) if words[0] == "run" else (0,)):
        raise RuntimeError(f"m3b {' '.join(words)} ends with {ran.returncode}: {ran.stderr}")


def shrink(source: Path, target: Path) -> Path:
    """Write a picture with few colours, at most `WIDTH` pixels wide."""
    with Image.open(source) as image:
        picture = image.convert("RGB")
        picture.thumbnail((WIDTH, 2 * WIDTH), Image.Resampling.LANCZOS)
        picture.quantize(COLOURS).save(target, optimize=True)
    return target
