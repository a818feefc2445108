"""Pickled weights to safetensors, in the sandbox: m3b's own process never opens a pickle."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.errors import ModelError, UsageError
from m3b.resources import get_resources_folder
from m3b.sandbox import Limits, Mounts, Sandbox
from m3b.untrusted import TemporaryFolder

from .registry import is_weights
from .store import WEIGHTS_FILE, count_tensors

CONVERT_TIMEOUT_S = 1800.0
CONVERT_MEMORY_MIB = 65536


@dataclass(frozen=True)
class ConvertedWeights:
    """A safetensors file.

    Args:
        method: `weights_only`, `inert records` (whole modules were pickled), `numpy, no pickle`, or `as it is`.
    """

    file: Path
    tensors: int
    method: str


def convert(source: Path, folder: Path, sandbox: Sandbox) -> ConvertedWeights:
    """Write `folder/model.safetensors` from a .pt, .pth, .bin, .ckpt, .model or .npz file; the folder is made.

    The converter sees the source, read-only, and one empty folder; it has no network.

    Raises:
        UsageError: no such file, or one whose name is not that of weights.
        ModelError: it holds no weights, or needs more than the converter may have; the message quotes what it said.
    """
    if not source.is_file() or not is_weights(source.name):
        raise UsageError(f"{source} is no file of weights (.pt, .pth, .bin, .ckpt, .model, .npz or .safetensors).")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / WEIGHTS_FILE
    if source.suffix == ".safetensors":
        count = count_tensors(source)
        if source.resolve() != target.resolve():
            shutil.copyfile(source, target)
        return ConvertedWeights(target, count, "as it is")
    with TemporaryFolder("convert") as scratch, TemporaryFolder("convert-log") as logs:
        converted_file, report = (
            scratch / WEIGHTS_FILE,
            _run_converter(source.resolve(), scratch, logs / "output.txt", sandbox),
        )
        if "error" in report or not converted_file.is_file():
            raise ModelError(
                f"{source} could not be converted: {report.get('error', 'nothing was written')}. Is it whole, and is it the "
                "file of weights?"
            )
        count = count_tensors(converted_file)
        shutil.move(converted_file, target)
    return ConvertedWeights(target, count, str(report.get("how", "")))


def _run_converter(source: Path, scratch: Path, output: Path, sandbox: Sandbox) -> dict[str, Any]:
    """What the converter printed as its last line."""
    converter = scratch / "converter.py"
    shutil.copyfile(get_resources_folder() / "weights" / "converter.py", converter)
    process = sandbox.start(
        [sys.executable, "-B", str(converter), str(source), str(scratch / WEIGHTS_FILE)],
        cwd=scratch,
        mounts=Mounts(read=(source,), write=(scratch,)),
        output=output,
        limits=Limits(
            memory_mib=CONVERT_MEMORY_MIB,
            wall_s=CONVERT_TIMEOUT_S,
            file_mib=CONVERT_MEMORY_MIB,
            disk_mib=CONVERT_MEMORY_MIB,
            isolated=True,
        ),
    )
    exit_status = process.wait()
    text = output.read_text(encoding="utf-8", errors="replace").strip() if output.is_file() else ""
    lines = text.splitlines()
    try:
        report = json.loads(lines[-1]) if lines else {}
    except ValueError:
        report = {}
    if isinstance(report, dict) and ("error" in report or (exit_status is not None and exit_status.code == 0)):
        return report
    reason = exit_status.reason if exit_status else "lost"
    return {"error": f"the converter ended ({reason}): {' '.join(lines[-3:])[-400:]}"}
