"""A delivered predict.py in one confined process that stays alive between requests."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from m3b.cleanup import undo_on_error
from m3b.data.records import Covariate, Image, Reference, frozen, paths_of, relocated
from m3b.errors import ModelError
from m3b.isolation.reader import protocol
from m3b.isolation.sandbox import ExitStatus, Limits, Mounts, Process, Sandbox
from m3b.isolation.untrusted import TemporaryFolder, open_file, remove_tree
from m3b.models.predict_process import CommandRunner, read_model_info, run_predict

from .answers import answer_format_of
from .confinement import LOG_BYTES, TIMEOUT_S, model_limits, start_confined
from .input_rules import ImageAxes, InputProblem, InputRules
from .prediction_store import OutputFolder
from .predictions import Prediction
from .shown_inputs import ShownInputs, can_be_mounted, folders_to_mount

SCRIPT = Path(__file__).with_name("inside") / "m3b_worker.py"
FORMATS_FOLDER = Path(__file__).parents[1] / "dataset" / "formats"
"""The package with which the script reads headers (`inside/image_axes.py`)."""
_POLL_S = 0.5
_LIFETIME_S = 10.0**9
TARGET_BATCH_S = 2.0
"""Duration of one request that the number of images in it is adapted to, so that results come as they are made."""
MAX_BATCH_GROWTH = 4
FIRST_BATCH = 8
"""Images of the first request, and at least of each further one, if the network predicts several at once."""
MAX_AXES_BATCH = 1000
T = TypeVar("T")


class PredictWorker:
    """The code of a delivered model, confined: it reads the model and the inputs of a request, and has no network.

    The process starts with the first request and ends with `close`, with this object or with Python. After a crash the
    next request starts another one. Safe to use from several threads, which take turns.

    Args:
        model: the folder of the deliverable.
        sandbox: the sandbox that confines it; the strongest one of this machine if None.
        timeout_s: time limit of one request.
        limits: of the process; all memory of the machine and half of the free disk if None.
        readable: folders of inputs that it reads in their place.
        check_cancelled: called twice a second while a request runs; if it raises, the process ends.

    `starts` counts the processes so far.
    """

    def __init__(
        self,
        model: Path,
        sandbox: Sandbox | None = None,
        timeout_s: float = TIMEOUT_S,
        *,
        limits: Limits | None = None,
        readable: Sequence[Path] = (),
        check_cancelled: Callable[[], None] | None = None,
    ) -> None:
        self.model, self.sandbox, self.timeout_s = model.resolve(), sandbox, timeout_s
        self.limits, self.readable, self.check_cancelled = limits, tuple(readable), check_cancelled
        self.starts = 0
        self._lock = threading.RLock()
        self._holder = _Holder()
        weakref.finalize(self, self._holder.end)

    def __reduce__(self) -> tuple[object, ...]:
        """Let copies and pickles start a process of their own."""
        return PredictWorker, (self.model, self.sandbox, self.timeout_s)

    def start(self, images: Sequence[Reference] = ()) -> None:
        """Start the process before the first request, so that it imports its libraries in the meantime.

        Args:
            images: that it will be asked for, or folders of them.

        Raises:
            ModelError: the model's folder holds private files of the user too.
            SandboxError: no sandbox works on this machine.
        """
        with self._lock:
            self._running([frozen(image) for image in images])

    def predict(
        self,
        images: Sequence[Reference],
        covariates: Sequence[Mapping[str, Covariate]] = (),
        *,
        strict: bool = True,
        output: OutputFolder | None = None,
        with_saliency: bool = False,
    ) -> list[Prediction]:
        """Predict images in one request; see `run_predict`. The files that predictions name are copied to `output`.

        Raises:
            ModelError: as `run_predict`.
            SandboxError: no sandbox works on this machine.
        """
        cases = [frozen(image) for image in images]
        self._require_output(output)
        if not cases:
            return []
        with self._lock:
            return self._ask(
                cases,
                lambda process: process.predict(cases, covariates, strict, output, range(len(cases)), with_saliency),
            )

    def predict_batches(
        self,
        images: Sequence[Reference],
        covariates: Sequence[Mapping[str, Covariate]] = (),
        *,
        rules: InputRules | None = None,
        output: OutputFolder | None = None,
        positions: Sequence[int] | None = None,
        with_saliency: bool = False,
    ) -> Iterator[list[Prediction]]:
        """Predict images in requests of about two seconds, and yield the predictions of each, in order.

        A script whose weights do not stay loaded gets all images after the first request in one.

        Args:
            rules: images of other axes are not predicted; their predictions have an `error` and its code.
            positions: of the images among all of the call, for the names of output files.
            with_saliency: whether the model is asked what its answers depend on.

        Raises:
            ModelError: predict.py fails or predicts nonsense.
            SandboxError: no sandbox works on this machine.
        """
        cases = [frozen(image) for image in images]
        values = covariates or [{}] * len(cases)
        places = range(len(cases)) if positions is None else positions
        self._require_output(output)
        is_batched = not answer_format_of(read_model_info(self.model).task).has_masks_option
        smallest = size = FIRST_BATCH if is_batched else 1
        start = 0
        while start < len(cases):
            began = time.monotonic()
            part = slice(start, start + size)
            with self._lock:
                starts_before = self.starts
                predictions = self._predict_batch(cases, part, values, rules, output, places, with_saliency)
                process = self._holder.process
                stays_loaded = process is not None and process.stays_loaded and self.starts <= max(1, starts_before)
            start += len(predictions)
            yield predictions
            size = (
                _next_batch_size(len(predictions), time.monotonic() - began, smallest) if stays_loaded else len(cases)
            )

    def close(self) -> None:
        """End the process and all that it started; the next request starts another one."""
        with self._lock:
            self._holder.end()

    def _predict_batch(
        self,
        cases: Sequence[Image],
        part: slice,
        covariates: Sequence[Mapping[str, Covariate]],
        rules: InputRules | None,
        output: OutputFolder | None,
        positions: Sequence[int],
        with_saliency: bool,
    ) -> list[Prediction]:
        batch = cases[part]
        problems = self._find_problems(cases, batch, rules) if rules else {}
        accepted = [n for n in range(len(batch)) if n not in problems]
        answers: list[Prediction] = []
        if accepted:
            images, values = [batch[n] for n in accepted], [covariates[part][n] for n in accepted]
            numbers = [positions[part][n] for n in accepted]
            answers = self._ask(
                cases, lambda process: process.predict(images, values, False, output, numbers, with_saliency)
            )
        remaining = iter(answers)
        return [
            Prediction(case, error=problems[n].message, error_code=problems[n].code)
            if n in problems
            else next(remaining)
            for n, case in enumerate(batch)
        ]

    def _find_problems(
        self, cases: Sequence[Image], batch: Sequence[Image], rules: InputRules
    ) -> dict[int, InputProblem]:
        """Return position -> problem of the images in the batch that the model does not take."""
        files = {n: rules.files_to_check(case) for n, case in enumerate(batch)}
        paths = list(dict.fromkeys(path for names in files.values() for path in names))
        if not paths:
            return {}
        axes = dict(zip(paths, self._ask(cases, lambda process: process.read_axes(paths)), strict=True))
        problems: dict[int, InputProblem] = {}
        for n, names in files.items():
            for path in names:
                file_axes = axes[path]
                if file_axes is None or n in problems:
                    continue
                if problem := rules.find_problem(path, file_axes):
                    problems[n] = problem
        return problems

    def _ask(self, cases: Sequence[Image], request: Callable[[_ModelProcess], T]) -> T:
        """Run a request in the process; repeat it in a new one if a process that served others before gives no answer."""
        process = self._running(cases)
        reused = process.requests > 0
        with undo_on_error(self._end_if_busy, process):
            try:
                return request(process)
            except ModelError:
                if not (reused and process.failed):
                    raise
        self._holder.end()  # the script may not support a second request, or the process died while it was idle
        process = self._running(cases)
        with undo_on_error(self._end_if_busy, process):
            return request(process)

    def _require_output(self, output: OutputFolder | None) -> None:
        if output is None and answer_format_of(task := read_model_info(self.model).task).requires_output_folder():
            raise ModelError(f"a {task} model writes mask files; say in which folder they shall stay")

    def _running(self, cases: Sequence[Image]) -> _ModelProcess:
        process = self._holder.process
        if process is None or process.has_ended():
            self._holder.end()
            process = self._holder.process = _ModelProcess(self, [path for case in cases for path in paths_of(case)])
            self.starts += 1
        return process

    def _end_if_busy(self, process: _ModelProcess) -> None:
        """End the process if a request is unfinished, so that the next request does not meet it."""
        if process.busy:
            self._holder.end()


def _next_batch_size(n_predicted: int, duration_s: float, smallest: int) -> int:
    """Return how many images the next request gets: about two seconds of work, in whole batches of the network."""
    target_size = int(TARGET_BATCH_S * n_predicted / max(duration_s, 1e-3))
    size = max(smallest, min(target_size, MAX_BATCH_GROWTH * n_predicted))
    return size - size % FIRST_BATCH if size > FIRST_BATCH else size


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

    `requests` counts the predictions that were asked for; `failed` tells whether the last one gave no output; `busy`
    whether one is running; `stays_loaded` whether the next one finds the weights loaded.

    Args:
        worker: whose process it is.
        paths: of the images that it will be asked for, to mount folders whose files cannot be linked.
    """

    def __init__(self, worker: PredictWorker, paths: Sequence[str]) -> None:
        model = worker.model
        if not can_be_mounted(model):
            raise ModelError(f"{model} holds your home folder or temporary files too; move the model to its own folder")
        self.model, self.timeout_s, self._check_cancelled = model, worker.timeout_s, worker.check_cancelled
        self._limits = worker.limits or model_limits(_LIFETIME_S)
        self.requests, self.failed, self.busy, self.stays_loaded = 0, False, False, False
        self._messages = 0
        self._owner = os.getpid()
        self._scratch = TemporaryFolder("predict")
        self._inputs, self._outputs = self._scratch.path / "inputs", self._scratch.path / "outputs"
        requests_end, self._to = os.pipe()
        self._from, answers_end = os.pipe()
        try:
            with undo_on_error(self._scratch.close), undo_on_error(self._hang_up):
                self._inputs.mkdir()
                self._outputs.mkdir()
                readable = tuple(folder.resolve() for folder in worker.readable)
                unread = [path for path in paths if not any(Path(path).is_relative_to(folder) for folder in readable)]
                self._mounted = (*readable, *folders_to_mount(unread, self._inputs))
                self._process = self._start(worker.sandbox, requests_end, answers_end)
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
                read=(self.model, SCRIPT.parent, FORMATS_FOLDER, protocol_file, self._inputs, *self._mounted),
                write=(self._outputs,),
            ),
            output=self._scratch.path / "output",
            limits=self._limits,
            keep=(requests_end, answers_end),
            sandbox=sandbox,
        )

    def read_axes(self, paths: Sequence[str]) -> list[ImageAxes | None]:
        """Return the axes of image files from their headers; None for those that say nothing, or if the process fails."""
        axes: list[ImageAxes | None] = []
        inputs = ShownInputs(self._inputs / f"axes{self._messages}", self._mounted)
        try:
            inputs.folder.mkdir()
            for start in range(0, len(paths), MAX_AXES_BATCH):
                part = paths[start : start + MAX_AXES_BATCH]
                visible_paths = [inputs.show(path) for path in part]
                _, _, answer = self._send({"files": visible_paths}, inputs.folder.parent.parent / "axes_log")
                values = answer.get("axes")
                if not isinstance(values, list) or len(values) != len(part):
                    values = [None] * len(part)
                axes += [_to_axes(value) for value in values]
        except OSError:
            return [None] * len(paths)
        finally:
            remove_tree(inputs.folder)
        return axes

    def predict(
        self,
        cases: Sequence[Image],
        covariates: Sequence[Mapping[str, Covariate]],
        strict: bool,
        output: OutputFolder | None,
        positions: Sequence[int],
        with_saliency: bool,
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
                with_saliency=with_saliency,
            )
            answers = [
                replace(answer, image=case, error=inputs.original(answer.error))
                for case, answer in zip(cases, raw_answers, strict=True)
            ]
            if output is None:
                return [answer.without_files() for answer in answers]
            return [
                output.take(answer, out, number, position)
                for number, (answer, position) in enumerate(zip(answers, positions, strict=True), start=1)
            ]
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
            status, log, answer = self._send({"arguments": arguments}, out.parent / "log")
            self.failed = status not in (0, 1) or not out.is_file()
            self.stays_loaded = answer.get("stays_loaded") is True
            return status, log

        return run

    def _send(self, request: Mapping[str, Any], log: Path) -> tuple[int, str, dict[str, Any]]:
        """Send one request; return its exit status, the end of its output, and the whole answer.

        If the process ends, its own exit status is returned.
        """
        self.busy = True
        self._messages += 1
        deadline = time.monotonic() + self.timeout_s
        try:
            protocol.send_message(self._to, {"id": self._messages, "log": str(log), **request})
            while True:
                with contextlib.suppress(protocol.MessageTimeout):
                    answer = self._receiver.receive(_POLL_S)
                    if answer.get("id") == self._messages and isinstance(status := answer.get("status"), int):
                        self.busy = False
                        return status, _tail(log), answer
                if self._check_cancelled is not None:
                    self._check_cancelled()
                if self._process.poll() is not None:
                    raise protocol.ConnectionClosed
                if time.monotonic() > deadline:
                    raise ModelError(
                        f"predict.py was still running after {self.timeout_s:g} s; predict fewer images at once"
                    )
        except (protocol.ConnectionClosed, protocol.MalformedMessage):
            ended = self._process.wait(10.0) or self._process.stop()
        return _status(ended), _tail(log) + self._last_words(ended), {}

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


def _to_axes(value: Any) -> ImageAxes | None:
    """Return the axes that the process read; None if it read none, or answers something else."""
    if not isinstance(value, dict) or value.get("dims") not in (2, 3):
        return None
    counts = [value.get(name, 1) for name in ("pages", "volumes")]
    return ImageAxes(value["dims"], *counts) if all(isinstance(count, int) for count in counts) else None
