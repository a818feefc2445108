"""Runs as `m3b view` reads them, made without training, and a client of the application with its token."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import uvicorn
from PIL import Image
from starlette.testclient import TestClient

from m3b.data.index import write_records
from m3b.data.records import BoxLabel, Record
from m3b.data.synthetic import make_chest
from m3b.models import Prediction
from m3b.models.kept_answers import keep_answers
from m3b.models.predictions import DetectedBox
from m3b.run.folder import RunFolder
from m3b.serve.http import open_socket
from m3b.serve.view.app import make_view_app
from m3b.serve.view.context import ViewSettings
from m3b.serve.view.run_index import make_key

TOKEN = "a-token-of-the-test-suite"  # nosec B105
ADDRESS = "http://127.0.0.1:8766"


def open_client(runs: Path) -> TestClient:
    """Return a client that holds the cookie of the token."""
    client = TestClient(make_view_app(ViewSettings(TOKEN, [runs])), base_url=ADDRESS, raise_server_exceptions=False)
    client.get(f"/?token={TOKEN}")
    client.headers["origin"] = ADDRESS
    return client


def get_key(run: Path) -> str:
    return make_key(RunFolder(run))


def write_run(
    run: Path,
    task: str,
    training: Sequence[Record],
    testing: Sequence[Record],
    labels: dict[str, int],
    *,
    answers: Sequence[Prediction] = (),
    test_rows: Sequence[dict[str, Any]] = (),
    validation_rows: Sequence[dict[str, Any]] = (),
    **record: Any,
) -> None:
    """Write a run as far as the pages read it. Images and masks lie in `run/locked`."""
    locked = run / "locked"
    (locked / "model").mkdir(parents=True, exist_ok=True)
    (locked / "Datapath").mkdir()
    write_records(locked / "Datapath/train.json", training, task)
    write_records(locked / "Datapath/test.json", testing, task)
    (locked / "Datapath/label_dict.json").write_text(json.dumps(labels))
    config = {"task": task, "classes": list(labels), "labels": labels}
    (locked / "model/config.json").write_text(json.dumps(config))
    keep_answers(locked, task, testing[: len(answers)], answers, locked)
    (locked / "predictions.json").write_text(json.dumps(list(test_rows)))
    (run / "work/Logout").mkdir(parents=True)
    (run / "work/Logout/valid_predictions.json").write_text(json.dumps(list(validation_rows)))
    content = {"format": 2, "id": run.name, "status": "completed", "request": "A request", "data": [], **record}
    content["result"] = {"task": task, "status": "completed"}
    (run / "run.json").write_text(json.dumps(content))


def write_volume_run(run: Path, n_tests: int = 12, shape: tuple[int, int, int] = (30, 24, 16)) -> None:
    """Write a segmentation of volumes with an organ and a lesion: 3 training cases, one of them for validation."""
    (run / "locked").mkdir(parents=True)
    random, records = np.random.default_rng(0), []
    for number in range(3 + n_tests):
        volume = random.normal(100, 20, shape).astype(np.int16)
        mask = np.zeros(shape, np.uint8)
        mask[8:20, 6:18, 4:12], mask[10:14, 8:12, 6:10] = 1, 2
        for name, array in ((f"image{number}", volume), (f"mask{number}", mask)):
            nib.save(nib.Nifti1Image(array, np.diag([1, 1, 2, 1])), run / f"locked/{name}.nii.gz")
        records.append(Record(f"image{number}.nii.gz", patient=f"p{number}", mask=f"mask{number}.nii.gz"))
    training, testing = records[:3], records[3:]
    answers = [Prediction(record.image, mask=run / "locked" / str(record.mask)) for record in testing]
    figures = [{"organ": [0.5 + 0.03 * n, 0.5, 1.0, 900, 900, 4.0]} for n in range(n_tests)]
    rows = [{"image": record.image, "figures": figure} for record, figure in zip(testing, figures, strict=True)]
    validation = [{"image": training[0].image, "fold": 0, "dice": {"organ": 0.91, "lesion": 0.4}}]
    write_run(run, "segmentation", training, testing, {"organ": 1, "lesion": 2}, answers=answers, test_rows=rows,
              validation_rows=validation)  # fmt: skip


def write_box_run(run: Path, label: str = "cell") -> None:
    """Write a detection on pictures: two training cases, and a test case with one reference and two predicted boxes."""
    (run / "locked").mkdir(parents=True)
    boxes = (BoxLabel(label, (10.0, 5.0, 30.0, 25.0)),)
    for number in range(3):
        Image.new("RGB", (80, 40), (20, 90, 20 * number)).save(run / f"locked/{number}.png")
    records = [Record(f"{number}.png", patient=f"p{number}", boxes=boxes) for number in range(3)]
    detections = (DetectedBox(label, (11.0, 6.0, 31.0, 26.0), 0.9), DetectedBox(label, (50.0, 6.0, 60.0, 26.0), 0.05))
    truth = [[list(boxes[0].box), label, 1.0]]
    rows = [
        {"image": "2.png", "truth": truth, "predicted": [[list(box.box), box.label, box.score] for box in detections]}
    ]
    answers = [Prediction("2.png", boxes=detections)]
    write_run(run, "detection", records[:2], records[2:], {label: 0}, answers=answers, test_rows=rows)


CHEST_MANIFEST = {
    "task": "diagnosis",
    "images": {"files": ["images/*.png"]},
    "tables": {"cases": {"files": "cases.csv", "key": "{image}", "image": "{path}", "match": "basename"}},
    "labels": {"value": "{cases.finding}", "classes": {"clear": ["clear"], "opacity": ["opacity"]}},
    "patient": "{cases.patient_id}",
}


def write_form_run(run: Path, manifest: dict[str, Any] = CHEST_MANIFEST) -> Path:
    """Write a run whose data folder, `xrays` beside it, can be read anew, and return it."""
    folder = run.parent / "xrays"
    if not folder.exists():
        make_chest(folder, patients=30)
    (run / "survey").mkdir(parents=True)
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "survey/evidence.json").write_text(json.dumps([{"title": "tables", "manifest": manifest}]))
    card = {"name": "xrays", "description": "Chest radiographs.", "path": str(folder), "task": manifest["task"]}
    content = {"format": 2, "id": run.name, "status": "completed", "request": "Detect opacities", "data": [card]}
    (run / "run.json").write_text(json.dumps(content))
    return run


@contextlib.contextmanager
def serve_view(runs: Path) -> Iterator[str]:
    """Serve the pages over HTTP, and yield the address that sets the cookie."""
    with open_socket("127.0.0.1", 0) as listener:
        app = make_view_app(ViewSettings(TOKEN, [runs]))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
