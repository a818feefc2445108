"""The server: imports packages once and forks a child for each Python command that is asked for.

    python zygote.py SOCKET KIND

KIND `scripts` imports what agents' scripts and training projects need, and never m3b; KIND `m3b` imports m3b, its reader
and its command line. A request is a JSON object {argv, cwd, env, keep} with the descriptors of stdin, stdout, stderr and
those in `keep`. The answer is the exit status, or -signal, once the child has ended. If the client hangs up, the child
and its process group are killed.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import gc
import importlib
import itertools
import json
import os
import re
import selectors
import signal
import socket
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any

LIGHT_MODULES = (
    "numpy", "PIL.Image", "scipy.ndimage", "safetensors.numpy", "nibabel", "pydicom", "SimpleITK", "h5py", "argparse", "csv",
)  # fmt: skip
TRAINING_MODULES = (
    "torch", "torch.utils.data", "safetensors.torch", "monai.networks.nets", "monai.losses", "monai.inferers", "transformers",
    "accelerate", "matplotlib.pyplot",
)  # fmt: skip
M3B_MODULES = (
    "m3b.isolation.reader.server", "m3b.cli.app", "m3b.run.services", "m3b.run.orchestrator", "m3b.run.dataset_preview", "m3b.models",
    "m3b.tasks", "m3b.bench", "m3b.dataset.manifest.model", "m3b.tools.preview_files", "m3b.report", "m3b.llm.rules", "numpy",
    "PIL.Image", "nibabel", "pydicom", "SimpleITK", "scipy.ndimage", "warm.sandbox",
)  # fmt: skip
MAX_MESSAGE = 1 << 22
TORCH = re.compile(r"^(import|from) torch\b", re.MULTILINE)


def preload(names: tuple[str, ...]) -> None:
    """Import packages; one that is not installed is left out."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def needs_torch(argv: list[str], cwd: str) -> bool:
    """Return whether a script of the working directory or of the script's folder imports PyTorch."""
    folders = {Path(cwd)} | {Path(cwd, word).parent for word in argv[1:] if word.endswith(".py")}
    for folder in folders:
        for file in itertools.chain(folder.glob("*.py"), folder.glob("*/*.py")):
            if TORCH.search(file.read_text(errors="replace")):
                return True
    return any(TORCH.search(word) for word in argv[1:3])


def parse_interpreter(argv: list[str]) -> tuple[str, list[str], bool]:
    """Split a Python command line into what runs, its arguments, and whether the script's folder is on the path.

    Returns:
        `-c` code, `-m` module or a file with a prefix that names the kind: `c:`, `m:`, `f:`.
    """
    words, with_folder = argv[1:], True
    while words:
        word = words[0]
        if word == "-c":
            return f"c:{words[1]}", ["-c", *words[2:]], with_folder
        if word == "-m":
            return f"m:{words[1]}", words[1:], with_folder
        if word == "-W":
            words = words[2:]
        elif word.startswith("-") and len(word) > 1:
            with_folder = with_folder and not set(word) & {"P", "I"}
            words = words[1:]
        else:
            return f"f:{word}", words, with_folder
    return "c:", ["-c"], with_folder


def execute(argv: list[str]) -> None:
    """Run a Python command line in this process, as the interpreter would."""
    sys.path[:0] = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if "warm.sandbox" in sys.modules:
        from warm.sandbox import CONFINED, use_sandbox

        use_sandbox(CONFINED in os.environ)
    if Path(argv[0]).name == "m3b":
        sys.argv = list(argv)
        importlib.import_module("m3b.cli").main()
        return
    target, arguments, with_folder = parse_interpreter(argv)
    kind, _, text = target.partition(":")
    sys.argv = list(arguments)
    if kind == "c" and "m3b.isolation.reader.server import main" in text and "m3b" in sys.modules:
        text = text[text.index("from m3b.isolation.reader.server") :]  # m3b is loaded: only serve
    if kind == "m":
        import runpy

        if with_folder:
            sys.path.insert(0, os.getcwd())
        runpy.run_module(text, run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if kind == "f":
        if with_folder:
            sys.path.insert(0, str(Path(text).resolve().parent))
        main.__file__ = text
        source: bytes | str = Path(text).read_bytes()
    else:
        if with_folder:
            sys.path.insert(0, "")
        source = text
    exec(compile(source, text if kind == "f" else "<string>", "exec"), main.__dict__)


def place_handles(handles: list[int], numbers: list[int]) -> None:
    """Move open descriptors to the given numbers, for this process and those that it starts."""
    above = max(*handles, *numbers) + 1
    moved = [fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, above) for handle in handles]
    for handle in handles:
        os.close(handle)
    for handle, number in zip(moved, numbers, strict=True):
        os.dup2(handle, number)
        os.close(handle)


def run_child(request: dict[str, Any], handles: list[int]) -> None:
    """Become the command; never returns."""
    status = 1
    try:
        os.setsid()
        place_handles(handles, [0, 1, 2, *request["keep"]])
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        # they stay open until the process ends
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        import random
        import tempfile

        tempfile.tempdir = None
        random.seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        try:
            execute(request["argv"])
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            if end.code is not None and not isinstance(end.code, int):
                print(end.code, file=sys.stderr)
        except BaseException as error:  # noqa: BLE001 - the interpreter would print any of them
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            traceback.print_exception(type(error), error, trace)
            status = 130 if isinstance(error, KeyboardInterrupt) else 1
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - a child must not go on as the server
        traceback.print_exc()
    finally:
        os._exit(status & 0xFF)


class Zygote:
    """Serves requests until its parent is gone."""

    def __init__(self, path: str, kind: str) -> None:
        self.kind, self.heavy = kind, False
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(f"{path}.starting")
        self.listener.listen(64)
        Path(f"{path}.starting").rename(path)  # who waits for the path may connect at once
        self.clients: dict[int, socket.socket] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        read, self._wake = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(self._wake, False)
        self.selector.register(read, selectors.EVENT_READ)
        self._read = read
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)

    def serve(self, parent: int) -> None:
        while os.getppid() == parent:
            for key, _ in self.selector.select(1.0):
                if key.fileobj is self.listener:
                    self._accept()
                elif key.fd == self._read:
                    os.read(self._read, 4096)
                else:
                    self._hung_up(key.fileobj)  # type: ignore[arg-type]
            self._reap()
        for pid in self.clients:
            kill_group(pid)

    def _accept(self) -> None:
        client, _ = self.listener.accept()
        handles = array.array("i")
        message, ancillary, _, _ = client.recvmsg(MAX_MESSAGE, socket.CMSG_SPACE(64 * handles.itemsize))
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                handles.frombytes(data[: len(data) - len(data) % handles.itemsize])
        if not message:
            client.close()
            return
        request = json.loads(message)
        if self.kind == "scripts" and not self.heavy and needs_torch(request["argv"], request["cwd"]):
            preload(TRAINING_MODULES)
            self.heavy = True
            gc.collect()
            gc.freeze()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            self.listener.close()
            self.selector.close()
            for open_client in self.clients.values():
                open_client.close()
            client.close()
            os.close(self._read)
            os.close(self._wake)
            run_child(request, list(handles))
        for handle in handles:
            os.close(handle)
        client.sendall(json.dumps({"pid": pid}).encode())
        self.clients[pid] = client
        self.selector.register(client, selectors.EVENT_READ)

    def _hung_up(self, client: socket.socket) -> None:
        try:
            if client.recv(16):
                return
        except OSError:
            pass
        self.selector.unregister(client)
        for pid, other_client in self.clients.items():
            if other_client is client:
                kill_group(pid)

    def _reap(self) -> None:
        while self.clients:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            client = self.clients.pop(pid, None)
            kill_group(pid)  # what the command left running
            if client is not None:
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(OSError):
                    client.sendall(json.dumps({"code": code}).encode())
                if client in [key.fileobj for key in self.selector.get_map().values()]:
                    self.selector.unregister(client)
                client.close()


def kill_group(pid: int) -> None:
    """Kill a process group that may be gone."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    parent_pid = os.getppid()
    sys.path[0] = str(Path(__file__).parents[1])  # for `warm`
    preload(M3B_MODULES if sys.argv[2] == "m3b" else LIGHT_MODULES)
    del sys.path[0]  # the tests' folder holds no script's modules
    gc.collect()
    gc.freeze()
    Zygote(sys.argv[1], sys.argv[2]).serve(parent_pid)
