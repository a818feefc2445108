"""Files of pretrained weights: which ones a folder has, and the names and shapes of their tensors. Pickles are never opened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".model", ".pkl", ".npz")


class StartError(ValueError):
    """Weights that cannot be used; says which file, what is wrong and what to do."""


def find_weight_files(path: Path) -> tuple[Path, ...]:
    """Return the safetensors files of a folder (all parts of them), or the file itself. Raises StartError."""
    folder = path if path.is_dir() else path.parent
    if path.is_file() and path.suffix == ".safetensors":
        return (path,)
    weight_map = read_json(folder / "model.safetensors.index.json").get("weight_map")
    if path.is_dir() and isinstance(weight_map, dict):
        shards = tuple(folder / Path(str(name)).name for name in sorted(set(weight_map.values())))
        if missing := [shard.name for shard in shards if not shard.is_file()]:
            raise StartError(
                f"{folder}: {missing[0]} is missing, one of {len(shards)} parts of the weights; copy it there"
            )
        return shards
    files = sorted(folder.glob("*.safetensors")) if path.is_dir() else []
    candidates = [file for file in files if file.name == "model.safetensors"] or files
    if len(candidates) == 1:
        return (candidates[0],)
    if len(candidates) > 1:
        raise StartError(f"{folder}: {len(candidates)} safetensors files; name the one that is meant")
    pickles = (
        [path] if path.is_file() else [file for file in sorted(folder.glob("*")) if file.suffix in PICKLE_SUFFIXES]
    )
    if pickles:
        raise StartError(
            f"{pickles[0]} is no safetensors file, and a pickle runs code when it is opened: "
            f"`m3b models convert {pickles[0]} -o FOLDER` converts it in the sandbox; then name that FOLDER"
        )
    raise StartError(f"{folder} has no *.safetensors")


def read_tensor_names(file: Path) -> list[str]:
    """Return the names of the tensors. Raises StartError for a damaged file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), "pt") as stored:
            return list(stored.keys())
    except (SafetensorError, OSError) as error:
        raise StartError(f"{file} is damaged, cut off or no safetensors file ({error}): fetch it again") from error


def read_tensor_shapes(files: Sequence[Path]) -> dict[str, list[int]]:
    """Return name -> shape of every tensor, from the headers of the files. Raises StartError."""
    from safetensors import safe_open

    shapes: dict[str, list[int]] = {}
    for file in files:
        names = read_tensor_names(file)
        with safe_open(str(file), "pt") as stored:
            shapes |= {name: list(stored.get_slice(name).get_shape()) for name in names}
    return shapes


def read_json(file: Path) -> dict[str, Any]:
    """Return the object of a JSON file; {} without the file, or without an object in it. Raises StartError."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StartError(f"{file} is no JSON: {error}") from error
    return value if isinstance(value, dict) else {}
