"""Start the servers of warm processes, and find their sockets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SERVERS_FOLDER = Path(__file__).resolve().parent
START_S = 120.0
KINDS = ("scripts", "m3b")
VARIABLE = "M3B_TEST_WARM"
"""The folder with the sockets; workers of pytest-xdist inherit it from the process that started them."""


def start_zygotes() -> Callable[[], None]:
    """Start the servers in the background; returns what ends them."""
    folder = tempfile.mkdtemp(prefix="m3b-warm-")
    os.environ[VARIABLE] = folder
    environment = {
        **{name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))},
        **{name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")},
        "MPLBACKEND": "Agg",
    }
    servers = [
        subprocess.Popen(
            [sys.executable, str(SERVERS_FOLDER / "zygote.py"), f"{folder}/{kind}", kind],
            stdin=subprocess.DEVNULL, env=environment, cwd="/",
        )
        for kind in KINDS
    ]  # fmt: skip
    _make_shims(Path(folder, "bin"))

    def stop() -> None:
        for server in servers:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)

    return stop


def zygote(kind: str) -> str:
    """Return the socket's path, once the server listens."""
    path = Path(os.environ[VARIABLE], kind)
    deadline = time.monotonic() + START_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the {kind} zygote did not start within {START_S:g} s")
        time.sleep(0.01)
    return str(path)


def _make_shims(folder: Path) -> None:
    """Write `python` and `python3` that run scripts in a warm process."""
    folder.mkdir()
    for name in ("python", "python3"):
        shim = folder / name
        shim.write_text(
            f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -I -S {SERVERS_FOLDER / "client.py"} "$@"\n'
        )
        shim.chmod(0o755)
