"""The journal as a timeline: messages and actions of each agent, as values for the template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from m3b.agents.artifacts import ARTIFACT_CLASSES
from m3b.markup.formatting import cut_middle, format_duration, format_time, shorten
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.report.run_files import RunFiles

MAX_EVENTS = 1500
_DESCRIPTIVE_ARGUMENTS = ("command", "path", "paths", "source", "job", "folder", "files", "destination")


@dataclass(frozen=True)
class TimelineItem:
    """One line of the timeline.

    Args:
        label: the kind of event, such as `says` or `action 3`.
        time: when it was, as text.
        text: one line of plain text; for an action its main argument.
        detail: a longer text, shown as it is.
        notes: a list below the line.
        badge: text and tone.
        action: the tool's name if this is an action, which can be unfolded: `arguments` and `detail`, its result.
    """

    label: str
    time: str
    text: str = ""
    detail: str = ""
    notes: tuple[str, ...] = ()
    badge: tuple[str, str] | None = None
    action: str = ""
    duration: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class RoleGroup:
    """Consecutive events of one role; the title is empty for those of m3b itself."""

    title: str
    items: list[TimelineItem]


def list_role_groups(files: RunFiles) -> tuple[list[RoleGroup], int]:
    """Return all events grouped by the active role, and how many further events the journal has."""
    results_by_call = _match_results(files.events)
    groups: list[tuple[Any, list[TimelineItem]]] = []
    for position, event in enumerate(files.events[:MAX_EVENTS]):
        item = _make_item(event, results_by_call.get(position))
        if item is None:
            continue
        role = event.get("role") or ""
        if not groups or groups[-1][0] != role:
            groups.append((role, []))
        groups[-1][1].append(item)
    role_groups = [RoleGroup(files.get_role_title(role), items) for role, items in groups]
    return role_groups, max(0, len(files.events) - MAX_EVENTS)


def _match_results(events: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return call position -> its result: the next result of the same role with the same id.

    An id alone is ambiguous: the ids of every role with the rules begin with `rules-0`, and servers restart their
    numbering in each conversation.
    """
    pending_calls: dict[tuple[str, str], int] = {}
    results_by_call: dict[int, dict[str, Any]] = {}
    for position, event in enumerate(events):
        key = (str(event.get("role")), str(as_dict(event.get("data")).get("id")))
        if event.get("kind") == "call":
            pending_calls[key] = position
        elif event.get("kind") == "result" and key in pending_calls:
            results_by_call[pending_calls.pop(key)] = event
    return results_by_call


def _make_item(event: dict[str, Any], result: dict[str, Any] | None) -> TimelineItem | None:
    kind, data = event.get("kind"), as_dict(event.get("data"))
    time_text = format_time(event.get("at"))
    if kind == "call":
        return _make_action(event, data, result, time_text)
    if kind == "reply":
        text = data.get("text")
        is_text = isinstance(text, str) and bool(text.strip())
        return TimelineItem("says", time_text, detail=cut_middle(str(text).strip())) if is_text else None
    if kind == "check":
        badge = ("Accepted", "good") if data.get("accepted") else ("Sent back", "warn")
        notes = (*as_list(data.get("faults")), *as_list(data.get("warnings")))
        return TimelineItem("check", time_text, badge=badge, notes=tuple(shorten(text, 600) for text in notes))
    if kind == "artifact":
        return _make_artifact_item(data, time_text)
    if kind == "delivered":
        files = len(as_dict(data.get("hashes")))
        return TimelineItem("delivered", time_text, f"{files:,} files; the journal holds the SHA-256 of each")
    if kind == "training_added":
        text = f"{data.get('minutes')} min, from the weights of model {data.get('number')}"
        return TimelineItem("training added", time_text, text)
    if kind == "candidate_measured":
        figure = to_finite_number(data.get("value"))
        outcome = shorten(data.get("problem"), 300) if figure is None else f"{figure:.4g}"
        return TimelineItem("candidate", time_text, f"{data.get('number')}, rung {data.get('rung')}: {outcome}")
    if kind == "candidate_started":
        settings = shorten(json.dumps(as_dict(data.get("settings")), ensure_ascii=False), 300)
        return TimelineItem("candidate", time_text, f"{data.get('number')}: {data.get('minutes')} min, {settings}")
    if kind in ("result", "prompt", "waiting", "output", "role_started"):
        return None  # shown with its call, or not relevant afterwards
    candidates = (data.get(key) for key in ("text", "reason", "request", "artifact", "name", "status"))
    text = next((value for value in candidates if value), None)
    summary = shorten(text, 600) if text else (shorten(data, 300) if data else "")
    return TimelineItem(str(kind).replace("_", " "), time_text, summary)


def _make_artifact_item(data: dict[str, Any], time_text: str) -> TimelineItem:
    """Return the name of an artifact, and its whole content for a user's own stage, which is not shown elsewhere."""
    name = str(data.get("artifact", ""))
    value = ""
    if name not in ARTIFACT_CLASSES:
        value = cut_middle(json.dumps(data.get("value"), indent=1, ensure_ascii=False, default=str))
    return TimelineItem("artifact", time_text, shorten(name, 600), value)


def _make_action(
    event: dict[str, Any], data: dict[str, Any], result: dict[str, Any] | None, time_text: str
) -> TimelineItem:
    arguments = as_dict(data.get("arguments"))
    outcome = as_dict(result.get("data")) if result else {}
    main_argument = next((arguments[key] for key in _DESCRIPTIVE_ARGUMENTS if arguments.get(key)), "")
    start, end = to_finite_number(event.get("at")), to_finite_number(result.get("at")) if result else None
    badge = ("error", "bad") if outcome.get("is_error") else None if result else ("no answer", "warn")
    arguments_json = json.dumps(arguments, indent=1, ensure_ascii=False, default=str)
    text, number = outcome.get("text"), data.get("action")
    return TimelineItem(
        f"action {number}" if to_finite_number(number) is not None else "action",
        time_text,
        shorten(main_argument, 100) if main_argument else "",
        cut_middle(text) if isinstance(text, str) else "",
        badge=badge,
        action=shorten(data.get("name", ""), 60),
        duration=format_duration(end - start) if start is not None and end is not None else "",
        arguments=cut_middle(arguments_json.replace("\\n", "\n"), 1500, 300),
    )
