"""Export delivered models to other formats: ONNX graphs and MONAI bundles, each compared with the original model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.errors import ModelError, UsageError
from m3b.models.checksums import verify_integrity
from m3b.models.export.monai_bundle import to_bundle
from m3b.models.export.onnx_graphs import to_onnx
from m3b.models.export.worker import MAX_EXPORT_DIFFERENCE, ChildProcesses, ExportResult
from m3b.models.loading import CaseInput

__all__ = ["FORMATS", "MAX_EXPORT_DIFFERENCE", "ExportResult", "export_model"]

FORMATS = ("onnx", "monai-bundle")


def export_model(
    folder: str | Path,
    to: str,
    out: str | Path,
    *,
    verify: Sequence[CaseInput] = (),
    unconfined: bool = False,
    on_step: Callable[[str], None] = lambda title: None,
) -> ExportResult:
    """Write a delivered model in another format and compare its outputs with the model itself.

    The model's own code runs confined, as it does for predictions.

    Args:
        folder: a delivered model.
        to: `onnx` (one graph for each part of the network, with a JSON file of facts) or `monai-bundle`.
        out: a folder that does not exist yet, or is empty.
        verify: images to compare on; without images, noise of the right shape goes through both networks.
        unconfined: run the model's code with all of your rights: only for models that you trust.
        on_step: gets the title of each step when it begins.

    Raises:
        UsageError: an unknown format, or a folder that is not empty.
        IntegrityError: the folder is not what was measured and delivered.
        ModelError: the model cannot be exported, or the export differs from it by more than `MAX_EXPORT_DIFFERENCE`.
        SandboxError: no sandbox works on this machine.
    """
    if to not in FORMATS:
        raise UsageError(f"There is no format {to!r}; there are {' and '.join(FORMATS)}.")
    source, target = Path(folder).expanduser().resolve(), Path(out).expanduser().absolute()
    if not (source / "predict.py").is_file():
        raise ModelError(f"{source} holds no predict.py; give the `model/` folder of a run")
    verify_integrity(source)
    if not (source / "parts.py").is_file():
        raise ModelError(
            f"{source} holds no parts.py, which names the network's parts, so it cannot be exported; models made with "
            "m3b's templates have one"
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already; name a new folder.")
    working_dir = Path.cwd()
    images = [_absolute(case, working_dir) for case in verify]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".m3b-export-", dir=target.parent) as scratch:
        unfinished = Path(scratch) / "made"
        unfinished.mkdir()
        exported = (to_onnx if to == "onnx" else to_bundle)(
            source, unfinished, ChildProcesses(Path(scratch), images, unconfined, on_step)
        )
        if target.exists():
            target.rmdir()
        shutil.move(unfinished, target)
    return ExportResult(to, target, exported.compared, exported.largest_difference)


def _absolute(case: Any, base: Path) -> Any:
    if isinstance(case, Mapping):
        return {name: str(base / path) for name, path in case.items()}
    return str(base / case) if isinstance(case, str | Path) else [str(base / item) for item in case]
