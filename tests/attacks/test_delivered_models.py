"""A delivered model whose code behaved in the sandbox of its run, and attacks when it is used."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from m3b.errors import ModelError
from m3b.isolation.sandbox import Sandbox, choose_sandbox
from m3b.models.export import export_model
from m3b.models.worker import PredictWorker
from sandbox_kit import ATTEMPT, LANDLOCK, backend

PREDICT = """
import argparse, json, os, sys
from pathlib import Path

def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--list"); parser.add_argument("-o")
    call = parser.parse_args(argv)
    ATTACK
    cases = json.loads(Path(call.list).read_text())
    Path(call.o).write_text(json.dumps([{"image": c, "probabilities": {"a": 1.0, "b": 0.0}} for c in cases]))
    return 3  # so that what was printed comes back in the error

if __name__ == "__main__":
    sys.exit(main())
"""
KEY = "sk-CANARY-77"


class DeliveredModel:
    """A model whose code does something more than to predict, and a user who has things to lose."""

    def __init__(self, root: Path, sandbox: Sandbox) -> None:
        self.root, self.sandbox = root, sandbox
        self.home, self.data, self.model = root / "home", root / "data", root / "model"
        for folder in (self.home / ".ssh", self.data, self.model):
            folder.mkdir(parents=True)
        self.secret = self.home / ".ssh/id_ed25519"
        self.secret.write_text("the-secret-key")
        (self.data / "notes.txt").write_text("the-secret-key")
        self.image = self.data / "a.png"
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(self.image)
        (self.model / "config.json").write_text(json.dumps({"classes": ["a", "b"]}))

    def arm(self, attack: str) -> None:
        """Give the model the code of an attack."""
        lines = (ATTEMPT + attack).strip().splitlines()
        script = PREDICT.replace("ATTACK", "exec(" + repr("\n".join(lines)) + ", globals())")
        (self.model / "predict.py").write_text(script)

    def use(self, attack: str, image: Path | None = None) -> str:
        """Predict with a model that attacks; return what it printed."""
        self.arm(attack)
        worker = PredictWorker(self.model, self.sandbox)
        try:
            with pytest.raises(ModelError) as caught:
                worker.predict([str(image or self.image)])
        finally:
            worker.close()
        output = str(caught.value)
        assert "status 3" in output, output
        print(output)  # rows of the table
        return output


def open_attempts(output: str) -> list[str]:
    return re.findall(r"OPEN .*", output)


@pytest.fixture(params=["bubblewrap", LANDLOCK])
def delivered(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeliveredModel:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = DeliveredModel(tmp_path, backend(request.param))
    monkeypatch.setenv("HOME", str(model.home))
    return model


def test_a_model_in_use_reads_nothing_of_the_user(delivered: DeliveredModel) -> None:
    output = delivered.use(f"""
attempt("the private key", lambda: open({str(delivered.secret)!r}).read())
attempt("a file beside the image", lambda: open({str(delivered.data / "notes.txt")!r}).read())
attempt("by the parent's root", lambda: open("/proc/%d/root{delivered.secret}" % os.getppid()).read())
attempt("by m3b's root", lambda: open("/proc/{os.getpid()}/root{delivered.secret}").read())
attempt("a hard link", lambda: os.link({str(delivered.secret)!r}, "/tmp/stolen"))
""")
    assert open_attempts(output) == []
    assert "the-secret-key" not in output


def test_a_model_in_use_reads_nothing_beside_an_image_in_the_home(delivered: DeliveredModel) -> None:
    image = delivered.home / "scan.png"
    image.write_bytes(delivered.image.read_bytes())
    output = delivered.use(f'attempt("the private key", lambda: open({str(delivered.secret)!r}).read())', image)
    assert open_attempts(output) == []


USER = """
import sys
from pathlib import Path
from m3b.errors import ModelError
from m3b.models.worker import PredictWorker
from m3b.isolation.sandbox import choose_sandbox
try:
    PredictWorker(Path(sys.argv[1]), choose_sandbox(sys.argv[2])).predict([sys.argv[3]])
except ModelError as error:
    print(error)
"""


def test_a_model_in_use_finds_no_keys_in_environments(delivered: DeliveredModel) -> None:
    """The key is in the environment that m3b's process was started with."""
    delivered.arm("""
attempt("its own", lambda: os.environ["OPENAI_API_KEY"])
attempt("the parent's", lambda: b"CANARY" in open("/proc/%d/environ" % os.getppid(), "rb").read() or 1 / 0)
def others():
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            if b"CANARY" in open("/proc/" + number + "/environ", "rb").read(): return number
        except OSError:
            pass
    raise OSError("none")
attempt("anybody's", others)
""")
    call = [sys.executable, "-c", USER, str(delivered.model), delivered.sandbox.name, str(delivered.image)]
    output = subprocess.run(call, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "status 3" in output
    print(output)
    assert open_attempts(output) == []
    assert KEY not in output


def test_a_model_in_use_changes_nothing(delivered: DeliveredModel) -> None:
    before = delivered.image.read_bytes()
    output = delivered.use(f"""
shown = json.loads(open(sys.argv[sys.argv.index("--list") + 1]).read())[0]
attempt("the user's file", lambda: open({str(delivered.secret)!r}, "w"))
attempt("a new file", lambda: open({str(delivered.home / ".bashrc")!r}, "w"))
attempt("the image", lambda: open({str(delivered.image)!r}, "r+b").write(b"x"))
attempt("the image as it is shown", lambda: open(shown, "r+b").write(b"x"))
attempt("the shown image's mode", lambda: os.chmod(shown, 0o777) or os.stat(shown).st_mode & 0o777 == 0o777 or 1 / 0)
attempt("a file beside the shown image", lambda: open(shown + ".x", "w"))
attempt("its own code", lambda: open({str(delivered.model / "predict.py")!r}, "a").write("x"))
attempt("its own cache", lambda: os.mkdir({str(delivered.model / "__pycache__")!r}))
""")
    assert open_attempts(output) == []
    assert delivered.image.read_bytes() == before
    assert delivered.image.stat().st_mode & 0o777 != 0o777
    assert delivered.secret.read_text() == "the-secret-key"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def test_a_model_in_use_has_no_network(delivered: DeliveredModel, listener: socket.socket) -> None:
    output = delivered.use(f"""
import socket
attempt("by TCP", lambda: socket.create_connection(("127.0.0.1", {listener.getsockname()[1]}), 2).send(b"secret"))
attempt("by UDP", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"secret", ("127.0.0.1", 9)))
attempt("by name", lambda: socket.create_connection(("localhost", {listener.getsockname()[1]}), 2))
""")
    assert open_attempts(output) == []
    with pytest.raises(TimeoutError):
        listener.accept()


def test_a_model_in_use_leaves_no_daemon(delivered: DeliveredModel) -> None:
    mark = f"daemon-of-{os.getpid()}-{time.monotonic_ns()}"
    delivered.use(f"""
import subprocess
subprocess.Popen(["setsid", sys.executable, "-c", "import time; time.sleep(600)", {mark!r}], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", {mark!r}])
    os._exit(0)
import time; time.sleep(0.5)
""")
    assert processes_with(mark) == []


def test_a_model_in_use_kills_nothing(delivered: DeliveredModel) -> None:
    output = delivered.use(f"""
import signal
attempt("m3b", lambda: os.kill({os.getpid()}, signal.SIGWINCH))
attempt("m3b's memory", lambda: open("/proc/{os.getpid()}/mem", "r+b"))
""")
    assert open_attempts(output) == []


def test_an_export_is_confined_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`parts.py` steals when it is loaded."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    delivered = DeliveredModel(tmp_path, choose_sandbox("auto"))
    monkeypatch.setenv("HOME", str(delivered.home))
    stolen = tmp_path / "stolen"
    (delivered.model / "predict.py").write_text("")
    (delivered.model / "parts.py").write_text(
        f"import sys\ntry:\n    print(open({str(delivered.secret)!r}).read())\nexcept OSError as error:\n    print(error)\n"
        f"try:\n    open({str(stolen)!r}, 'w')\nexcept OSError as error:\n    print(error)\n"
        "sys.exit(7)\n"
    )
    with pytest.raises(ModelError, match="status 7") as caught:
        export_model(delivered.model, "onnx", tmp_path / "out")
    assert "the-secret-key" not in str(caught.value)
    assert not stolen.exists()
    with pytest.raises(ModelError, match="the-secret-key"):
        export_model(delivered.model, "onnx", tmp_path / "out", unconfined=True)
    assert stolen.exists()


def processes_with(mark: str) -> list[str]:
    pids = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and mark in (folder / "cmdline").read_text(errors="replace"):
                pids.append(folder.name)
    return pids
