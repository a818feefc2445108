"""Run in a process of its own, with a deliverable's code loaded: turn its parts into graphs or a state dict.

    python m3b_child.py onnx|state|compare|bundle FOLDER REQUEST.json RESULT.json

Imports nothing of m3b: the process only has the deliverable and pip packages. `compare` and `bundle` load the export.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any


def load_parts(folder: Path) -> Any:
    """Import the module `parts` of a deliverable."""
    sys.path.insert(0, str(folder))
    import parts  # type: ignore[import-not-found]

    return parts


def to_arrays(outputs: Any) -> list[Any]:
    """Return the tensors of a module's output as NumPy arrays."""
    tensors = outputs if isinstance(outputs, tuple | list) else [outputs]
    return [tensor.detach().cpu().numpy() for tensor in tensors]


def to_onnx(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Write one graph a part into `request["out"]`, and next to each the inputs and outputs to compare with."""
    import numpy as np
    import torch

    source = load_parts(folder)
    out, graphs = Path(request["out"]), []
    examples = source.examples(request["images"])
    for name, part in source.parts().items():
        if part.get("graph") is False:
            continue
        pairs, module = examples[name], part["module"]
        for tensor in module.parameters():  # if `state_dict` repacks a weight, tracing would treat it as a constant
            tensor.data = tensor.data.contiguous()
        names = [*part["inputs"], *part["outputs"]]
        axes = part.get("dynamic") or {tensor_name: {0: "batch"} for tensor_name in names}
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tracing warnings: the comparison decides whether the graph is right
            torch.onnx.export(
                module,
                pairs[0],
                str(out / f"{name}.onnx"),
                dynamo=False,
                opset_version=20,
                input_names=part["inputs"],
                output_names=part["outputs"],
                dynamic_axes=axes,
            )
            for number, inputs in enumerate(pairs):
                input_arrays = {f"in_{key}": value.numpy() for key, value in zip(part["inputs"], inputs, strict=True)}
                values = zip(part["outputs"], to_arrays(module(*inputs)), strict=True)
                np.savez(out / f"{name}.{number}.npz", **input_arrays, **{f"out_{key}": value for key, value in values})
        graphs.append({"name": name, "file": f"{name}.onnx", "pairs": len(pairs), "about": part.get("about", "")})
    return {"facts": source.facts(), "graphs": graphs}


def compare(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Compare graphs in `folder`, run by ONNX Runtime, with the stored outputs: shapes and the largest difference."""
    import numpy as np
    import onnx
    import onnxruntime

    graphs = []
    for graph in request["graphs"]:
        onnx.checker.check_model(str(folder / graph["file"]))
        session = onnxruntime.InferenceSession(str(folder / graph["file"]), providers=["CPUExecutionProvider"])
        largest = 0.0
        input_names = [item.name for item in session.get_inputs()]
        for number in range(graph["pairs"]):
            with np.load(folder / f"{graph['name']}.{number}.npz") as stored:
                feed = {name: stored[f"in_{name}"] for name in input_names}
                expected = {key[4:]: stored[key] for key in stored.files if key.startswith("out_")}
            for item, value in zip(session.get_outputs(), session.run(None, feed), strict=True):
                if value.shape != expected[item.name].shape:
                    raise SystemExit(f"{graph['file']}: {item.name} is {value.shape}, not {expected[item.name].shape}")
                if value.size:
                    largest = max(largest, float(np.abs(value.astype(float) - expected[item.name]).max()))
        inputs, outputs = (
            [{"name": tensor.name, "shape": tensor.shape, "type": tensor.type} for tensor in tensors]
            for tensors in (session.get_inputs(), session.get_outputs())
        )
        graphs.append({**graph, "inputs": inputs, "outputs": outputs, "largest_difference": largest})
    return {"graphs": graphs, "onnxruntime": onnxruntime.__version__}


def to_state(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Write the main part's state dict as `model.pt` (tensors only), and inputs and outputs to compare with."""
    import numpy as np
    import torch

    source = load_parts(folder)
    facts, out = source.facts(), Path(request["out"])
    main = facts["main"]
    module = source.parts()[main]["module"]
    torch.save({key: value.contiguous() for key, value in module.state_dict().items()}, out / "model.pt")
    with torch.no_grad():
        inputs = source.examples(request["images"])[main][0]
        outputs = to_arrays(module(*inputs))
    np.savez(out / "pair.npz", *[tensor.numpy() for tensor in inputs], **{f"out_{i}": v for i, v in enumerate(outputs)})
    shapes = [list(value.shape) for value in outputs]
    return {
        "facts": facts,
        "inputs": [list(t.shape) for t in inputs],
        "outputs": shapes,
        "simple": _is_single_input(source),
    }


def _is_single_input(source: Any) -> bool:
    return hasattr(source, "prepare") and hasattr(source, "answer")


def run_bundle(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Run the bundle by MONAI's own tools: check its shapes, compare its network, and run it on images."""
    import numpy as np
    import torch
    from monai.bundle import ConfigParser, verify_net_in_out
    from monai.bundle import run as bundle_run

    config, meta = str(folder / "configs/inference.json"), str(folder / "configs/metadata.json")
    parser = ConfigParser()
    parser.read_config(config)
    parser["bundle_root"] = str(folder)
    network = parser.get_parsed_content("network").cpu().eval()
    with np.load(request["pair"]) as stored, torch.no_grad():
        inputs = [torch.from_numpy(stored[name]) for name in stored.files if name.startswith("arr_")]
        expected = [stored[name] for name in stored.files if name.startswith("out_")]
        values = to_arrays(network(*inputs))
    pairs = zip(values, expected, strict=True)
    difference = max((float(np.abs(a.astype(float) - b).max()) for a, b in pairs if a.size), default=0.0)
    verify_net_in_out("network_def", meta_file=meta, config_file=config, device="cpu", bundle_root=str(folder))
    if request["images"]:
        bundle_run(
            config_file=config, meta_file=meta, bundle_root=str(folder), images=request["images"], output=request["out"]
        )
    return {"network_difference": difference}


def main() -> None:
    """Run the action of the command line."""
    action, folder, request_file, response_file = sys.argv[1:]
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # graphs are traced, and compared, on the CPU
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    actions = {"onnx": to_onnx, "compare": compare, "state": to_state, "bundle": run_bundle}
    answer = actions[action](Path(folder), request)
    Path(response_file).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
