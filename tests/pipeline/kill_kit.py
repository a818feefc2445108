"""Runs that are killed with SIGKILL and taken up again, each process another one; what has to be the same afterwards.

As a program: `python kill_kit.py RUN DATA AT` begins or resumes the run in RUN with a scripted model, and kills itself
right after the AT-th event of its own that the journal keeps; 0 is never. `staged` is when copies of the test images lie
ready for predict.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KIT_FOLDER = Path(__file__).parent
sys.path[:0] = [str(KIT_FOLDER), str(KIT_FOLDER.parent)]

from pipeline_kit import REQUEST, journal, left_running, place, play, wait_until  # noqa: E402 - lie beside this

from m3b.messages import Message, Reply, ToolSpec  # noqa: E402 - sorted behind those
from m3b.run.registry import TOKEN_NAME  # noqa: E402 - sorted behind those
from m3b.testing import ScriptedModel  # noqa: E402 - sorted behind those
from warm.commands import run_python  # noqa: E402 - sorted behind those

REQUEST_LOG = "asked.txt"
"""Beside the run: one line each time that a model is asked."""
STAGED = "staged"
LATER = ("usage", "roles", "run_dir", "model_dir", "report")
"""Of a Result: what depends on where and how long, or counts a call that was made once more."""


def again(messages: Sequence[Message]) -> Reply | None:
    """The calls that were interrupted, asked for once more, as a sensible model does."""
    lost = []
    for message in reversed(messages):
        if message.role == "tool" and "m3b was interrupted while this ran" in message.text:
            lost.append(message.call_id)
        elif message.role == "assistant":
            calls = tuple(call for call in message.calls if call.id in lost)
            return Reply("", calls, stop="tools") if calls else None
    return None


def survivor(request_log: Path) -> ScriptedModel:
    """The scripted model of most tests, which repeats what was interrupted and counts how often it is asked."""
    acts = play()

    def step(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Any:
        with request_log.open("a") as stream:
            stream.write("x\n")
        if lost := again(messages):
            return lost
        stage, replies = place(messages)
        since = max(at for at, message in enumerate(messages) if message.text.startswith("Stage: "))
        repeats = sum(
            again(messages[:at]) is not None for at in range(since, len(messages)) if messages[at].role == "assistant"
        )
        return acts[stage][min(replies - repeats, len(acts[stage]) - 1)]

    return ScriptedModel([step], repeat=True)


def main() -> None:
    from m3b import Pipeline, resume
    from m3b.events import Event
    from m3b.run import sandbox_executor

    run, data = Path(sys.argv[1]), Path(sys.argv[2])
    remaining_events = [0]
    if sys.argv[3] == STAGED:
        sandbox_executor.place_links = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    else:
        remaining_events = [int(sys.argv[3])]

    def count(event: Event) -> None:
        remaining_events[0] -= event.is_journaled
        if event.is_journaled and remaining_events[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    model = survivor(run.with_name(REQUEST_LOG))
    if (run / "run.json").exists():
        resume(run, model, on_event=count)
    else:
        Pipeline(model, data=[data], out=run, on_event=count).run(REQUEST)


def ended(run: Path, data: Path, at: int | str = 0) -> int:
    """The exit code of a process that works on the run until its end, or until it kills itself."""
    run.parent.mkdir(parents=True, exist_ok=True)
    return run_python(KIT_FOLDER / "kill_kit.py", run, data, at, server="m3b").returncode


def outcome(run: Path) -> dict[str, Any]:
    """Of the Result, what has to be the same however often the run was killed."""
    result = json.loads((run / "run.json").read_text())["result"]
    return {key: round_figures(value) for key, value in result.items() if key not in LATER} | {
        "iterations": result["usage"]["iterations"],
        "roles": {name: role["status"] for name, role in result["roles"].items()},
    }


def round_figures(value: Any) -> Any:
    """Round numbers to six digits: another process may use another number of threads, whose sums are rounded otherwise."""
    if isinstance(value, dict):
        return {key: round_figures(item) for key, item in value.items()}
    if isinstance(value, list):
        return [round_figures(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


TEMPORARY = (".*", "*.part", "candidate", "*.tmp")
"""Names of files that are there for a moment only."""
LASTING = (".lock", TOKEN_NAME)
"""Names like these that a run folder keeps."""


def faults_of(run: Path, expected: dict[str, Any]) -> list[str]:
    """What is wrong with a run that was killed and went on: another Result, a model asked again for what was recorded, a
    call run twice, processes or temporary files left over."""
    now = outcome(run)
    changes = {key: (expected.get(key), now.get(key)) for key in {*expected, *now} if expected.get(key) != now.get(key)}
    faults = [f"another Result: {changes}"] if changes else []
    events = journal(run)
    request_count, replies = (
        len(run.with_name(REQUEST_LOG).read_text().split()),
        sum(entry["kind"] == "reply" for entry in events),
    )
    if request_count > replies + 1:  # a kill may fall between the answer of a model and the journal's line
        faults.append(f"the model was asked {request_count} times for {replies} replies")
    open_calls: list[str] = []
    for event in events:
        if event["kind"] == "reply":
            open_calls = [call["id"] for call in event["data"]["calls"]]
        elif event["kind"] == "call":
            if event["data"]["id"] not in open_calls:
                faults.append(f"the call {event['data']['id']} was run twice")
                continue
            open_calls.remove(event["data"]["id"])
    try:
        wait_until(lambda: not left_running(run), 30)
    except AssertionError:
        faults.append(f"left running: {left_running(run)}")
    leftovers = {path for pattern in TEMPORARY for path in run.rglob(pattern) if path.name not in LASTING}
    if leftovers:
        faults.append(f"left over: {sorted(path.relative_to(run).as_posix() for path in leftovers)}")
    return faults


def check_survived(run: Path, expected: dict[str, Any]) -> None:
    """The same Result, no model asked twice for what was recorded, no tool's effect twice, nothing left over."""
    faults = faults_of(run, expected)
    assert faults == [], faults
    request_count = len(run.with_name(REQUEST_LOG).read_text().split())
    assert request_count == sum(event["kind"] == "reply" for event in journal(run)), (
        "a recorded reply was asked for again"
    )


if __name__ == "__main__":
    main()
