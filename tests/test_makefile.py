"""What `make demo` and `make test` install, with a pip that only writes down what it is asked for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PIP = """#!/bin/sh
echo "pip $*" >> "{log}"
for last; do case "$previous" in --report) cp "{report}" "$last";; esac; previous=$last; done
"""


def made(place: Path, target: str, *words: str, brings: str = "nvidia-cublas") -> list[str]:
    """The commands of a target, in order; pip would install torch together with `brings`."""
    commands = place / ".venv/bin"
    commands.mkdir(parents=True, exist_ok=True)
    log, report = place / "log", place / "report.json"
    report.write_text(json.dumps({"install": [{"metadata": {"name": "torch"}}, {"metadata": {"name": brings}}]}))
    for name in ("pip", "m3b", "pytest", "python"):
        text = PIP if name == "pip" else f'#!/bin/sh\necho "{name} $*" >> "{{log}}"\n'
        (commands / name).write_text(text.format(log=log, report=report))
        (commands / name).chmod(0o755)
    command = ["make", "-C", str(ROOT), target, f"VENV={place / '.venv'}", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " on the disk" in done.stdout.splitlines()[1] + done.stdout.splitlines()[0], "size and minutes come first"
    assert "minutes" in done.stdout
    lines = log.read_text().splitlines()
    log.unlink()
    return lines


def test_the_demo_installs_only_what_it_needs(tmp_path: Path) -> None:
    first, torch, project, demo = made(tmp_path, "demo", "GPU=")
    assert "--dry-run" in first
    assert (
        torch == "pip install --quiet -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu torch"
    )
    assert project.endswith("-e .[train]")
    assert demo == "m3b demo"


@pytest.mark.parametrize(
    ("gpu", "brings", "asked"), [("", "filelock", True), ("/dev/nvidia0", "nvidia-cublas", False)], ids=["cpu", "gpu"]
)
def test_the_usual_index_serves_where_it_has_the_right_build(
    tmp_path: Path, gpu: str, brings: str, asked: bool
) -> None:
    lines = made(tmp_path, "demo", f"GPU={gpu}", brings=brings)
    assert any("--dry-run" in line for line in lines) == asked
    assert "pip install --quiet -c constraints.txt torch" in lines
    assert not any("index-url" in line for line in lines)


def test_the_tests_install_the_rest(tmp_path: Path) -> None:
    lines = made(tmp_path, "test", "GPU=")
    extras = [line for line in lines if "-e " in line]
    assert [line.split("-e ")[1] for line in extras] == [".[train]", ".[train,nnunet,export,cluster,croissant,dev]"]
    assert lines[-1].startswith("pytest -n 2")
