"""Parts of a deliverable besides its weights: the code that predict.py imports, requirements, config.json and README."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from m3b.training.recipe import RECIPE_FILE

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
"""Packages that every deliverable needs."""
PREDICT_FILE, MODULES_FILE = "predict.py", "parts.py"
RUNTIME = "m3b_runtime"
"""Package of a deliverable with the modules of m3b that it needs."""
FORMATS = Path("dataset", "formats")
"""The package that reads images, masks and arrays; it is copied completely."""
TRAINING_METHODS = frozenset(
    {"_build_augmentation", "build_datasets", "build_loss", "build_sampler", "build_schedule", "list_engine_methods"}
)
"""Methods of a recipe that no deliverable calls."""
PRETRAINED_MODULES = frozenset(
    {
        f"m3b.training.{name}"
        for name in (
            "feature_pyramid", "pretrained.backbones", "pretrained.backbones_2d", "pretrained.delivered", "pretrained.backbones_3d",
            "pretrained.detector_files", "pretrained.external_backbones", "pretrained.starts", "pretrained.tensors",
            "pretrained.weight_files",
        )
    }
)  # fmt: skip
"""Modules that build pretrained networks."""
LIBRARY_MODULES = frozenset({"m3b.training.diagnosis.library_networks"})
"""Modules that build networks of timm and torchvision by name."""
_PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
_M3B_IMPORT = re.compile(r"^(\s*(?:from|import) )m3b\.(?=training\b|dataset\b)", re.MULTILINE)


def list_scripts(modules: Path) -> dict[str, Path]:
    """Return the scripts of a deliverable whose network can be exported: name -> file.

    Args:
        modules: file with the parts of the network.
    """
    return {PREDICT_FILE: Path(PREDICT_FILE), RECIPE_FILE: Path(RECIPE_FILE), MODULES_FILE: modules}


def copy_code(out: Path, network: Mapping[str, Any], scripts: Mapping[str, Path]) -> None:
    """Copy scripts into a deliverable, with the modules of their folders and of m3b that they import, directly or not.

    The modules of m3b become the package `m3b_runtime`, so that the deliverable runs without m3b.

    Args:
        out: the deliverable; a runtime of an earlier export is removed.
        network: of plan.json; modules that build pretrained networks, or those of libraries, are copied only if it is one.
        scripts: name in the deliverable -> file.
    """
    excluded = frozenset() if (network.get("config") or {}).get("builder") else PRETRAINED_MODULES
    excluded |= frozenset() if ":" in str(network.get("name", "")) else LIBRARY_MODULES
    scripts = _with_own_modules(scripts)
    modules = find_modules(scripts.values(), excluded)
    shutil.rmtree(out / RUNTIME, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    for file in modules:
        target = out / RUNTIME / file.relative_to(_PACKAGE_FOLDER)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_module(file, target)
    shutil.copytree(_PACKAGE_FOLDER / FORMATS, out / RUNTIME / FORMATS, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (out / RUNTIME, out / RUNTIME / FORMATS.parent):
        (folder / "__init__.py").write_text('"""The parts of m3b that this model needs."""\n', encoding="utf-8")
    for name, file in scripts.items():
        _copy_module(file, out / name)


def _with_own_modules(scripts: Mapping[str, Path]) -> dict[str, Path]:
    """Return the scripts with the modules beside them that they import, e.g. one that `postprocess` of recipe.py calls."""
    result = dict(scripts)
    pending = list(scripts.values())
    while pending:
        script = pending.pop()
        for name, _ in _list_imports(script):
            file = script.with_name(f"{name}.py")
            if "." not in name and file.name not in result and file.is_file():
                result[file.name] = file
                pending.append(file)
    return result


def _copy_module(file: Path, target: Path) -> None:
    text = file.read_text(encoding="utf-8")
    target.write_text(_M3B_IMPORT.sub(rf"\1{RUNTIME}.", text), encoding="utf-8")


def find_modules(scripts: Iterable[Path], excluded: Collection[str] = ()) -> list[Path]:
    """Return the files of `m3b.training` that scripts import, directly or not, and the packages around them.

    Args:
        excluded: modules that are left out if they are imported within functions only.
    """
    files: dict[str, Path] = {}
    pending = [item for script in scripts for item in _list_imports(script)]
    while pending:
        name, is_lazy = pending.pop()
        file = _find_module(name)
        if file is None or name in files or (is_lazy and name in excluded):
            continue
        files[name] = file
        pending += [*_list_imports(file), (name.rpartition(".")[0], False)]
    return sorted(files.values())


def _find_module(name: str) -> Path | None:
    """Return the file of a module or package of `m3b.training`; None if the name is neither."""
    package, *parts = name.split(".")
    if package != "m3b" or not parts or parts[0] != "training":
        return None
    path = _PACKAGE_FOLDER.joinpath(*parts)
    candidates = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in candidates if file.is_file()), None)


def _list_imports(file: Path) -> list[tuple[str, bool]]:
    """Return the dotted names that a file imports, and whether only functions do; some are names within modules."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    lazy_nodes = {id(inner) for function in functions for inner in ast.walk(function)}
    unused_nodes = {
        id(inner) for function in functions if function.name in TRAINING_METHODS for inner in ast.walk(function)
    }
    return [
        (name, id(node) in lazy_nodes)
        for node in ast.walk(tree)
        if id(node) not in unused_nodes
        for name in _list_imported_names(node)
    ]


def _list_imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def write_texts(out: Path, config: Mapping[str, Any], packages: Iterable[str], readme: str) -> None:
    """Write config.json, requirements.txt with the installed versions, and README.md."""
    lines = [_pin_version(name) for name in dict.fromkeys((*REQUIREMENTS, *packages))]
    (out / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "README.md").write_text(readme, encoding="utf-8")


def _pin_version(name: str) -> str:
    try:
        return f"{name}=={version(name).split('+')[0]}"
    except PackageNotFoundError:
        return name
