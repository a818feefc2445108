"""What the measured model's answers on test cases depend on: maps in `locked/saliency/`, for the pictures of a report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from m3b.data.index import read_index
from m3b.data.records import relocated
from m3b.isolation import untrusted
from m3b.isolation.sandbox import Sandbox
from m3b.models.predict_process import SALIENCY_FOLDER, can_explain
from m3b.models.prediction_store import OutputFolder
from m3b.models.predictions import Saliency
from m3b.models.worker import PredictWorker

MAX_TOTAL_S = 60.0
"""Time from which no further case is explained."""
MAX_CASE_S = 300.0


def explain_cases(locked: Path, task: str, keys: Sequence[str], sandbox: Sandbox | None = None) -> dict[str, Saliency]:
    """Ask the measured model, confined, what its answers on test cases depend on; replace the maps of an earlier call.

    Cases that the model cannot explain, and those for which there is no time, are left out.

    Args:
        locked: the folder of the locked index and the measured model.
        keys: of test cases, the most important first.
        sandbox: confines the model; the strongest one of this machine if None.

    Raises:
        ModelError, SandboxError, OSError: predict.py fails, or cannot be confined.
    """
    locked = locked.resolve()
    model = locked / "model"
    if not keys or not can_explain(untrusted.read_json(model, "config.json")):
        return {}
    records = {record.key: record for record in read_index(locked, task).test}
    if (locked / SALIENCY_FOLDER).exists():
        untrusted.remove_tree(locked / SALIENCY_FOLDER)
    output, explained = OutputFolder(locked, len(keys)), {}
    until = time.monotonic() + MAX_TOTAL_S
    with closing(PredictWorker(model, sandbox, MAX_CASE_S)) as worker:
        for record in (records[key] for key in keys if key in records):
            if time.monotonic() > until:
                break
            image = relocated(record.image, lambda path: str(locked / path))
            [prediction] = worker.predict([image], [record.covariates], strict=False, output=output, with_saliency=True)
            if prediction.saliency is not None:
                explained[record.key] = prediction.saliency
    return explained
