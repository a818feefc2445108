"""A coding agent in a keep-or-discard loop: short experiments of equal length, each kept only if the validation figure rises.

Runs inside the sandbox with the standard library only: `python autoresearch_agent.py PROMPT.md --minutes M`. The idea is
published (A. Karpathy, autoresearch, 2026); the program is m3b's own. Every step is on disk before it counts, so that a killed
run goes on where it was: no answered request is sent again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path

RULES = """You improve a model by experiments of {minutes:.2g} minutes each, {total:g} minutes in all. The folder `best/`
holds the best experiment so far. Each reply is one of:
1. LOOK: a shell command in one line, to look at files; its output is the next message.
2. Files for the next experiment, each complete, in this form, with as many files as you like:
FILE: train.py
````
text of the file
````
   They are laid over a copy of `best/`, with links `data` and `resources`; then `experiment.sh` is run there with bash. It must train
   within the time, write `Deliver/`, and write `CLAIM.json` with the validation figure, on the same validation patients in every
   experiment; $EXPERIMENT_SECONDS holds the time. If the figure is higher than that of `best/`, the experiment becomes `best/`;
   otherwise it is deleted. Say in one line before the files what you change and why.
3. DONE, if you expect no further gain. If no data set fits: LOOK: echo "reason" > DECLINED.txt, then DONE.
`best/Deliver` is judged, and the claim beside it."""
FILE_PATTERN = re.compile(r"^FILE:[ \t]*(\S+)[ \t]*\n(`{3,})[^\n]*\n(.*?)\n?^\2[ \t]*$", re.MULTILINE | re.DOTALL)
LOOK_PATTERN = re.compile(r"^LOOK:[ \t]*(\S.*)$", re.MULTILINE)
DEFAULT_EXPERIMENTS = 6
OVERTIME = 1.2
"""Share of its time after which an experiment is ended: loading and writing are not training."""
MAX_OUTPUT_CHARACTERS, MAX_CODE_CHARACTERS, LOOK_TIMEOUT_S = 6000, 40_000, 120
BEST, TRIAL, REPLACED, STATE_FILE = Path("best"), Path("trial"), Path("replaced"), Path("autoresearch.json")


@dataclass
class Experiment:
    """An experiment that has ended: `kept`, `discarded`, `failed` or `too long`; its figure, duration in s, description."""

    outcome: str
    figure: float | None
    seconds: float
    note: str


@dataclass
class ResearchState:
    """What a killed run needs in order to go on.

    Args:
        messages: the conversation about the next experiment; a reply at its end has not been carried out yet.
        best_figure: validation figure of `best/`.
        last_output: end of the output of the last experiment.
    """

    experiments: list[Experiment] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    best_figure: float | None = None
    last_output: str = ""

    def save(self) -> None:
        """Replace the state on disk at once."""
        partial = STATE_FILE.with_suffix(".part")
        partial.write_text(json.dumps(asdict(self)), encoding="utf-8")
        partial.replace(STATE_FILE)

    @classmethod
    def load(cls) -> ResearchState:
        """Return the state on disk, or a new one. Also finish or undo an exchange of `best/` that was interrupted."""
        if REPLACED.is_dir() and not BEST.exists():
            REPLACED.replace(BEST)
        shutil.rmtree(REPLACED, ignore_errors=True)
        if not STATE_FILE.is_file():
            return cls()
        raw = json.loads(STATE_FILE.read_text(encoding="utf-8"))
        return cls(**{**raw, "experiments": [Experiment(**item) for item in raw["experiments"]]})

    @property
    def seconds_used(self) -> float:
        return sum(experiment.seconds for experiment in self.experiments)


def ask_model(messages: list[dict[str, str]]) -> str:
    """Return the reply of the model at `M3B_BASE_URL`."""
    body = json.dumps({"model": os.environ.get("M3B_MODEL", "model"), "messages": messages}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{os.environ['M3B_BASE_URL']}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=1800) as answer:  # nosec B310  # the relay's loopback address, set by m3b
        return str(json.loads(answer.read())["choices"][0]["message"]["content"] or "")


def shorten(text: str, limit: int = MAX_OUTPUT_CHARACTERS) -> str:
    """Return beginning and end of a long text."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n... left out ...\n{text[-limit // 2 :]}"


def describe_state(state: ResearchState) -> str:
    """Return the log of experiments, the code of the best one and the last output, as text for the model."""
    lines = [
        f"{number}. {experiment.outcome}, figure {experiment.figure}, {experiment.seconds:.0f} s: {experiment.note}"
        for number, experiment in enumerate(state.experiments, start=1)
    ]
    code = []
    for file in sorted(BEST.iterdir()) if BEST.is_dir() else ():
        if file.suffix in (".py", ".sh", ".md") and file.is_file() and not file.is_symlink():
            code.append(f"FILE: {file.name}\n````\n{file.read_text(encoding='utf-8', errors='replace')}\n````")
    return (
        f"Experiments so far:\n{chr(10).join(lines) or 'none'}\n\n"
        f"Files of `best/`:\n{shorten(chr(10).join(code), MAX_CODE_CHARACTERS) or 'none'}\n\n"
        f"Output of the last experiment:\n{state.last_output or 'none'}\n\nWhat is the next experiment?"
    )


def look(command: str) -> str:
    """Run a command in the working directory and return its output."""
    try:
        completed = subprocess.run(
            ["/bin/bash", "-c", command], capture_output=True, text=True, errors="replace", timeout=LOOK_TIMEOUT_S, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"ended after {LOOK_TIMEOUT_S} s"
    return shorten(f"exit status {completed.returncode}\n{completed.stdout}{completed.stderr}")


def prepare_trial(files: dict[str, str]) -> None:
    """Make `trial/`: a copy of `best/` without its results, with the new files and links to the data.

    Raises:
        ValueError: a file name leads out of the folder.
    """
    shutil.rmtree(TRIAL, ignore_errors=True)
    if BEST.is_dir():
        shutil.copytree(BEST, TRIAL, symlinks=True, ignore=shutil.ignore_patterns("Deliver", "CLAIM.json"))
    TRIAL.mkdir(exist_ok=True)
    for name in ("data", "resources"):
        if not (TRIAL / name).is_symlink():
            (TRIAL / name).symlink_to(Path("..", name))
    for name, text in files.items():
        target = TRIAL / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name} is outside of the experiment")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n", encoding="utf-8")


def run_experiment(seconds: float) -> tuple[str, float | None, str]:
    """Run `experiment.sh` in `trial/`; return how it ended (`ok`, `failed`, `too long`), its figure, and its output."""
    env = {**os.environ, "EXPERIMENT_SECONDS": f"{seconds:.0f}"}
    with Path("experiment.log").open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            ["/bin/bash", "experiment.sh"], cwd=TRIAL, stdout=log, stderr=log, env=env, start_new_session=True
        )
        try:
            status = process.wait(timeout=seconds * OVERTIME)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        log.seek(0)
        output = shorten(log.read())
    if status is None:
        return "too long", None, f"{output}\nended after {seconds * OVERTIME:.0f} s"
    figure = read_figure()
    is_complete = status == 0 and figure is not None and (TRIAL / "Deliver" / "predict.py").is_file()
    return "ok" if is_complete else "failed", figure, f"exit status {status}\n{output}"


def read_figure() -> float | None:
    """Return the figure of `trial/CLAIM.json`; None if there is no usable one."""
    try:
        figure = float(json.loads((TRIAL / "CLAIM.json").read_text(encoding="utf-8"))["value"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return figure if math.isfinite(figure) else None


def decide(state: ResearchState, seconds: float, note: str) -> str:
    """Run the experiment in `trial/`, keep or discard it, add it to the log, and return its outcome."""
    started = time.monotonic()
    outcome, figure, state.last_output = run_experiment(seconds)
    if outcome == "ok":
        is_better = figure is not None and (state.best_figure is None or figure > state.best_figure)
        outcome = "kept" if is_better else "discarded"
    state.experiments.append(Experiment(outcome, figure, round(time.monotonic() - started, 1), note))
    state.messages = []
    if outcome == "kept":
        state.best_figure = figure
        if BEST.exists():
            BEST.replace(REPLACED)
        TRIAL.replace(BEST)
        shutil.rmtree(REPLACED, ignore_errors=True)
    else:
        shutil.rmtree(TRIAL, ignore_errors=True)
    state.save()
    return f"{outcome}, figure {figure}, best {state.best_figure}"


def carry_out(reply: str, state: ResearchState, seconds: float) -> bool:
    """Do what a reply asks for; return whether the model wants to go on."""
    files = {name: text for name, _, text in FILE_PATTERN.findall(reply)}
    command = LOOK_PATTERN.search(reply)
    observation = "Reply with `LOOK: command`, with files including experiment.sh, or with DONE."
    if files:
        try:
            prepare_trial(files)
        except (ValueError, OSError) as error:
            observation = str(error)
        else:
            if (TRIAL / "experiment.sh").is_file():
                note = shorten(reply.split("FILE:")[0].strip().partition("\n")[0], 300)
                print(decide(state, seconds, note), flush=True)
                return True
    elif command:
        observation = look(command[1])
    elif re.search(r"^DONE\b", reply, re.MULTILINE):
        return False
    state.messages.append({"role": "user", "content": observation})
    state.save()
    return True


def main(arguments: list[str]) -> int:
    """Run the loop; return 0 if the model or the time ended it, and 3 if the model does not answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("prompt", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0, help="time of all experiments together")
    parser.add_argument("--experiments", type=int, default=DEFAULT_EXPERIMENTS)
    options = parser.parse_args(arguments)
    seconds = 60 * options.minutes / options.experiments
    rules = RULES.format(minutes=seconds / 60, total=options.minutes)
    prompt = options.prompt.read_text(encoding="utf-8")
    state = ResearchState.load()
    while state.seconds_used + seconds <= 60 * options.minutes * 1.001:
        if not state.messages:
            state.messages = [
                {"role": "system", "content": rules},
                {"role": "user", "content": f"{prompt}\n\n{describe_state(state)}"},
            ]
        if state.messages[-1]["role"] == "user":
            try:
                reply = ask_model(state.messages)
            except (urllib.error.URLError, OSError) as error:
                print(f"the model does not answer: {error}", flush=True)
                return 3
            state.messages.append({"role": "assistant", "content": reply})
            state.save()
        print(f"---\n{state.messages[-1]['content']}", flush=True)
        if not carry_out(state.messages[-1]["content"], state, seconds):
            break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
