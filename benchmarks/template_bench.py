"""Templates assembled on their example data, and code that runs inside them, for the other benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from m3b.resources import copy_template

TEMPLATES = Path(__file__).resolve().parents[1] / "resources" / "templates"
NAMES = ("diagnosis", "segmentation", "detection", "report")


def prepare_template(name: str, folder: Path, *example: str) -> Path | None:
    """Assemble the template with its example data (made with the given options) and a plan; None if it does not exist."""
    if not (TEMPLATES / name / "train.py").exists():
        return None
    work = folder / name
    copy_template(name, work)
    for command in (["example/make_example.py", *example], ["plan.py", "--minutes", "1"]):
        done = subprocess.run([sys.executable, *command], cwd=work, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name}: {' '.join(command)} failed\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return work


def run_in_template(work: Path, code: str, *arguments: str) -> dict[str, Any]:
    """Return the output of the code after the word RESULT."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=work, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise SystemExit(f"{work.name}: {done.stdout[-1000:]}{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return result
