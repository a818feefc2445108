"""Where pretrained weights lie on this machine: a folder an entry, with safetensors and a description of their origin."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from m3b.errors import ModelError

WEIGHTS_DIR_VARIABLE = "M3B_WEIGHTS"
"""The environment's word for the folder; without it, `~/.cache/m3b/weights`."""
DESCRIPTION_FILE = "m3b-start.json"
"""What a folder of the store says of itself: entry, licence, origin, SHA-256 of its files."""
WEIGHTS_FILE = "model.safetensors"
MAX_HEADER_BYTES = 100_000_000
"""Bytes of the head of a safetensors file, as its format allows."""


@dataclass(frozen=True)
class StoredWeights:
    """Weights that are here.

    Args:
        megabytes: of the weights.
    """

    folder: Path
    megabytes: float


def store_dir() -> Path:
    """The folder of weights, which need not exist yet."""
    configured = os.environ.get(WEIGHTS_DIR_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(configured).expanduser() if configured else Path(base) / "m3b" / "weights"


def find_stored_weights(name: str) -> StoredWeights | None:
    """The weights of an entry where they have been fetched, else None."""
    folder = store_dir() / name
    weights = sorted(folder.glob("*.safetensors"))
    if not (folder / DESCRIPTION_FILE).is_file() or not weights:
        return None
    return StoredWeights(folder, sum(file.stat().st_size for file in weights) / 2**20)


def count_tensors(file: Path) -> int:
    """How many tensors a safetensors file names; its head alone is read.

    Raises:
        ModelError: the file is cut off, damaged or of another kind.
    """
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        is_plausible = 2 <= length <= min(file.stat().st_size - 8, MAX_HEADER_BYTES)
        try:
            header = json.loads(stream.read(length)) if is_plausible else None
            tensor_ends = (
                [int(tensor["data_offsets"][1]) for name, tensor in header.items() if name != "__metadata__"]
                if header
                else []
            )
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            tensor_ends = []
    if not tensor_ends or 8 + length + max(tensor_ends) != file.stat().st_size:
        raise ModelError(f"{file} is damaged, cut off or no safetensors file. Get it again.")
    return len(tensor_ends)


def write_description(folder: Path, description: dict[str, object]) -> None:
    """Write the folder's description."""
    (folder / DESCRIPTION_FILE).write_text(
        json.dumps(description, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
