"""Weights of other formats to safetensors: run by itself in the sandbox, never imported by m3b.

    python converter.py WEIGHTS OUT.safetensors [LAYOUT.json]

LAYOUT.json is the `layout` of an entry of the registry: how names and axes of the file become those of the network.

Torch's own restricted reader is tried first (`weights_only`). Where a file pickles whole modules, which that reader refuses,
a second one rebuilds tensors and containers only: every other class becomes an inert record of its attributes, so that
tensors can be found in it while none of its code is there to run.
"""

from __future__ import annotations

import json
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

WRAPPERS = ("network_weights", "state_dict", "model_state_dict", "net", "model", "module", "ema", "teacher")
"""Keys under which checkpoints keep the weights beside optimisers and counters; the first one there is taken."""
ALLOWED = {
    ("torch._utils", "_rebuild_tensor"), ("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_parameter"),
    ("collections", "OrderedDict"), ("builtins", "dict"), ("builtins", "list"), ("builtins", "tuple"), ("builtins", "set"),
}  # fmt: skip


class Inert:
    """Stands for any object that is no tensor and no container: keeps its attributes, does nothing."""

    def __new__(cls, *_: Any, **__: Any) -> Inert:
        return object.__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        self.items: dict[Any, Any] = {}

    def __setstate__(self, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.__dict__.update({str(key): value for key, value in part.items()})

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__dict__.setdefault("items", {})[key] = value

    def __call__(self, *_: Any, **__: Any) -> Inert:
        return Inert()

    def append(self, _: Any) -> None:
        """Lists of a class of their own."""

    def extend(self, _: Any) -> None:
        """The same."""

    def add(self, _: Any) -> None:
        """Sets of a class of their own."""


class InertUnpickler(pickle.Unpickler):
    """Finds what `ALLOWED` names, and an inert record for everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ALLOWED:
            return super().find_class(module, name)
        return Inert


def _load(stream: Any, **_: Any) -> Any:
    return InertUnpickler(stream).load()


def tensors_in(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of a module's record, a state dict, or what a checkpoint wraps."""
    import torch

    if depth > 64:
        return
    if isinstance(value, torch.Tensor):
        yield prefix, value
        return
    inner: Mapping[Any, Any] = {}
    if isinstance(value, Inert):
        attributes = value.__dict__
        for part in ("_parameters", "_buffers", "_modules"):
            if isinstance(attributes.get(part), dict):
                inner = {**inner, **attributes[part]}
    elif isinstance(value, dict):
        inner = value
        wrapped = next((key for key in WRAPPERS if isinstance(value.get(key), dict | Inert)), None)
        if not prefix and wrapped and not any(isinstance(item, torch.Tensor) for item in value.values()):
            inner = value[wrapped] if isinstance(value[wrapped], dict) else {"": value[wrapped]}
    for key, item in inner.items():
        name = f"{prefix}.{key}" if prefix and key else prefix or str(key)
        yield from tensors_in(item, name, depth + 1)


def read(file: Path) -> tuple[dict[str, Any], str]:
    """The tensors of a file and how they were read. Raises ValueError in words for people."""
    import torch

    if file.suffix == ".npz":
        import numpy as np

        with np.load(file, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(np.array(arrays[name])) for name in arrays.files}, "numpy, no pickle"
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                raise ValueError("a TorchScript archive, which is a program; get the state dict instead")
    try:
        content, how = torch.load(file, map_location="cpu", weights_only=True), "weights_only"
    except (pickle.UnpicklingError, RuntimeError):
        restricted: Any = SimpleNamespace(Unpickler=InertUnpickler, load=_load, __name__="inert")
        content, how = (
            torch.load(file, map_location="cpu", weights_only=False, pickle_module=restricted),
            "inert records",
        )
    return dict(tensors_in(content)), how


def read_onnx(file: Path) -> dict[str, Any]:
    """Return the initializers of an ONNX graph by name.

    Exporters rename the transposed matrices of linear layers to `onnx::MatMul_<n>`. Such a matrix gets its name back, that of the bias
    which is added to the product, else of the path of the node: `/encoder/layer.0/query/MatMul` -> `encoder.layer.0.query.weight`.

    Raises:
        ValueError: the package onnx is missing, or the file is no ONNX graph.
    """
    import torch

    try:
        import onnx
    except ImportError:
        raise ValueError("reading an ONNX file needs the package onnx: pip install onnx") from None
    try:
        graph = onnx.load(str(file), load_external_data=False).graph
        tensors = {
            tensor.name: torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer
        }
    except Exception as error:  # protobuf has errors of its own
        raise ValueError(f"no ONNX graph with its weights inside: {type(error).__name__}: {error}") from error
    biases = {
        value: name.removesuffix(".bias")
        for node in graph.node
        if node.op_type == "Add"
        for name in node.input
        if name in tensors and name.endswith(".bias")
        for value in node.input
    }
    for node in graph.node:
        for name in node.input:
            if node.op_type == "MatMul" and name.startswith("onnx::MatMul_") and name in tensors:
                path = node.name.strip("/").rpartition("/")[0].replace("/", ".")
                tensors[f"{biases.get(node.output[0], path)}.weight"] = tensors.pop(name).T
    return tensors


def lay_out(tensors: dict[str, Any], layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors with the names and axes of the network.

    Args:
        layout: `joins`, name -> names of tensors that are joined along their second axis; `prefix`, which all names of the network
            have and lose; `axes`, for kernels of volumes the axis of the file that each axis of the network is, and
            `flips`, which of the network's axes run the other way round.

    Raises:
        ValueError: a tensor that is to be joined is missing.
    """
    import torch

    tensors = dict(tensors)
    for name, parts in (layout.get("joins") or {}).items():
        missing = [part for part in parts if part not in tensors]
        if missing:
            raise ValueError(f"{missing[0]} is missing, a part of {name}: this is another version of the file")
        tensors[name] = torch.cat([tensors.pop(part) for part in parts], dim=1)
    prefix = str(layout.get("prefix") or "")
    tensors = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if axes := layout.get("axes"):
        order, flips = [0, 1, *(axis + 2 for axis in axes)], [axis + 2 for axis in layout.get("flips") or ()]
        tensors = {
            name: value.permute(order).flip(flips) if value.ndim == len(order) else value
            for name, value in tensors.items()
        }
    return tensors


def main(argv: list[str]) -> int:
    """The exit code; one line of JSON says how it went."""
    from safetensors.torch import save_file

    source, out = Path(argv[0]), Path(argv[1])
    try:
        tensors, how = (read_onnx(source), "onnx") if source.suffix == ".onnx" else read(source)
        if len(argv) > 2:
            tensors = lay_out(tensors, json.loads(Path(argv[2]).read_text(encoding="utf-8")))
    except (pickle.UnpicklingError, ValueError, RuntimeError, EOFError, KeyError, OSError, zipfile.BadZipFile) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {str(error)[:300]}"}))
        return 1
    dense = {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items() if not tensor.is_sparse}
    if not dense:
        print(json.dumps({"error": "no tensors were found in it"}))
        return 1
    save_file(OrderedDict(sorted(dense.items())), str(out))
    print(json.dumps({"tensors": len(dense), "how": how}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
