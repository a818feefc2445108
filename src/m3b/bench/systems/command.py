"""Any outside system: a command in the same workspace, with the same prompt, budget and confinement."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.agents.checks.integrity import CLEAN, fingerprint
from m3b.bench.relay import INSIDE, ROUTE, Meter, Relay
from m3b.cleanup import undo_on_error
from m3b.errors import LLMError, SandboxError
from m3b.llm import LLM, connect
from m3b.models import check_deliverable
from m3b.run.folder import Run
from m3b.run.provisioning import lay_out
from m3b.sandbox import Limits, Mounts, Sandbox, choose
from m3b.workspace import Workspace

from . import program
from .base import CellJob, CellOutcome
from .prompt import combined

DELIVER, DECLINED, PROMPT = "Deliver", "DECLINED.txt", "PROMPT.md"
POLL_S = 0.1
WALL_S = 4 * 3600.0
PATIENCE = 10
"""So often in a row a program may ask and get no answer; one that goes on then would do so until the time is up."""


@dataclass(frozen=True)
class Command:
    """A system that is started as a command.

    Args:
        template: words of the command; `{prompt}` is the prompt's text, `{prompt_file}` its file, `{model}` the model's
            name at `{base_url}`, `{data}` the folder of the first data set, `{steps}` the actions allowed, `{half}` half of
            them, `{here}` the folder of m3b's own programs, `{python}` this interpreter.
        package: what to `pip install` where the program is missing.
        env: further variables.
        about: what the prompt says of this program besides.
        before: makes files in the working directory before the start.
        lifted: whether it is a Python program that starts by way of `lifted.py`.
        connect: gives the model that the relay asks; for tests.
    """

    name: str
    template: tuple[str, ...]
    package: str = ""
    env: tuple[tuple[str, str], ...] = ()
    about: str = ""
    before: Callable[[Path, CellJob], None] | None = None
    lifted: bool = False
    connect: Callable[[str], LLM] = field(default=connect)

    def missing(self) -> str:
        """Why the program cannot be started here."""
        name = self.template[0]
        if name == "{python}" or program.found(name):
            return ""
        hint = f"pip install {self.package}" if self.package else "put it on the PATH, or give its full path"
        return f"{self.name}: there is no program {name!r} on this machine; {hint}."

    def run(self, job: CellJob) -> CellOutcome:
        why = self.missing()
        if why:
            return CellOutcome("failed", why, kind="not_installed")
        started = time.monotonic()
        run = Run.create(job.folder / "run")
        workspace = Workspace(data=list(job.cards))
        cards = [card for card in workspace.cards.values() if card.path]
        lay_out(run, cards, workspace.root)
        prompt = combined(workspace.root / "prompts", job.request, list(workspace.cards.values()), job.options)
        prompt += self.about
        (run.work / PROMPT).write_text(prompt, encoding="utf-8")
        if self.before is not None:
            self.before(run.work, job)
        folders = [card.path for card in cards if card.path]
        try:
            llm = self.connect(job.model)
            sandbox = choose(str(job.options.get("sandbox", "auto")))
        except (LLMError, SandboxError) as error:
            return CellOutcome("failed", str(error), kind="provider" if isinstance(error, LLMError) else "crashed")
        raw = _fingerprints(folders, sandbox)
        meter = Meter(
            int(job.options.get("max_actions", 100)), job.options.get("max_tokens"), job.options.get("max_cost")
        )
        with Relay(run.folder / "relay", llm, meter):
            code, reason, said = self._start(run, job, prompt, sandbox, folders, meter)
        integrity = CLEAN if raw == _fingerprints(folders, sandbox) else "raw data changed during the run"
        usage = _usage(meter, time.monotonic() - started)
        return _ended(run, code, reason, said, meter, integrity, usage)

    def _start(
        self, run: Run, job: CellJob, prompt: str, sandbox: Sandbox, folders: Sequence[Path], meter: Meter
    ) -> tuple[int, str, str]:
        """Run the command to its end; its exit status, how it ended, and the end of what it printed."""
        inside = run.folder / "bin"
        inside.mkdir(exist_ok=True)
        for file in (INSIDE, *(Path(__file__).with_name(name) for name in ("react.py", "lifted.py"))):
            shutil.copyfile(file, inside / file.name)
        words, needed = self._words(run, job, prompt, inside)
        argv = [sys.executable, str(inside / INSIDE.name), str(run.folder / "relay"), model_name(job), "--", *words]
        mounts = Mounts(read=(*folders, run.resources, inside, *needed), write=(run.work, run.folder / "relay"))
        wall = float(job.options.get("max_wall") or WALL_S)
        log = run.folder / "output.txt"
        process = sandbox.start(
            argv, cwd=run.work, mounts=mounts, output=log, limits=Limits(wall_s=wall), env=dict(self.env)
        )
        with undo_on_error(process.stop):
            while (ended := process.wait(POLL_S)) is None:
                if meter.in_vain >= PATIENCE:
                    ended = process.stop()
                    break
        return ended.code, ended.reason, log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def _words(self, run: Run, job: CellJob, prompt: str, inside: Path) -> tuple[list[str], tuple[Path, ...]]:
        """The command line, and the folders that its program needs."""
        steps, model = int(job.options.get("max_actions", 100)), model_name(job)
        fill = {"here": str(inside), "prompt": prompt, "prompt_file": PROMPT, "model": model,
                "routed_model": ROUTE + model, "python": sys.executable,
                "data": f"data/{next(iter((run.work / 'data').iterdir())).name}",
                "steps": str(steps), "half": str(max(1, steps // 2))}  # fmt: skip
        words = [program.filled(word, fill) for word in self.template]
        words[0] = program.found(words[0]) or words[0]
        needed = program.folders(words[0])
        if self.lifted:
            python = str(program.interpreter(Path(words[0])))
            words = [python, str(inside / "lifted.py"), self.name, str(steps), *words]
        return words, needed


def _fingerprints(folders: Sequence[Path], sandbox: Sandbox) -> list[str]:
    """Cells at work on the same data link to its files, which changes their ctime."""
    return [fingerprint(folder, change_times=sandbox.name == "off") for folder in folders]


def model_name(job: CellJob) -> str:
    """The model's name without its provider."""
    return job.model.partition(":")[2] or job.model


def _usage(meter: Meter, wall_s: float) -> dict[str, Any]:
    used = meter.usage
    return {"actions": meter.requests, "iterations": 0, "input_tokens": used.input_tokens,
            "cached_tokens": used.cached_tokens, "output_tokens": used.output_tokens,
            "cost_usd": round(used.cost_usd, 6), "wall_s": round(wall_s, 1)}  # fmt: skip


def _ended(
    run: Run, code: int, reason: str, said: str, meter: Meter, integrity: str, usage: dict[str, Any]
) -> CellOutcome:
    """What the command left: a model, a refusal, or nothing."""
    work: dict[str, Any] = {"work": str(run.work), "integrity": integrity, "usage": usage}
    declined = run.work / DECLINED
    folder = newest(run.work)
    problems = check_deliverable(folder) if folder else [f"there is no folder {DELIVER}/"]
    if folder and not problems:
        shutil.copytree(folder, run.model, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        return CellOutcome("completed", "A deliverable was handed over.", model=str(run.model), **work)
    if declined.is_file() and not declined.is_symlink() and folder is None:
        why = declined.read_text(encoding="utf-8", errors="replace").strip()[:1000]
        return CellOutcome("no_dataset", why or "declined without a reason", **work)
    tail = f" It ended with status {code}; it printed: {said.strip()[-600:] or 'nothing'}"
    if meter.failure:
        return CellOutcome("failed", f"The model could not be asked: {meter.failure}", kind="provider", **work)
    if meter.refused:
        return CellOutcome("out_of_budget", f"{meter.refused}; {problems[0]}.{tail}", **work)
    if reason == "wall_time":
        return CellOutcome("out_of_budget", f"The time is up; {problems[0]}.{tail}", kind="timeout", **work)
    kind = "not_installed" if code == 127 else "crashed" if code else ""
    return CellOutcome("failed", f"No deliverable: {'; '.join(problems[:3])}.{tail}", kind=kind, **work)


def newest(work: Path) -> Path | None:
    """The youngest folder `Deliver` in the working directory; some systems work in a folder of their own inside it."""
    found = [work / DELIVER] if (work / DELIVER).is_dir() else []
    for folder, folders, _ in os.walk(work):
        depth = len(Path(folder).relative_to(work).parts)
        folders[:] = [name for name in folders if depth < 4 and not Path(folder, name).is_symlink()]
        found += [Path(folder, name) for name in folders if name == DELIVER and depth]
    return max(found, key=lambda place: place.stat().st_mtime) if found else None


def from_text(name: str) -> Command:
    """`command:PROGRAM ARGUMENTS...` as a system; without a placeholder the prompt's file is the last argument."""
    words = shlex.split(name.removeprefix("command:"))
    if not any("{prompt" in word for word in words):
        words.append("{prompt_file}")
    return Command(name, tuple(words))
