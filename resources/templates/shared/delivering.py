"""What a deliverable has besides its weights: the code that predict.py imports, its requirements, config.json and README."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .using import CODE, code

REQUIREMENTS = (
    "torch",
    "numpy",
    "scipy",
    "safetensors",
    "pillow",
    "pydicom",
    "nibabel",
    "SimpleITK",
    "h5py",
    "tifffile",
    "imagecodecs",
)
"""What every deliverable needs."""
PREDICTS = {"predict.py": "predict.py", "parts.py": "parts.py"}
FOLDERS = ("Model", "Utils", "Fewshot")
"""Packages that a deliverable may have."""
FORMATS = Path("Utils/formats")
"""The package that reads images, masks and arrays of any format."""


def put_code(
    out: Path,
    network: Mapping[str, Any],
    scripts: Mapping[str, str] = PREDICTS,
    packages: Sequence[str] = ("Model", "Utils"),
    root: Path = Path(),
) -> None:
    """Copies scripts of `deliver/`, every module of the project that they import, by way of others too, and the readers of images.

    Args:
        out: the deliverable; packages that lie there from an earlier export are removed.
        network: of plan.json; what builds pretrained networks goes along only if this is one.
        scripts: file in `deliver/` -> its name in the deliverable.
        packages: folders of the project whose modules may go along.
    """
    deliver = root / "deliver"
    leave = {f"Utils.{name}" for name in set(CODE) - set(code(network))}
    files = needed([deliver / script for script in scripts], packages, leave, root)
    for package in FOLDERS:
        shutil.rmtree(out / package, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    for file in files:
        (out / file.parent.name).mkdir(exist_ok=True)
        shutil.copy(file, out / file.parent.name)
    shutil.copytree(root / FORMATS, out / FORMATS, ignore=shutil.ignore_patterns("__pycache__"))
    for script, name in scripts.items():
        shutil.copy(deliver / script, out / name)


def needed(
    scripts: Sequence[Path], packages: Collection[str], leave: Collection[str] = (), root: Path = Path()
) -> list[Path]:
    """The modules in these packages that the scripts are made of, found by following their imports; without those in `leave` that
    are imported inside of functions alone."""
    found: dict[str, Path] = {}
    waiting = [one for script in scripts for one in _imports(script, "")]
    while waiting:
        name, at_once = waiting.pop()
        package, _, module = name.partition(".")
        file = root / package / f"{module or '__init__'}.py"
        left = name in leave and not at_once
        if name in found or left or package not in packages or not file.is_file():
            continue
        found[name] = file
        waiting += [*_imports(file, package), (package, True)]
    return sorted(found.values())


def _imports(file: Path, package: str) -> list[tuple[str, bool]]:
    """Dotted names that a file may import, and whether it does as soon as it is loaded; some are names within modules."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    later = {id(inside) for function in functions for inside in ast.walk(function)}
    return [(name, id(node) not in later) for node in ast.walk(tree) for name in _names(node, package)]


def _names(node: ast.AST, package: str) -> Iterator[str]:
    """What an import names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(part for part in (package if node.level else "", node.module or "") if part)
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def put_texts(out: Path, config: Mapping[str, Any], packages: Iterable[str], readme: str) -> None:
    """config.json, requirements.txt with the versions that are installed here, README.md."""
    lines = [_pinned(name) for name in dict.fromkeys((*REQUIREMENTS, *packages))]
    (out / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "README.md").write_text(readme, encoding="utf-8")


def _pinned(name: str) -> str:
    try:
        return f"{name}=={version(name).split('+')[0]}"
    except PackageNotFoundError:
        return name
