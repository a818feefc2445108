"""The confined process of a delivered model: alive between requests, restarted after accidents, ended with its model."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.errors import ModelError, SandboxError
from m3b.isolation.sandbox import Sandbox
from m3b.models import load_model, shown_inputs
from m3b.models.shown_inputs import ShownInputs, can_be_mounted, folders_to_mount
from m3b.models.worker import PredictWorker
from sandbox_kit import LANDLOCK, backend

TEMPLATE = """
import argparse, json, os, sys
from functools import lru_cache
from pathlib import Path

COUNT = {"loads": 0}

@lru_cache(maxsize=1)
def load():
    COUNT["loads"] += 1

def answer(path):
    load()
    return {"image": path, "probabilities": {"a": 1.0, "b": 0.0}, "pid": os.getpid(), "loads": COUNT["loads"]}

def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--list"); parser.add_argument("-o")
    call = parser.parse_args(argv)
    EXTRA
    cases = json.loads(Path(call.list).read_text())
    Path(call.o).write_text(json.dumps([answer(case) for case in cases]))
    print("done", os.getpid(), COUNT["loads"])
    return 0

if __name__ == "__main__":
    sys.exit(main())
"""
TOP_LEVEL = """
import json, sys
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
cases = json.loads(open(arguments["--list"]).read())
json.dump([{"image": c, "probabilities": {"a": 0.0, "b": 1.0}} for c in cases], open(arguments["-o"], "w"))
"""
STALE = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--list"); parser.add_argument("-o")
call = parser.parse_args()

if __name__ == "__main__":
    cases = json.loads(open(call.list).read())
    json.dump([{"image": c, "probabilities": {"a": 0.0, "b": 1.0}} for c in cases], open(call.o, "w"))
"""


@pytest.fixture(params=["bubblewrap", LANDLOCK])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return backend(request.param)


@pytest.fixture
def image(tmp_path: Path) -> str:
    (tmp_path / "data").mkdir()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "data/a.png")
    return str(tmp_path / "data/a.png")


def make(folder: Path, script: str = TEMPLATE, extra: str = "") -> Path:
    folder.mkdir()
    (folder / "predict.py").write_text(script.replace("EXTRA", extra))
    (folder / "config.json").write_text(json.dumps({"classes": ["a", "b"]}))
    return folder


def wait_until_gone(pid: int) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def supervisor(worker: PredictWorker) -> int:
    process = worker._holder.process
    assert process is not None
    return process._process.pid


def test_the_process_and_the_weights_stay(tmp_path: Path, image: str, sandbox: Sandbox) -> None:
    extra = "open(os.path.join(os.environ['TMPDIR'], 'calls'), 'a').write('x')"
    extra += "; assert COUNT['loads'] == min(1, len(open(os.path.join(os.environ['TMPDIR'], 'calls')).read()) - 1)"
    worker = PredictWorker(make(tmp_path / "m", extra=extra), sandbox)
    for _ in range(3):
        [answer] = worker.predict([image])
        assert answer.probabilities == {"a": 1.0, "b": 0.0}
        assert answer.image == image
    assert worker.starts == 1
    worker.close()


@pytest.mark.parametrize("script", [TOP_LEVEL, STALE], ids=["no-main", "arguments-read-above-main"])
def test_scripts_that_cannot_stay_loaded_run_anew(tmp_path: Path, image: str, script: str) -> None:
    worker = PredictWorker(make(tmp_path / "m", script))
    for _ in range(2):
        assert worker.predict([image])[0].prediction == ("b",)
    assert worker.starts == 1
    worker.close()


def test_a_script_that_bears_one_request_alone_gets_a_new_process(tmp_path: Path, image: str) -> None:
    extra = "COUNT['loads'] and sys.exit(9)"
    worker = PredictWorker(make(tmp_path / "m", extra=extra))
    for starts in (1, 2, 3):
        assert worker.predict([image])[0].prediction == ("a",)
        assert worker.starts == starts
    worker.close()


def test_a_crash_costs_its_request_and_is_said(tmp_path: Path, image: str) -> None:
    model = make(tmp_path / "m", extra="print('last words', flush=True); os.abort()")
    worker = PredictWorker(model)
    with pytest.raises(ModelError, match=r"status 134 and printed: last words"):
        worker.predict([image])
    (model / "predict.py").write_text(TEMPLATE.replace("EXTRA", ""))
    assert worker.predict([image])[0].prediction == ("a",)
    assert worker.starts == 2
    worker.close()


def test_a_process_that_was_killed_while_idle_is_replaced(tmp_path: Path, image: str) -> None:
    worker = PredictWorker(make(tmp_path / "m"))
    worker.predict([image])
    process = worker._holder.process
    assert process is not None
    os.kill(supervisor(worker), 9)
    while not process.has_ended():  # until then it may still answer, and rightly
        time.sleep(0.01)
    assert worker.predict([image])[0].prediction == ("a",)
    assert worker.starts == 2
    worker.close()


def test_an_exit_in_silence_is_no_answer(tmp_path: Path, image: str) -> None:
    worker = PredictWorker(make(tmp_path / "m", extra="os._exit(0)"))
    with pytest.raises(ModelError, match="status 137"):
        worker.predict([image])


def test_a_slow_request_is_ended_with_its_process(tmp_path: Path, image: str) -> None:
    model = make(tmp_path / "m", extra="__import__('time').sleep(600)")
    worker = PredictWorker(model, timeout_s=2)
    with pytest.raises(ModelError, match="still running after 2 s"):
        worker.predict([image])
    (model / "predict.py").write_text(TEMPLATE.replace("EXTRA", ""))
    assert worker.predict([image])[0].prediction == ("a",)
    worker.close()


def test_threads_take_turns(tmp_path: Path, image: str) -> None:
    worker = PredictWorker(make(tmp_path / "m"))
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.extend(worker.predict([image] * 3))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [answer.prediction for answer in answers] == [("a",)] * 12
    assert worker.starts == 1
    worker.close()


def test_the_process_ends_with_the_model(tmp_path: Path, image: str) -> None:
    model = load_model(make(tmp_path / "m"))
    with model:
        model.predict(image)
        assert model._worker is not None
        pid = supervisor(model._worker)
        assert Path(f"/proc/{pid}").exists()
    assert wait_until_gone(pid)
    model.predict(image)  # may be used again
    pid = supervisor(model._worker)
    assert copy.copy(model) == pickle.loads(pickle.dumps(model))
    del model
    gc.collect()
    assert wait_until_gone(pid)


def test_the_process_ends_with_python(tmp_path: Path, image: str) -> None:
    code = (
        "import sys; from m3b.models import load_model; model = load_model(sys.argv[1]); model.predict(sys.argv[2]); "
        "print(model._worker._holder.process._process.pid, model._worker._holder.process._scratch.path)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(make(tmp_path / "m")), image], capture_output=True, text=True, check=True
    )
    pid, scratch = done.stdout.split()
    assert wait_until_gone(int(pid))
    assert not Path(scratch).exists()


@pytest.mark.confined
def test_a_machine_without_sandbox_refuses_and_names_the_way_out(
    tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("m3b.isolation.sandbox.bubblewrap.find_executables", list)
    monkeypatch.setattr("m3b.isolation.sandbox.guard.rules.landlock_abi", lambda: 0)
    model = make(tmp_path / "m")
    with pytest.raises(SandboxError, match=r"(?s)no sandbox works.*--unconfined.*unconfined=True"):
        load_model(model).predict(image)
    assert load_model(model, unconfined=True).predict(image)[0].prediction == ("a",)


def test_masks_are_copied_and_links_are_not(tmp_path: Path, image: str) -> None:
    script = """
import json, os, sys
from pathlib import Path
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
masks = Path(arguments["--masks"]); masks.mkdir()
(masks / "m.png").write_bytes(b"mask")
KIND
(masks / "unnamed").write_bytes(b"x")
cases = json.loads(open(arguments["--list"]).read())
json.dump([{"image": c, "mask": "masks/m.png", "volumes_ml": {"a": 1.0}} for c in cases], open(arguments["-o"], "w"))
"""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for number, kind in enumerate(("", f"os.remove(masks / 'm.png'); os.symlink({str(secret)!r}, masks / 'm.png')")):
        model = make(tmp_path / f"m{number}", script.replace("KIND", kind))
        (model / "config.json").write_text(json.dumps({"task": "segmentation", "classes": ["a"], "labels": {"a": 1}}))
        out = tmp_path / f"out{number}"
        with load_model(model) as loaded:
            if kind:
                with pytest.raises(ModelError):
                    loaded.predict(image, out=out)
                assert not list(out.iterdir())
                continue
            [answer] = loaded.predict(image, out=out)
        assert answer.mask == out / "masks/m.png"
        assert answer.mask.read_bytes() == b"mask"
        assert sorted(file.name for file in out.rglob("*")) == ["m.png", "masks", "predictions.json"]
        [entry] = json.loads((out / "predictions.json").read_text())
        assert entry == {"image": image, "mask": "masks/m.png", "volumes_ml": {"a": 1.0}}


def test_inputs_of_every_kind_are_shown_with_what_belongs_to_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "series").mkdir(parents=True)
    (data / "v.mhd").write_text("NDims = 3\nElementDataFile = v.raw\n")
    for name in ("v.raw", "s.npz", "clip.avi", "series/1.dcm", "series/2.dcm", "neighbour.png", "real.png"):
        (data / name).write_bytes(name.encode())
    (data / "link.png").symlink_to(data / "real.png")
    root = tmp_path / "shown"
    root.mkdir()
    inputs = ShownInputs(root)
    for path in ("v.mhd", "s.npz#images[3]", "clip.avi#frames=1", "series", "link.png"):
        visible_path = inputs.show(str(data / path))
        assert visible_path == f"{root}{data}/{path}"
        assert inputs.original(f"{visible_path}: broken") == f"{data}/{path}: broken"
    files = sorted(str(file.relative_to(f"{root}{data}")) for file in root.rglob("*") if file.is_file())
    assert files == ["clip.avi", "link.png", "s.npz", "series/1.dcm", "series/2.dcm", "v.mhd", "v.raw"]
    assert not (Path(f"{root}{data}") / "link.png").is_symlink()
    assert inputs.show(str(data / "absent.png")) == str(data / "absent.png")
    assert (Path(f"{root}{data}") / "v.raw").stat().st_ino == (data / "v.raw").stat().st_ino


def test_folders_are_mounted_where_links_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another file system. A folder that holds the home folder is never mounted: its files are copied."""
    home = tmp_path / "home"
    (home / "scans").mkdir(parents=True)
    for name in ("a.png", "scans/b.png"):
        (home / name).write_bytes(b"x")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(shown_inputs.tempfile, "gettempdir", lambda: "/nonexistent")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    root = tmp_path / "shown"
    root.mkdir()
    paths = [str(home / "a.png"), str(home / "scans/b.png")]
    assert folders_to_mount(paths, root) == ()
    monkeypatch.setattr(os, "link", refuse)
    mounted = folders_to_mount(paths, root)
    assert mounted == (home / "scans",)
    inputs = ShownInputs(root, mounted)
    assert [inputs.show(path) for path in paths] == [f"{root}{home}/a.png", str(home / "scans/b.png")]
    assert not can_be_mounted(home)
    assert not can_be_mounted(Path("/"))


def test_a_mounted_folder_is_predicted_from(
    tmp_path: Path, image: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_inputs, "_can_link", lambda *_: False)
    monkeypatch.setattr(shown_inputs, "can_be_mounted", lambda folder: True)
    extra = "p = json.loads(Path(call.list).read_text())[0]; assert p == PATH and open(p, 'rb').read()"
    worker = PredictWorker(make(tmp_path / "m", extra=extra.replace("PATH", repr(image))), sandbox)
    assert worker.predict([image])[0].image == image
    worker.close()


def test_a_process_that_was_started_runs_no_code_of_the_model_before_a_request(tmp_path: Path, image: str) -> None:
    mark = "import os; MARK = os.path.join(os.environ['TMPDIR'], 'mark'); open(MARK, 'w').close()\n"
    extra = "assert os.stat(MARK).st_mtime_ns >= os.stat(call.list).st_mtime_ns and 'site-packages' in torch.__file__"
    folder = make(tmp_path / "m", f"{mark}import torch\n{TEMPLATE}", extra)
    (folder / "torch.py").write_text("raise ImportError('code of the model')\n")
    worker = PredictWorker(folder, backend("bubblewrap"))
    worker.start([image])
    time.sleep(1.0)  # code that runs too early would leave an older mark
    assert worker.predict([image])[0].prediction == ("a",)
    assert worker.starts == 1
    worker.close()
