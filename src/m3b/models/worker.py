"""A delivered predict.py in one confined process that stays alive between requests."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.cleanup import undo_on_error
from m3b.data.records import Covariate, Image, Reference, frozen, paths_of, relocated
from m3b.errors import ModelError
from m3b.isolation.reader import protocol
from m3b.isolation.sandbox import ExitStatus, Mounts, Process, Sandbox
from m3b.isolation.untrusted import TemporaryFolder, copy_file, open_file, remove_tree, write_atomic
from m3b.models.predict_process import CommandRunner, read_model_info, run_predict

from .answers import answer_format_of
from .confinement import LOG_BYTES, TIMEOUT_S, model_limits, start_confined
from .predictions import Prediction
from .shown_inputs import ShownInputs, can_be_mounted, folders_to_mount

SCRIPT = Path(__file__).with_name("inside") / "m3b_worker.py"
_POLL_S = 0.5
_LIFETIME_S = 10.0**9


class PredictWorker:
    """The code of a delivered model, confined: it reads the model and the inputs of a request, and has no network.

    The process starts with the first request and ends with `close`, with this object or with Python. After a crash the
    next request starts another one. Safe to use from several threads, which take turns.

    Args:
        model: the folder of the deliverable.
        sandbox: the sandbox that confines it; the strongest one of this machine if None.
        timeout_s: time limit of one request.

    `starts` counts the processes so far.
    """

    def __init__(self, model: Path, sandbox: Sandbox | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.model, self.sandbox, self.timeout_s = model.resolve(), sandbox, timeout_s
        self.starts = 0
        self._lock = threading.RLock()
        self._holder = _Holder()
        weakref.finalize(self, self._holder.end)

    def __reduce__(self) -> tuple[object, ...]:
        """Let copies and pickles start a process of their own."""
        return PredictWorker, (self.model, self.sandbox, self.timeout_s)

    def predict(
        self,
        images: Sequence[Reference],
        covariates: Sequence[Mapping[str, Covariate]] = (),
        *,
        strict: bool = True,
        keep: Path | None = None,
    ) -> list[Prediction]:
        """Predict images; see `run_predict`. Predictions.json and the files that it names are copied to `keep`.

        Raises:
            ModelError: as `run_predict`.
            SandboxError: no sandbox works on this machine.
        """
        cases = [frozen(image) for image in images]
        if keep is None and answer_format_of(task := read_model_info(self.model).task).requires_output_folder():
            raise ModelError(f"a {task} model writes mask files; say in which folder they shall stay")
        if not cases:
            return []
        with self._lock:
            process = self._running(cases)
            reused = process.requests > 0
            with undo_on_error(self._end_if_busy, process):
                try:
                    return process.predict(cases, covariates, strict, keep)
                except ModelError:
                    if not (reused and process.failed):
                        raise
            self._holder.end()  # the script may not support a second request, or the process died while it was idle
            process = self._running(cases)
            with undo_on_error(self._end_if_busy, process):
                return process.predict(cases, covariates, strict, keep)

    def close(self) -> None:
        """End the process and all that it started; the next request starts another one."""
        with self._lock:
            self._holder.end()

    def _running(self, cases: Sequence[Image]) -> _ModelProcess:
        process = self._holder.process
        if process is None or process.has_ended():
            self._holder.end()
            paths = [path for case in cases for path in paths_of(case)]
            process = self._holder.process = _ModelProcess(self.model, self.sandbox, self.timeout_s, paths)
            self.starts += 1
        return process

    def _end_if_busy(self, process: _ModelProcess) -> None:
        """End the process if a request is unfinished, so that the next request does not meet it."""
        if process.busy:
            self._holder.end()


class _Holder:
    """The process that a worker has to end.

    The worker's finalizer refers to this holder, because it must not refer to the worker.
    """

    def __init__(self) -> None:
        self.process: _ModelProcess | None = None

    def end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.end()


class _ModelProcess:
    """One process, the pipes to it, and the two folders that it sees: inputs read-only, outputs to write.

    `requests` counts the requests that were sent; `failed` tells whether the last one gave no output; `busy` whether
    one is running.
    """

    def __init__(self, model: Path, sandbox: Sandbox | None, timeout_s: float, paths: Sequence[str]) -> None:
        if not can_be_mounted(model):
            raise ModelError(f"{model} holds your home folder or temporary files too; move the model to its own folder")
        self.model, self.timeout_s = model, timeout_s
        self.requests, self.failed, self.busy = 0, False, False
        self._owner = os.getpid()
        self._scratch = TemporaryFolder("predict")
        self._inputs, self._outputs = self._scratch.path / "inputs", self._scratch.path / "outputs"
        requests_end, self._to = os.pipe()
        self._from, answers_end = os.pipe()
        try:
            with undo_on_error(self._scratch.close), undo_on_error(self._hang_up):
                self._inputs.mkdir()
                self._outputs.mkdir()
                self._mounted = folders_to_mount(paths, self._inputs)
                self._process = self._start(sandbox, requests_end, answers_end)
        finally:
            os.close(requests_end)
            os.close(answers_end)
        self._receiver = protocol.MessageReceiver(self._from)

    def _start(self, sandbox: Sandbox | None, requests_end: int, answers_end: int) -> Process:
        protocol_file = Path(protocol.__file__).resolve()
        script = str(self.model / "predict.py")
        return start_confined(
            [sys.executable, "-B", "-P", str(SCRIPT), str(protocol_file), script, str(requests_end), str(answers_end)],
            cwd=self._inputs,
            mounts=Mounts(
                read=(self.model, SCRIPT.parent, protocol_file, self._inputs, *self._mounted), write=(self._outputs,)
            ),
            output=self._scratch.path / "output",
            limits=model_limits(_LIFETIME_S),
            keep=(requests_end, answers_end),
            sandbox=sandbox,
        )

    def predict(
        self, cases: Sequence[Image], covariates: Sequence[Mapping[str, Covariate]], strict: bool, keep: Path | None
    ) -> list[Prediction]:
        """Predict in this process; see `PredictWorker.predict`."""
        self.requests += 1
        name = str(self.requests)
        inputs, out = ShownInputs(self._inputs / name, self._mounted), self._outputs / name
        try:
            out.mkdir()
            inputs.folder.mkdir()
            visible_cases = [relocated(case, inputs.show) for case in cases]
            raw_answers = run_predict(
                self.model,
                inputs.folder,
                visible_cases,
                self._runner(),
                strict=strict,
                output_dir=out,
                covariates=covariates,
            )
            answers = [
                replace(answer, image=case, error=inputs.original(answer.error))
                for case, answer in zip(cases, raw_answers, strict=True)
            ]
            if keep is None:
                return [replace(answer, mask=None, masks={}, anomaly_map=None) for answer in answers]
            return deliver(answers, out, keep)
        except ModelError as error:
            raise ModelError(inputs.original(str(error))) from None
        except OSError as error:
            raise ModelError(f"an image cannot be shown to the model, or an answer not be copied: {error}") from error
        finally:
            remove_tree(out)
            remove_tree(inputs.folder)

    def _runner(self) -> CommandRunner:
        def run(argv: list[str], cwd: Path, out: Path) -> tuple[int, str]:
            arguments = argv[argv.index(str(self.model / "predict.py")) + 1 :]
            status, log = self._ask(arguments, out.parent / "log")
            self.failed = status not in (0, 1) or not out.is_file()
            return status, log

        return run

    def _ask(self, arguments: list[str], log: Path) -> tuple[int, str]:
        """Run predict.py with these arguments; return its exit status and the end of its output.

        If the process ends, its own exit status is returned.
        """
        self.busy = True
        deadline = time.monotonic() + self.timeout_s
        try:
            protocol.send_message(self._to, {"id": self.requests, "arguments": arguments, "log": str(log)})
            while True:
                with contextlib.suppress(protocol.MessageTimeout):
                    answer = self._receiver.receive(_POLL_S)
                    if answer.get("id") == self.requests and isinstance(status := answer.get("status"), int):
                        self.busy = False
                        return status, _tail(log)
                if self._process.poll() is not None:
                    raise protocol.ConnectionClosed
                if time.monotonic() > deadline:
                    raise ModelError(
                        f"predict.py was still running after {self.timeout_s:g} s; predict fewer images at once"
                    )
        except (protocol.ConnectionClosed, protocol.MalformedMessage):
            ended = self._process.wait(10.0) or self._process.stop()
        return _status(ended), _tail(log) + self._last_words(ended)

    def _last_words(self, ended: ExitStatus) -> str:
        output = (self._scratch.path / "output").read_text(encoding="utf-8", errors="replace")[-LOG_BYTES:]
        return output if ended.reason == "exit" else f"{output}\nm3b ended it: {ended.reason.replace('_', ' ')}"

    def has_ended(self) -> bool:
        """Return whether the process can no longer be asked; a forked child must not use its parent's process."""
        return self._owner != os.getpid() or self._process.poll() is not None

    def _hang_up(self) -> None:
        for end in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(end)

    def end(self) -> None:
        """End the process and everything that it started."""
        self._hang_up()
        if self._owner == os.getpid():
            self._process.stop()
            self._scratch.close()


def _status(ended: ExitStatus) -> int:
    """Return an exit status for a process that has ended; never one that stands for an answer."""
    return ended.code if ended.code not in (0, 1) else 137


def _tail(log: Path) -> str:
    try:
        with open_file(log.parent, log.name) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            return (file.read(LOG_BYTES) or b"").decode("utf-8", errors="replace")
    except OSError:
        return ""


def deliver(answers: Sequence[Prediction], out: Path, keep: Path) -> list[Prediction]:
    """Copy the files that answers name from `out`, where untrusted code wrote them, to `keep`; write predictions.json.

    Raises:
        UnsafePathError: a link or special file instead of a regular file.
        OSError: a file cannot be copied.
    """
    keep = keep.resolve()

    def copy_to_keep(file: Path) -> Path:
        name = file.resolve().relative_to(out)
        copy_file(out, name, keep, name)
        return keep / name

    delivered_answers = [
        replace(
            answer,
            mask=None if answer.mask is None else copy_to_keep(answer.mask),
            masks={name: copy_to_keep(file) for name, file in answer.masks.items()},
            anomaly_map=None if answer.anomaly_map is None else copy_to_keep(answer.anomaly_map),
        )
        for answer in answers
    ]
    content = json.dumps(
        [with_relative_files(answer, keep) for answer in delivered_answers], indent=1, ensure_ascii=False
    )
    write_atomic(keep, "predictions.json", f"{content}\n".encode("utf-8", "backslashreplace"))
    return delivered_answers


def with_relative_files(answer: Prediction, folder: Path) -> dict[str, Any]:
    """Return an answer as JSON values, with file paths relative to `folder`."""
    fields = answer.to_dict()
    for name in ("mask", "anomaly_map"):
        if name in fields:
            fields[name] = Path(fields[name]).relative_to(folder).as_posix()
    if "masks" in fields:
        fields["masks"] = {name: Path(file).relative_to(folder).as_posix() for name, file in fields["masks"].items()}
    return fields
