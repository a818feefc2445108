"""ONNX export: one graph for each part of the network, and `model.json` with what a program needs to feed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from m3b.isolation.untrusted import copy_file, list_entries
from m3b.models.export.worker import (
    MAX_EXPORT_DIFFERENCE,
    ChildProcesses,
    ExportResult,
    check_difference,
    package_versions,
    require_packages,
    write_json,
)
from m3b.models.model_card import escape_markdown

_README_TEMPLATE = """# {title}

{graphs}

`model.json` says how an image becomes the input (`preprocessing`, `image`), what each graph takes and gives, and the
classes in the order of the outputs. All graphs are float32 and take batches of any size where an axis is called `batch`.

{rest}

Compared with the model on {compared}: largest difference {difference:.2g} (allowed: {tolerance:g}).

A research model, not a medical device.
"""


def to_onnx(source: Path, target: Path, children: ChildProcesses) -> ExportResult:
    """Write the graphs of a deliverable into `target`; ONNX Runtime runs each on inputs with known outputs."""
    require_packages(("torch", "onnx", "onnxruntime"), "export")
    images, output_folder = children.images, children.folder("onnx")
    export_facts = children.act("onnx", source, {"images": images, "out": str(output_folder)}, output_folder)
    checked = children.act("compare", output_folder, {"graphs": export_facts["graphs"]}, children.folder("compare"))
    for entry in list_entries(output_folder):
        if not entry.name.endswith((".npz", ".result.json")):
            copy_file(output_folder, entry.name, target, entry.name)
    graphs = checked["graphs"]
    for graph in graphs:
        check_difference(graph["largest_difference"], graph["file"])
    largest = max(graph["largest_difference"] for graph in graphs)
    compared = f"{len(images)} image(s)" if images else "noise in batches of different size"
    description = {
        "format": "onnx",
        **export_facts["facts"],
        "graphs": [{key: value for key, value in graph.items() if key != "pairs"} for graph in graphs],
        "verified": {"on": compared, "largest_difference": largest, "tolerance": MAX_EXPORT_DIFFERENCE},
        "made_with": package_versions("torch", "onnx", "onnxruntime"),
    }
    write_json(target / "model.json", description)
    (target / "README.md").write_text(_readme(description, compared, largest), encoding="utf-8")
    return ExportResult("onnx", target, compared, largest)


def _readme(description: dict[str, Any], compared: str, largest: float) -> str:
    lines = []
    for graph in description["graphs"]:
        takes = ", ".join(escape_markdown(f"{item['name']} {item['shape']}") for item in graph["inputs"])
        gives = ", ".join(escape_markdown(f"{item['name']} {item['shape']}") for item in graph["outputs"])
        note = f": {escape_markdown(graph['about'])}" if graph.get("about") else ""
        lines.append(f"- `{graph['file']}`{note}. Takes {takes}; gives {gives}.")
    scope_note = (
        escape_markdown(description.get("not_exported") or "")
        or "The graphs hold everything between the prepared image and the probabilities."
    )
    title = f"ONNX graphs of a model for {escape_markdown(description.get('task', 'medical images'))}"
    return _README_TEMPLATE.format(
        title=title,
        graphs="\n".join(lines),
        rest=scope_note,
        compared=compared,
        difference=largest,
        tolerance=MAX_EXPORT_DIFFERENCE,
    )
