"""The distribution: what its metadata says, and what its wheel holds."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import m3b

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDED = [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]
FOLDERS = ("prompts", "templates", "indexes", "datacards")


def test_the_version_is_said_once_and_the_same() -> None:
    assert PROJECT["version"] == m3b.__version__
    assert Version(m3b.__version__) > Version("0")


@pytest.mark.parametrize("line", NEEDED)
def test_every_dependency_has_a_lower_and_an_upper_bound(line: str) -> None:
    signs = {specifier.operator for specifier in Requirement(line).specifier}
    assert ">=" in signs
    assert "<" in signs


def test_the_pinned_versions_lie_within_the_bounds() -> None:
    bounds = {Requirement(line).name.lower(): Requirement(line).specifier for line in NEEDED}
    pins = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    pinned = {name.lower(): version for name, version in pins}
    assert set(bounds) <= set(pinned)
    wrong = [f"{name} {pinned[name]}" for name, bound in bounds.items() if pinned[name] not in bound]
    assert not wrong


def test_torch_is_an_extra() -> None:
    base = {Requirement(line).name for line in PROJECT["dependencies"]}
    training = {Requirement(line).name for line in EXTRAS["train"]}
    assert not base & {"torch", "monai", "transformers", "accelerate"}
    assert {"torch", "monai", "transformers"} <= training


def test_the_licence_is_apache() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Version 2.0, January 2004" in text
    assert "9. Accepting Warranty or Additional Liability" in text


@pytest.mark.parametrize("name", FOLDERS)
def test_every_resource_folder_holds_files_that_are_kept(name: str) -> None:
    """An empty folder is not in a clone, and an ignored file is not in a wheel."""
    files = [file for file in (ROOT / "resources" / name).rglob("*") if file.is_file()]
    assert files
    ignored = subprocess.run(
        ["git", "check-ignore", "--no-index", *map(str, files)], cwd=ROOT, capture_output=True, text=True
    )
    if ignored.returncode == 128:
        pytest.skip("this is no git checkout")
    tracked = set(map(str, files)) - set(ignored.stdout.splitlines())
    assert tracked


# --- the wheel ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    alone = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", *alone, "-w", str(out)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if built.returncode and "hatchling" in built.stderr and not alone:
        pytest.skip("hatchling is not installed, and cannot be downloaded")
    assert built.returncode == 0, built.stderr
    (file,) = out.glob("m3b-*.whl")
    return file


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(wheel_file)


@pytest.mark.slow
def test_the_wheel_holds_everything(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {"m3b/py.typed", "m3b/llm/models.json", "m3b/report/static/style.css"} <= names
    assert f"m3b-{m3b.__version__}.dist-info/licenses/LICENSE" in names
    for folder in (*FOLDERS, "templates/diagnosis", "templates/segmentation"):
        wheel_files = {name.removeprefix("m3b/") for name in names if name.startswith(f"m3b/resources/{folder}/")}
        source_files = {
            str(file.relative_to(ROOT))
            for file in (ROOT / "resources" / folder).rglob("*")
            if file.is_file() and file.suffix in (".py", ".md", ".json", ".sh") and "_cache" not in str(file)
        }
        assert wheel_files
        assert source_files <= wheel_files
    sources = {str(file.relative_to(ROOT / "src")) for file in (ROOT / "src").rglob("*.py")}
    assert sources <= names


@pytest.mark.slow
def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    for name in wheel.namelist():
        assert not re.search(r"(^|/)(\.|__pycache__|tests?/|runs/)|\.pyc$|\.safetensors$", name), name
    assert sum(item.compress_size for item in wheel.infolist()) < 4 * 2**20


@pytest.mark.slow
def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    info = f"m3b-{m3b.__version__}.dist-info"
    metadata = message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "What leaves the machine" in str(metadata.get_payload())
    assert "m3b = m3b.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()


@pytest.mark.slow
def test_the_unpacked_wheel_works_without_the_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    program = (
        "import json, m3b; from m3b.resources import get_resources_folder; "
        "print(json.dumps([m3b.__file__, str(get_resources_folder()), len(m3b.Workspace.default().cards)]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr
    package, resources, cards = json.loads(ran.stdout)
    assert Path(package).is_relative_to(tmp_path)
    assert Path(resources).is_relative_to(tmp_path)
    assert cards > 40


@pytest.mark.slow
def test_the_installed_wheel_works_in_a_bare_environment(wheel_file: Path, tmp_path: Path) -> None:
    """A new environment outside of the checkout, with m3b and what it needs, in the versions of constraints.txt."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel_file)]
    installed = subprocess.run([environment / "bin/python", *install], capture_output=True, text=True)
    if "No matching distribution" in installed.stderr or "Connection" in installed.stderr:
        pytest.skip("no package index can be reached")
    assert installed.returncode == 0, installed.stderr

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
        return subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=900)

    assert run("m3b", "--version").stdout == f"m3b {m3b.__version__}\n"
    doctor = run("m3b", "doctor")
    assert doctor.returncode == 1, "training packages are an extra"
    assert "Missing for training" in doctor.stdout
    assert "No sandbox works" not in doctor.stdout
    assert run("m3b", "data", "make", "chest", "xrays", "--cases", "40").returncode == 0
    look = run("m3b", "look", "xrays", "Tell clear from opacity", "--json")
    assert look.returncode == 0, look.stderr
    assert json.loads(look.stdout)
    refused = run("m3b", "run", "Tell clear from opacity", "--data", "xrays", "--log", "tensorboard")
    assert refused.returncode == 2
    assert "m3b[log]" in refused.stderr
