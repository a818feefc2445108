"""A MONAI bundle: configs, weights and the delivered code, run and checked by MONAI's own tools."""

from __future__ import annotations

import json
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.errors import ModelError
from m3b.models.card_figures import escape_markdown
from m3b.models.loading import MAX_CARD_BYTES
from m3b.reader.outside import open_reader
from m3b.resources import get_resources_folder
from m3b.untrusted import copy_file

from .child import (
    MAX_EXPORT_DIFFERENCE,
    ChildProcesses,
    ExportResult,
    check_difference,
    package_versions,
    require_packages,
    write_json,
)
from .metadata import make_metadata
from .parity import COMPARE, OutputsToCompare

_EXCLUDED_PATTERNS = (
    "*.safetensors",
    "__pycache__",
    "*.pyc",
    "README.md",
    "metrics.json",
    "provenance.json",
    "requirements.txt",
)


def to_bundle(source: Path, target: Path, children: ChildProcesses) -> ExportResult:
    """Write the bundle of a deliverable into `target`; MONAI loads it, checks its shapes and runs it on the images."""
    require_packages(("torch", "monai"), "train")
    for name in ("configs", "models", "docs", "scripts"):
        (target / name).mkdir()
    images, written = children.images, children.folder("state")
    state = children.act("state", source, {"images": images, "out": str(written)}, written)
    copy_file(written, "model.pt", target / "models", "model.pt")
    _copy_code(source, target / "scripts" / "deliverable")
    shutil.copy(get_resources_folder() / "exports" / "bridge.py", target / "scripts" / "bridge.py")
    (target / "scripts" / "__init__.py").write_text('"""Code of the bundle."""\n', encoding="utf-8")
    facts = state["facts"]
    if covariate_names := facts.get("beside"):
        problem = f"a MONAI bundle takes an image alone, and this model is given {', '.join(covariate_names)} too"
        raise ModelError(f"{problem}; export it to ONNX")
    write_json(target / "configs" / "inference.json", inference_config(state["simple"]))
    write_json(target / "configs" / "metadata.json", make_metadata(facts, state, _read_card_title(source)))
    out = children.folder("bundle") / "predictions.json"
    request = {"images": images, "out": str(out), "pair": str(written / "pair.npz")}
    largest = float(children.act("bundle", target, request, out.parent, (written,))["network_difference"])
    check_difference(largest, "the bundle's network")
    if images:
        largest = max(largest, _compare_predictions(source, children, out))
        check_difference(largest, "the bundle's prediction")
    compared = f"the predictions of {len(images)} image(s)" if images else "the network's output on noise"
    _remove_caches(target)
    (target / "docs" / "README.md").write_text(_readme(facts, state["simple"], compared, largest), encoding="utf-8")
    return ExportResult("monai-bundle", target, compared, largest)


def inference_config(is_single_input: bool) -> dict[str, Any]:
    """configs/inference.json. `is_single_input`: one image is one input, so that MONAI's own parts carry it through."""
    common = {
        "imports": ["$import sys", "$import torch", "$import pathlib"],
        "bundle_root": ".",
        "dataset_dir": "$@bundle_root + '/images'",
        "images": "$[str(file) for file in sorted(pathlib.Path(@dataset_dir).iterdir()) if file.is_file()]",
        "output": "$@bundle_root + '/predictions.json'",
        "device": "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "search_path": "$sys.path.insert(0, @bundle_root)",
        "network_def": {"_target_": "scripts.bridge.network", "_requires_": "@search_path"},
        "network": {
            "_target_": "scripts.bridge.trained",
            "module": "@network_def",
            "file": "$@bundle_root + '/models/model.pt'",
            "device": "@device",
        },
    }
    pipeline_entries = {
        "dataset_data": "$[{'image': path} for path in @images]",
        "preprocessing": {
            "_target_": "monai.transforms.Compose",
            "transforms": [{"_target_": "scripts.bridge.Prepare", "key": "image", "_requires_": "@search_path"}],
        },
        "dataset": {"_target_": "monai.data.Dataset", "data": "@dataset_data", "transform": "@preprocessing"},
        "inferer": {"_target_": "monai.inferers.SimpleInferer"},
        "postprocessing": {
            "_target_": "monai.transforms.Compose",
            "transforms": [{"_target_": "scripts.bridge.Answer", "_requires_": "@search_path"}],
        },
        "evaluator": {
            "_target_": "scripts.bridge.Evaluator",
            "_requires_": "@search_path",
            **{name: f"@{name}" for name in ("device", "dataset", "network", "inferer", "postprocessing", "output")},
        },
    }
    workflow_entries = {
        "evaluator": {
            "_target_": "scripts.bridge.Workflow",
            "_requires_": "@search_path",
            **{name: f"@{name}" for name in ("network", "images", "output")},
        }
    }
    return {
        **common,
        **(pipeline_entries if is_single_input else workflow_entries),
        "initialize": [],
        "run": ["$@evaluator.run()"],
    }


def _compare_predictions(source: Path, children: ChildProcesses, bundle_output: Path) -> float:
    """Return the largest difference between the answers of the bundle and of predict.py; masks are compared too."""
    list_file, model_output = children.scratch / "asked.json", children.folder("predict") / "predictions.json"
    list_file.write_text(json.dumps(children.images), encoding="utf-8")
    argv = [sys.executable, "-B", str(source / "predict.py"), "--list", str(list_file), "-o", str(model_output)]
    status, log = children.run(argv, model_output.parent, (source, list_file))
    if status not in (0, 1) or not model_output.is_file():
        raise ModelError(f"predict.py ended with status {status} and printed: {log.strip()[-800:] or 'nothing'}")
    if not bundle_output.is_file():
        raise ModelError("the bundle ran without writing predictions")
    with open_reader([model_output, bundle_output]) as reader:
        return reader.run_job(COMPARE, OutputsToCompare(model_output.resolve(), bundle_output.resolve()))


def _copy_code(source: Path, target: Path) -> None:
    """Copy the deliverable without weights, caches and texts; a link or special file in it is refused.

    Raises:
        ModelError: it holds a link or a special file.
    """
    try:
        for entry in untrusted.walk(source, skip=("__pycache__",)):
            if entry.kind == "folder" or any(fnmatch(Path(entry.name).name, pattern) for pattern in _EXCLUDED_PATTERNS):
                continue
            target.mkdir(exist_ok=True)
            untrusted.copy_file(source, entry.name, target, entry.name)
    except untrusted.UnsafePathError as error:
        raise ModelError(f"{error}; take a fresh copy of the model folder") from error


def _read_card_title(source: Path) -> str:
    """The first lines of the model card that are text."""
    text = untrusted.read_start(source, "README.md", MAX_CARD_BYTES) if untrusted.is_file(source, "README.md") else ""
    return next((line.lstrip("# ").strip() for line in text.splitlines() if line.strip()), "A model made by m3b")


def _remove_caches(folder: Path) -> None:
    for cache in list(folder.rglob("__pycache__")):
        shutil.rmtree(cache)


def _readme(facts: dict[str, Any], is_single_input: bool, compared: str, largest: float) -> str:
    chain = (
        "Preprocessing, dataset, inferer and postprocessing are entries of `configs/inference.json` that can be used one "
        "by one; preprocessing is the model's own code, because no MONAI transform computes the same."
        if is_single_input
        else "Files, patches and masks are handled by the model's own code in `scripts/deliverable`, with the bundle's "
        "network in its place: no MONAI transform computes the same."
    )
    installed = ", ".join(f"{name} {value}" for name, value in package_versions("monai", "torch").items())
    return f"""# MONAI bundle: {escape_markdown(facts.get("task", ""))}

    python -c "import monai.bundle as b; b.run(config_file='configs/inference.json', bundle_root='.', images=['IMAGE'],
    output='predictions.json')"

run in this folder, all on one line; without `images`, the files in `dataset_dir` are taken. Where `fire` is installed,
`python -m monai.bundle run --config_file configs/inference.json --bundle_root .` does the same. pytorch-ignite is not
needed.

{chain}

`models/model.pt` is what MONAI expects, a state dict: a pickle of tensors and nothing else, which is loaded with
`weights_only=True` so that no code in it can run.

Compared with the model on {compared}: largest difference {largest:.2g} (allowed: {MAX_EXPORT_DIFFERENCE:g}; {installed}).

A research model, not a medical device.
"""
