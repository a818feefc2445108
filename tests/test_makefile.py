"""What `make demo` and `make test` install, with a pip that only writes down what it is asked for."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PIP = """#!/bin/sh
echo "pip $*" >> "{log}"
for last; do case "$previous" in --report) cp "{report}" "$last";; esac; previous=$last; done
"""
NAMES = ("pip", "m3b", "pytest", "python")


def run_target(place: Path, target: str, *words: str, brings: str = "nvidia-cublas") -> list[str]:
    """The commands of a target, in order; pip would install torch together with `brings`."""
    commands = place / ".venv/bin"
    commands.mkdir(parents=True, exist_ok=True)
    log, report = place / "log", place / "report.json"
    report.write_text(json.dumps({"install": [{"metadata": {"name": "torch"}}, {"metadata": {"name": brings}}]}))
    for file in (commands / name for name in (*NAMES, *(f"../vision/bin/{name}" for name in NAMES))):
        file.parent.mkdir(parents=True, exist_ok=True)
        text = PIP if file.name == "pip" else f'#!/bin/sh\necho "{file.name} $*" >> "{{log}}"\n'
        file.write_text(text.format(log=log, report=report))
        file.chmod(0o755)
    command = ["make", "-C", str(ROOT), target, f"VENV={place / '.venv'}", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " on the disk" in done.stdout.splitlines()[1] + done.stdout.splitlines()[0], "size and minutes come first"
    assert "minutes" in done.stdout
    lines = log.read_text().splitlines()
    log.unlink()
    return lines


def test_the_demo_installs_only_what_it_needs(tmp_path: Path) -> None:
    first, torch, project, demo = run_target(tmp_path, "demo", "GPU=")
    assert "--dry-run" in first
    pins = tmp_path / ".venv/pins.txt"
    assert torch == f"pip install --quiet -c {pins} --extra-index-url https://download.pytorch.org/whl/cpu torch"
    assert project == f"pip install --quiet -c {pins} -e .[train]"
    assert demo == "m3b demo"


@pytest.mark.parametrize(
    ("gpu", "brings", "is_dry_run"),
    [("", "filelock", True), ("/dev/nvidia0", "nvidia-cublas", False)],
    ids=["cpu", "gpu"],
)
def test_the_usual_index_serves_where_it_has_the_right_build(
    tmp_path: Path, gpu: str, brings: str, is_dry_run: bool
) -> None:
    lines = run_target(tmp_path, "demo", f"GPU={gpu}", brings=brings)
    assert any("--dry-run" in line for line in lines) == is_dry_run
    assert f"pip install --quiet -c {tmp_path / '.venv/pins.txt'} torch" in lines
    assert not any("index-url" in line for line in lines)


def test_everything_that_is_installed_is_pinned_as_in_the_lock(tmp_path: Path) -> None:
    run_target(tmp_path, "demo", "GPU=")
    pins = [Requirement(line) for line in (tmp_path / ".venv/pins.txt").read_text().splitlines()]
    locked = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line[0].isalnum()]
    assert len(pins) == len(locked) > 100
    assert all(str(pin.specifier).startswith("==") for pin in pins)
    pinned_versions = {pin.name: str(pin.specifier) for pin in pins if pin.marker is None or pin.marker.evaluate()}
    assert pinned_versions["torch"] == f"=={version('torch').partition('+')[0]}", "what runs these tests"


def test_the_tests_install_the_rest(tmp_path: Path) -> None:
    lines = run_target(tmp_path, "test", "GPU=")
    extras = [line for line in lines if "-e " in line]
    assert [line.split("-e ")[1] for line in extras] == [
        ".[train]",
        ".[train,nnunet,export,train-agents,cluster,search,s3,gcs,ssh,croissant,dicom,parquet,zarr,serve,log,otel,docs,dev]",
    ]
    assert lines[-1].startswith("pytest -n 3")


@pytest.mark.parametrize(("brings", "wheels"), [("nvidia-cublas", True), ("filelock", False)])
def test_networks_of_libraries_have_an_environment_of_their_own_with_the_torch_that_they_were_built_for(
    tmp_path: Path, brings: str, wheels: bool
) -> None:
    lines = run_target(tmp_path, "test-slow", "GPU=", brings=brings)
    extras = ".[train,vision,wandb,ocr]"
    [install] = [line for line in lines if extras in line]
    vision = tmp_path / ".venv/vision"
    index = "--extra-index-url https://download.pytorch.org/whl/cpu " if wheels else ""
    assert (
        install
        == f"pip install --quiet -c {vision}/pins.txt {index}-e {extras} trackio>=0.43,<0.44 hypothesis pytest pytest-xdist"
    )
    pinned = {Requirement(line).name for line in (vision / "pins.txt").read_text().splitlines()}
    assert "timm" in pinned
    assert not pinned & {"pillow", "torch", "torchvision", "nvidia-cublas"}
    assert "tests/pipeline/test_pipeline_vision.py" in lines[-1]
    assert "tests/loggers/test_trackers.py" in lines[-1]


def test_the_audit_skips_no_package_and_says_what_a_failure_means(tmp_path: Path) -> None:
    """pip-audit by itself passes where it could ask about nothing."""
    commands = tmp_path / ".venv/bin"
    commands.mkdir(parents=True)
    for name in ("pip", "python", "bandit"):
        (commands / name).write_text("#!/bin/sh\n")
    (commands / "pip-audit").write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/log\nexit 1\n')
    for file in commands.iterdir():
        file.chmod(0o755)
    command = ["make", "-C", str(ROOT), "audit", f"VENV={tmp_path / '.venv'}", "GPU="]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "over a network" in done.stderr
    arguments = (tmp_path / "log").read_text()
    assert "--strict" in arguments
    assert "-r requirements.lock" in arguments


def test_real_data_sets_are_asked_for_by_name_and_given_to_their_tests(tmp_path: Path) -> None:
    sets, log = tmp_path / "sets", tmp_path / "log"
    sets.mkdir()
    run_target(tmp_path, "test", "GPU=")  # what is installed already says nothing of sizes
    command = ["make", "-C", str(ROOT), "test-real", f"VENV={tmp_path / '.venv'}", f"DATA={sets}"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode != 0
    assert f"no EXPECTED.json in '{sets}'; tests/real/real_kit.py says what it holds" in refused.stderr
    assert not log.exists(), "nothing was run"
    (sets / "EXPECTED.json").write_text("[]")
    (tmp_path / ".venv/bin/pytest").write_text(f'#!/bin/sh\necho "$M3B_FIELD_DATA: $*" >> "{log}"\n')
    assert subprocess.run(command, capture_output=True, text=True).returncode == 0
    assert log.read_text() == f"{sets}: -n 3 --dist loadfile --durations=25 -m real tests/real\n"


def test_what_must_pass_are_the_commands_of_the_readme_in_its_order() -> None:
    block = (ROOT / "README.md").read_text().partition("## Try it")[2].partition("```console\n")[2].partition("```")[0]
    readme_commands = [line.removeprefix("$ ").partition("#")[0].strip() for line in block.splitlines()]
    assert readme_commands[0].startswith("git clone")
    run = (ROOT / ".ci/run").read_text().splitlines()
    assert len(readme_commands) == 5
    assert [line for line in run if line in readme_commands] == readme_commands[1:]


def test_measuring_a_gpu_installs_nothing(tmp_path: Path) -> None:
    """A GPU's machine has a torch of its own, and often no index to install from."""
    command = [
        "make",
        "-C",
        str(ROOT),
        "--dry-run",
        "--no-print-directory",
        "bench-gpu",
        f"VENV={tmp_path}",
        "PYTHON=py",
    ]
    assert subprocess.check_output(command, text=True).splitlines() == ["py benchmarks/gpu.py"]
