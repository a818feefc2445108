"""A run followed in the browser: its events, progress and curves as server-sent events, read from its journal."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from m3b.agents.roles import BUILTIN_ROLES
from m3b.display import shorten
from m3b.errors import UsageError
from m3b.events import (
    ArtifactChecked,
    CandidateMeasured,
    Event,
    IndexAudited,
    MessageSent,
    ModelDelivered,
    ModelsCompared,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunEnded,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from m3b.journal import JournalReader, find_tail_offset
from m3b.markup.json_values import as_dict, as_list
from m3b.progress import RunProgress, get_first_line, summarize_arguments
from m3b.report.run_files import TRAINING_LOG, read_training_log
from m3b.report.summary_view import describe_status, use_metric_title
from m3b.report.training_view import list_curves
from m3b.run.folder import RunFolder
from m3b.run.summary import summarize_run
from m3b.run.watching import read_running_output
from m3b.serve.view.context import ViewContext
from m3b.serve.view.run_index import make_key
from m3b.serve.view.run_routes import MAX_JOURNAL_BYTES, make_row

POLL_S = 1.0
MAX_PAST_MESSAGES = 300
"""Messages that a page gets when it is opened."""
MAX_TEXT_CHARS = 600
LAST_ID_HEADER = "last-event-id"

Message = tuple[str, Any, int | None]
"""Name, JSON value and id of a server-sent event; the id is the offset in the journal from which reading goes on."""


def make_routes(context: ViewContext) -> list[Route]:
    """Return the routes of the live page and of its events."""

    def show_live(request: Request) -> Response:
        run = context.find_run(request)
        row = make_row({**summarize_run(run), "key": make_key(run)})
        return context.render(request, "live.html", run=run, row=row, scripts=("live.js",))

    async def send_events(request: Request) -> Response:
        run = await anyio.to_thread.run_sync(context.find_run, request)
        last_id = request.headers.get(LAST_ID_HEADER, "")
        follower = RunFollower(run, int(last_id) if last_id.isdecimal() and len(last_id) < 16 else None)
        return StreamingResponse(_stream(follower), media_type="text/event-stream")

    return [
        Route("/runs/{key}/live", show_live, name="run_live"),
        Route("/runs/{key}/events", send_events, name="run_events"),
    ]


async def _stream(follower: RunFollower) -> AsyncIterator[str]:
    """Yield what is new about a run as text of the protocol, until it ends or is removed."""
    while True:
        messages = await anyio.to_thread.run_sync(follower.poll)
        for name, value, offset in messages:
            identity = "" if offset is None else f"id: {offset}\n"
            yield f"{identity}event: {name}\ndata: {json.dumps(value)}\n\n"
        if any(name == "end" for name, _, _ in messages):
            return
        if not messages:
            yield ": at work\n\n"
        await anyio.sleep(POLL_S)


class RunFollower:
    """Collects what is new about a run since the last look at its folder.

    Args:
        last_offset: the id of the last message that the page has; None if it has none.
    """

    def __init__(self, run: RunFolder, last_offset: int | None = None) -> None:
        self._run, self._last_offset = run, last_offset
        self._progress, self._events = RunProgress(), deque[Event](maxlen=MAX_PAST_MESSAGES)
        self._reader: JournalReader | None = None
        self._is_whole, self._is_first = True, True
        self._log_version: tuple[int, int] | None = None
        self._output = ""

    def poll(self) -> list[Message]:
        """Return the new messages; the last one is `end` if nothing more will come."""
        is_busy = self._run.is_busy  # before the journal is read, so that the last events are never missed
        if not (self._run.path / "run.json").is_file():
            removed = {"label": "Removed", "tone": "warn", "lines": ["The folder of this run is gone."], "stages": []}
            return [("end", removed, None)]
        messages: list[Message] = []
        with contextlib.suppress(OSError):  # a journal that is no plain file, or cannot be read now
            messages = [*self._read_messages(), *self._read_curves(), *self._read_output()]
        summary, progress, now = summarize_run(self._run), self._progress, time.time()
        label, tone = describe_status(summary["status"])
        lines = [use_metric_title(summary["reason"], as_dict(summary["primary"]))]
        if is_busy:
            lines = progress.describe_now(now)[
                : 2 if self._is_whole else 1
            ]  # the totals are those of the whole journal
        state = {
            "label": label,
            "tone": tone,
            "lines": lines,
            "stages": self._list_stages(is_busy),
            "share": progress.to_dict(now)["share"] if is_busy else None,
        }
        return [*messages, ("state" if is_busy else "end", state, None)]

    def _read_messages(self) -> Iterator[Message]:
        if not self._run.journal_file.is_file():
            return
        if self._reader is None:
            start = find_tail_offset(self._run.journal_file, MAX_JOURNAL_BYTES)
            self._reader, self._is_whole = JournalReader(self._run.journal_file, start), start == 0
        messages: deque[Message] = deque(maxlen=MAX_PAST_MESSAGES if self._last_offset is None else None)
        for offset, event in self._reader.read_new():
            self._progress.update(event)
            self._events.append(event)
            if self._last_offset is None or offset > self._last_offset:
                messages.extend(("message", item, offset) for item in describe_event(event))
        self._last_offset = self._last_offset or 0
        yield from messages

    def _read_curves(self) -> Iterator[Message]:
        try:
            status = (self._run.path / TRAINING_LOG).stat()
        except OSError:
            return
        version = (status.st_mtime_ns, status.st_size)
        if version != self._log_version:
            self._log_version = version
            yield "curves", [chart.to_json() for chart in list_curves(read_training_log(self._run.path))], None

    def _read_output(self) -> Iterator[Message]:
        output = read_running_output(self._run, list(self._events))
        text = output.text if output is not None else ""
        if output is not None:
            self._progress.update(output)
        if text != self._output:
            self._output = text
            yield "output", {"text": text}, None

    def _list_stages(self, is_busy: bool) -> list[dict[str, str]]:
        """Return title and state (`done`, `working`, `ended` early, `waiting`) of each stage of the run."""
        try:
            names = [str(name) for name in as_list(self._run.load_record().get("stages"))]
        except UsageError:  # run.json cannot be read, as the status says
            return []
        titles = {role.name: role.title for role in BUILTIN_ROLES}
        titles |= {event.role: event.title for event in self._events if isinstance(event, RoleStarted)}
        names = _add_stages(names, [event.role for event in self._events if isinstance(event, RoleStarted)])
        seen = [event for event in self._events if isinstance(event, RoleStarted | RoleEnded) and event.role in names]
        last = seen[-1] if seen else None
        position = names.index(last.role) if last is not None else -1
        stages = []
        for number, name in enumerate(names):
            state = "done" if number < position else "waiting"
            if number == position and last is not None:
                state = "working" if isinstance(last, RoleStarted) and is_busy else "ended"
                state = "done" if isinstance(last, RoleEnded) and last.status == "done" else state
            stages.append({"title": titles.get(name, name), "state": state})
        return stages


def _add_stages(names: Sequence[str], started: Sequence[str]) -> list[str]:
    """Return the stages of a run with those that its options added, such as a search, each after the stage before it."""
    stages = list(names)
    for before, role in pairwise(started):
        if role and role not in stages and before in stages:
            stages.insert(stages.index(before) + 1, role)
    return stages


def describe_event(event: Event) -> Iterator[dict[str, str]]:
    """Yield what a page shows of an event: local time, label, text and tone."""
    clock = time.strftime("%H:%M:%S", time.localtime(event.at))
    for label, text, tone in _list_lines(event):
        yield {"time": clock, "label": label, "text": shorten(text, MAX_TEXT_CHARS), "tone": tone}


def _list_lines(event: Event) -> Iterator[tuple[str, str, str]]:
    match event:
        case RunStarted():
            yield "run", f"starts, sandbox: {event.sandbox.get('name', '')}", ""
            yield from (("note", note, "") for note in event.notes)
        case RoleStarted():
            yield "stage", f"{event.title} ({event.llm})", "calm"
        case StepStarted():
            yield "step", event.text, ""
        case ReplyReceived() if event.text.strip():
            yield "says", event.text, ""
        case ToolCalled():
            yield "action", f"{event.name} {summarize_arguments(event.arguments)}", ""
        case ToolReturned() if event.is_error:
            yield "failed", get_first_line(event.text), "bad"
        case CandidateMeasured():
            figure = event.problem if event.value is None else f"{event.value:.4g} on held-out cases"
            yield "candidate", f"{event.number}, rung {event.rung + 1}: {figure}", "warn" if event.value is None else ""
        case IndexAudited():
            yield "audit", event.summary, ""
        case ArtifactChecked():
            yield "check", "accepted" if event.accepted else "not accepted", "good" if event.accepted else "warn"
            yield from (("reason", reason, "warn") for reason in event.reasons)
            yield from (("noted", warning, "") for warning in event.warnings)
        case MessageSent():
            yield "m3b", event.text, ""
        case ModelsCompared():
            yield "models", event.reason, ""
        case ModelDelivered():
            yield "delivered", f"the model, {len(event.hashes):,} files", "good"
        case RoleEnded() if event.status != "done":
            yield "stage", f"ended: {event.status}", "warn"
        case RunEnded():
            label, tone = describe_status(event.result.get("status"))
            reason = use_metric_title(str(event.result.get("reason", "")), as_dict(event.result.get("primary")))
            yield "run", f"{label}: {reason}", tone
