"""The progress of a run, from its events: stage, activity, latest figures of the training, and time left."""

from __future__ import annotations

import html
import importlib
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from m3b.display import shorten
from m3b.events import (
    ArtifactChecked,
    Event,
    IndexAudited,
    ReplyDelta,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunEnded,
    RunStarted,
    ScriptOutput,
    StepStarted,
    ToolCalled,
    ToolReturned,
    WaitingForModel,
)

MAX_LINE_CHARS = 110
"""Maximum length of the line."""
MIN_REDRAW_S = 0.5
"""Minimum interval between updates for script output, since a page that changes all the time is slow to draw."""

PROGRESS_PATTERN = re.compile(r"\b(\d+) of (\d+) (s|images|cases|files)\b")
"""Progress in the output of scripts and checks; if it is in seconds, it moves on until the next line."""
FIGURE_PATTERN = re.compile(
    r"(?:^|[,:;|] )(?P<name>[A-Za-z][\w ]{0,40}?)[ :]+(?P<value>-?\d+\.\d+(?:e-?\d+)?)(?=[,;\s]|$)"
)
"""A named figure in a line of a training, such as `valid loss 0.697`."""
ASSIGNED_FIGURE_PATTERN = re.compile(r"\b(?P<name>[A-Za-z]\w*)=(?P<value>-?\d+\.\d+(?:e-?\d+)?)(?=[,;\s]|$)")
"""The same, written as `valid_loss=0.697`."""
FOLD_PATTERN = re.compile(r"^fold ?(\d+)\b")
IGNORED_FIGURES = frozenset({"lr", "learning rate"})

CHECK_ACTIVITY = "checking what was made"
"""What m3b does from the last reply of an agent until the check of its artifact ends."""
STAGE_S = {"Task Manager": 2.0, "Data Engineer": 3.0, "Module Architect": 20.0, "Model Trainer": 10.0}
"""Seconds that the stages take besides training, with rules and a few hundred images on two CPU cores without other work.

The first two are how a slow machine is recognised: too high values would hide that it is slow.
"""
LLM_STAGE_S = 60.0
"""Seconds that a language model adds to a stage."""
SCORING_S = 20.0
"""Seconds after training for scoring, export, start of the model, measuring and delivery."""
TEST_CASE_S = 0.3
"""Seconds for each test case."""
DELIVERY_S = 5.0
"""Seconds for measuring and delivering the model after its last test case."""
MAX_SLOWNESS = 10.0
"""Limit of the factor by which a busy machine makes the stages slower than usual."""


def make_progress_watcher() -> Callable[[Event], None]:
    """Return a callback for events that shows the progress in a notebook, and does nothing elsewhere."""
    return NotebookProgress() if is_in_notebook() else lambda event: None


def is_in_notebook() -> bool:
    """Return whether this runs in a notebook's kernel. IPython on a terminal does not, since output stays there."""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


@dataclass(frozen=True)
class Count:
    """How much of the current activity is done.

    Args:
        unit: what is counted; `s` for seconds, which pass by themselves.
        at: when `done` was true, in seconds since 1970.
        first_done, first_at: the first count of the same activity, to measure the throughput.
    """

    done: float
    total: float
    unit: str
    at: float
    first_done: float
    first_at: float

    def get_share(self, now: float) -> float:
        """Return the share that is done, from 0 to 1."""
        done = self.done + (now - self.at if self.unit == "s" else 0.0)
        return min(1.0, max(0.0, done / self.total))

    def estimate_left_s(self, now: float) -> float | None:
        """Return the seconds left; None if the throughput is unknown yet, or if the time is over."""
        if self.unit == "s":
            left_s = self.total - self.done - (now - self.at)
            return left_s if left_s > 0 else None
        done, elapsed_s = self.done - self.first_done, self.at - self.first_at
        if done <= 0 or elapsed_s <= 0:
            return None
        return max(0.0, (self.total - self.done) * elapsed_s / done - (now - self.at))


class RunProgress:
    """The progress of a run, from its events; the same on a terminal, in a notebook and in `m3b show`."""

    def __init__(self) -> None:
        self.stage, self.activity = "", ""
        self.actions = self.tokens = 0
        self.figures: dict[str, str] = {}
        """Latest figures of the training by name, in the order of its line."""
        self.count: Count | None = None
        self.fold: int | None = None
        self.started_at: float | None = None
        self.stage_started_at: float | None = None
        self.activity_started_at: float | None = None
        self.training_started_at: float | None = None
        self.train_s = 0.0
        self.test_cases = 0
        self.is_ended = False
        self._pending_stages = dict(STAGE_S)
        self._llm_s = self._spent_s = self._usual_s = 0.0
        self._slowness, self._draft = 1.0, ""

    def update(self, event: Event) -> bool:
        """Apply an event; return whether it changes what is shown."""
        if self.started_at is None:
            self.started_at = event.at
        match event:
            case RunStarted():
                self.train_s, self.is_ended = event.train_minutes * 60, False
            case RoleStarted():
                self._start_stage(event)
            case RoleEnded():
                self._end_stage(event.at)
                self.stage = ""
                self._start_activity("", event.at)
            case IndexAudited():
                self.test_cases = int(event.facts.get("split", {}).get("test", 0) or 0)
            case ScriptOutput():
                self._read_output(event)
            case StepStarted():
                self._start_activity(event.text, event.at)
            case RunEnded(result=result):
                self._start_activity(str(result.get("reason", "")), event.at)
                self.stage, self.is_ended = str(result.get("status", "ended")), True
            case _:
                return self._update_from_agent(event)
        return True

    def _update_from_agent(self, event: Event) -> bool:
        match event:
            case ToolCalled():
                self.actions += event.cost
                self._start_activity(f"{event.name} {summarize_arguments(event.arguments)}".strip(), event.at)
            case ToolReturned():
                self._start_activity("", event.at)
            case ReplyDelta():
                self._draft = self._draft[-MAX_LINE_CHARS:] + event.text if event.text else ""
                self.activity = get_last_line(self._draft)
            case ReplyReceived():
                self._draft = ""
                self._start_activity("" if event.calls else CHECK_ACTIVITY, event.at)
                self.tokens += event.usage.input_tokens + event.usage.output_tokens
            case ArtifactChecked():
                self._start_activity("", event.at)
            case WaitingForModel():
                self.activity = describe_wait(event)
            case _:
                return False
        return True

    def _start_stage(self, event: RoleStarted) -> None:
        self.stage, self.stage_started_at = event.title, event.at
        self._llm_s = 0.0 if event.llm.startswith("rules") else LLM_STAGE_S
        self._start_activity("", event.at)

    def _start_activity(self, text: str, at: float) -> None:
        self.activity, self.activity_started_at = text, at
        self.count, self.fold, self.figures = None, None, {}

    def _read_output(self, event: ScriptOutput) -> None:
        for line in event.text.splitlines():
            fold_match = FOLD_PATTERN.match(line.strip())
            count_match = PROGRESS_PATTERN.search(line)
            if count_match is not None:
                self._read_count(count_match, event.at)
                if fold_match is not None and count_match.group(3) == "s":
                    self.fold = int(fold_match.group(1))
                    self.training_started_at = self.training_started_at or event.at
            elif self.count is not None and self.count.get_share(event.at) >= 1.0:
                self.count = None  # the training is over, and its script scores and exports
                self.figures = {}
            if count_match is not None and "loss" in line:
                self.figures = read_figures(line)
        self.activity = get_last_line(event.text) or self.activity

    def _read_count(self, match: re.Match[str], at: float) -> None:
        done, total, unit = float(match.group(1)), float(match.group(2)), match.group(3)
        if total <= 0 or done > total:
            return
        earlier = self.count
        is_first = earlier is None or (earlier.total, earlier.unit) != (total, unit) or done < earlier.done
        if earlier is None or is_first or earlier.done == 0:  # the time before the first count is that of a start
            self.count = Count(done, total, unit, at, done, at)
        else:
            self.count = Count(done, total, unit, at, earlier.first_done, earlier.first_at)

    # --- texts -------------------------------------------------------------------------------------------------------

    def describe_figures(self) -> str:
        """Return the loss and one metric of the training, such as `loss 0.823, auroc 0.693`; '' before its first line."""
        losses = {name: value for name, value in self.figures.items() if name == "loss"}
        metrics = [(name, value) for name, value in self.figures.items() if "loss" not in name]
        return ", ".join(f"{name} {value}" for name, value in [*losses.items(), *metrics[:1]])

    def describe_activity(self) -> str:
        """Return what is being done now: the figures of the training, else the latest line or step."""
        if figures := self.describe_figures():
            fold_text = f"fold {self.fold + 1}, " if self.fold else ""
            return f"{fold_text}{figures}"
        return self.activity

    def format_line(self) -> str:
        """Return stage, actions, tokens and current activity."""
        actions = f"{self.actions} action{'' if self.actions == 1 else 's'}"
        parts = [self.stage or "m3b", actions, f"{self.tokens:,} tokens", self.describe_activity()]
        return " · ".join(part for part in parts if part)

    def describe_now(self, now: float) -> list[str]:
        """Return lines on what a run at work is doing: stage and activity with its time, then the whole run."""
        since = self.activity_started_at if self.activity_started_at is not None else self.stage_started_at
        lasting = f" (for {format_clock(max(0.0, now - since))}" if since is not None else " ("
        left_s = self.count.estimate_left_s(now) if self.count is not None else None
        left = f", {format_clock(left_s)} left)" if left_s is not None else ")"
        doing = self.describe_activity() or ("waiting for the language model" if self._llm_s else "at work")
        return [
            f"{self.stage or 'm3b'}: {shorten(doing, MAX_LINE_CHARS)}{lasting}{left}",
            " · ".join(self.format_totals(now)),
        ]

    def format_totals(self, now: float) -> list[str]:
        """Return the facts of the whole run, the most important first: time, estimate, actions, tokens."""
        elapsed_s = now - (self.started_at if self.started_at is not None else now)
        left_s = self.estimate_run_left_s(now)
        left = f", {describe_left(left_s)}" if left_s is not None else ""
        actions = f"{self.actions} action{'' if self.actions == 1 else 's'}"
        return [f"{format_clock(elapsed_s)} so far{left}", actions, f"{self.tokens:,} tokens"]

    def to_dict(self, now: float) -> dict[str, Any]:
        """Return the progress as JSON values, with times in seconds."""
        count = self.count
        return {
            "stage": self.stage,
            "activity": self.activity,
            "activity_s": round(now - self.activity_started_at, 1) if self.activity_started_at is not None else None,
            "figures": {name: float(value) for name, value in self.figures.items()},
            "share": round(count.get_share(now), 4) if count is not None else None,
            "left_s": count.estimate_left_s(now) if count is not None else None,
            "run_s": round(now - self.started_at, 1) if self.started_at is not None else None,
            "run_left_s": self.estimate_run_left_s(now),
            "actions": self.actions,
            "tokens": self.tokens,
        }

    def estimate_run_left_s(self, now: float) -> float | None:
        """Return the estimated seconds until the run ends, from its stages, minutes and test cases.

        How long the stages have taken so far, against what is usual, says how busy the machine is. None if the run
        takes longer than was estimated, so that its end is unknown.
        """
        if self.is_ended or self.started_at is None:
            return None
        test_s = (SCORING_S + TEST_CASE_S * self.test_cases) * self._slowness
        if self.training_started_at is None:
            return self._estimate_stages_left_s(now) + self.train_s + test_s
        training_left_s = self.train_s - (now - self.training_started_at)
        if training_left_s > 0 and self.stage:
            return training_left_s + test_s
        count_left_s = self.count.estimate_left_s(now) if self.count is not None else None
        if count_left_s is not None:
            return count_left_s + DELIVERY_S
        left_s = test_s + min(0.0, training_left_s)
        return left_s if left_s > 0 else None

    def _estimate_stages_left_s(self, now: float) -> float:
        seconds_left = 0.0
        for title, seconds in self._pending_stages.items():
            spent_s = now - (self.stage_started_at or now) if title == self.stage else 0.0
            seconds_left += max(0.0, seconds * self._slowness + self._llm_s - spent_s)
        return seconds_left

    def _end_stage(self, at: float) -> None:
        """Compare the duration of a stage before training with what is usual."""
        usual_s = self._pending_stages.pop(self.stage, 0.0) + self._llm_s
        if self.training_started_at is None and self.stage_started_at is not None and usual_s:
            self._spent_s, self._usual_s = self._spent_s + at - self.stage_started_at, self._usual_s + usual_s
            self._slowness = min(MAX_SLOWNESS, max(1.0, self._spent_s / self._usual_s))


def read_figures(line: str) -> dict[str, str]:
    """Return the named figures of a line of a training's output, as it wrote them."""
    text = line.partition(": ")[2] or line
    pattern = ASSIGNED_FIGURE_PATTERN if "=" in text else FIGURE_PATTERN
    return {
        match["name"].strip(): match["value"]
        for match in pattern.finditer(f", {text}")
        if match["name"].strip() not in IGNORED_FIGURES
    }


def format_clock(seconds: float) -> str:
    """Return minutes and seconds, such as `0:07` or `75:30`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def describe_left(seconds: float) -> str:
    """Return a rough time left, in whole minutes."""
    if seconds < 60:
        return "under a minute left"
    return f"about {-int(-seconds // 60)} min left"


def describe_wait(event: WaitingForModel) -> str:
    """Return the reason and duration of a wait."""
    return f"waiting {event.seconds:.0f} s: {event.reason}"


def summarize_arguments(arguments: dict[str, Any]) -> str:
    """Return the main argument of a tool call in one line."""
    for key in ("command", "job", "path", "paths", "source"):
        if arguments.get(key):
            return get_first_line(str(arguments[key]))
    files = arguments.get("files")
    files = files if isinstance(files, list) else []
    return ", ".join(str(item.get("path", "?")) for item in files if isinstance(item, dict))


def get_first_line(text: str) -> str:
    """Return the first non-empty line, cut to the width of a log line."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 3]}..."


def get_last_line(text: str) -> str:
    """Return the last non-empty line in full."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


class NotebookProgress:
    """Shows the progress of a run in one place of a notebook, which is overwritten."""

    def __init__(self) -> None:
        self.progress = RunProgress()
        self._drawn_at = 0.0
        self._display_handle: Any = None

    def __call__(self, event: Event) -> None:
        if not self.progress.update(event):
            return
        now = time.monotonic()
        if not isinstance(event, ScriptOutput | ReplyDelta) or now - self._drawn_at > MIN_REDRAW_S:
            self._drawn_at = now
            self._draw(event.at)

    def format_text(self, now: float) -> str:
        """Return the current line as plain text."""
        started_at = self.progress.started_at or now
        return shorten(f"{format_clock(now - started_at)} {self.progress.format_line()}", MAX_LINE_CHARS)

    def format_html(self, now: float) -> str:
        """Return stage, activity, a progress bar and the facts of the whole run as HTML."""
        progress = self.progress
        share = progress.count.get_share(now) if progress.count is not None else None
        left_s = progress.count.estimate_left_s(now) if progress.count is not None else None
        value = f" value='{share:.3f}'" if share is not None else ""
        bar = "" if progress.is_ended else f" <progress max='1'{value}></progress>"
        left = f" {format_clock(left_s)} left" if left_s is not None else ""
        totals = " · ".join(progress.format_totals(now))
        return (
            f"<div><strong>{html.escape(progress.stage or 'm3b')}</strong> "
            f"{html.escape(shorten(progress.describe_activity(), MAX_LINE_CHARS))}{bar}{left}"
            f"<br><small>{html.escape(totals)}</small></div>"
        )

    def _draw(self, now: float) -> None:
        display = importlib.import_module("IPython.display").display  # every notebook has it; m3b does not depend on it

        mime_bundle = {"text/plain": self.format_text(now), "text/html": self.format_html(now)}
        if self._display_handle is None:
            self._display_handle = display(mime_bundle, raw=True, display_id=True)
        else:
            self._display_handle.update(mime_bundle, raw=True)
