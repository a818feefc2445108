"""The journal as a timeline: messages and actions of each agent, each action foldable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from m3b.agents.artifacts import ARTIFACT_CLASSES
from m3b.markup.formatting import cut_middle, format_duration, format_time, shorten
from m3b.markup.html import Html, section, tag
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.report.run_files import RunFiles

MAX_EVENTS = 1500
_DESCRIPTIVE_ARGUMENTS = ("command", "path", "paths", "source", "job", "folder", "files", "destination")


def render_timeline_section(files: RunFiles) -> Html:
    """Return all events, grouped by the active role."""
    results_by_call = _match_results(files.events)
    groups: list[tuple[Any, list[Html]]] = []
    for position, event in enumerate(files.events[:MAX_EVENTS]):
        item = _render_event(event, results_by_call.get(position))
        if not item:
            continue
        role = event.get("role") or ""
        if not groups or groups[-1][0] != role:
            groups.append((role, []))
        groups[-1][1].append(item)
    role_groups = [_render_role_group(files.get_role_title(role), items) for role, items in groups]
    hidden_count = len(files.events) - MAX_EVENTS
    truncation_note = (
        tag("p", f"{hidden_count:,} more events are in journal.jsonl.", class_="quiet") if hidden_count > 0 else None
    )
    return section("timeline", "Timeline", *role_groups, truncation_note)


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


def _render_role_group(title: str, items: list[Html]) -> Html:
    if not title:
        return tag("ol", *items, class_="events")
    steps = f"{len(items)} step{'s' if len(items) != 1 else ''}"
    summary = tag("summary", tag("strong", title), tag("span", f" {steps}", class_="quiet"))
    return tag("details", summary, tag("ol", *items, class_="events"), class_="role")


def _render_event(event: dict[str, Any], result: dict[str, Any] | None) -> Html | None:
    kind, data = event.get("kind"), as_dict(event.get("data"))
    time_text = format_time(event.get("at"))
    if kind == "call":
        return _render_call(event, data, result, time_text)
    if kind == "reply":
        text = data.get("text")
        return (
            _render_line("says", tag("pre", cut_middle(text.strip())), time_text)
            if isinstance(text, str) and text.strip()
            else None
        )
    if kind == "check":
        accepted = bool(data.get("accepted"))
        badge = tag("span", "Accepted" if accepted else "Sent back", class_=f"badge {'good' if accepted else 'warn'}")
        faults = [
            tag("li", shorten(text, 600)) for text in (*as_list(data.get("faults")), *as_list(data.get("warnings")))
        ]
        return _render_line("check", Html(badge + (tag("ul", *faults) if faults else "")), time_text)
    if kind == "artifact":
        return _render_line("artifact", _render_artifact(data), time_text)
    if kind == "delivered":
        files = len(as_dict(data.get("hashes")))
        return _render_line(
            "delivered", tag("span", f"{files:,} files; the journal holds the SHA-256 of each"), time_text
        )
    if kind in ("result", "prompt", "waiting", "output", "role_started"):
        return None  # shown with its call, or not relevant afterwards
    candidates = (data.get(key) for key in ("text", "reason", "request", "artifact", "name", "status"))
    text = next((value for value in candidates if value), None)
    summary = shorten(text, 600) if text else (shorten(data, 300) if data else "")
    return _render_line(str(kind).replace("_", " "), tag("span", summary), time_text)


def _render_artifact(data: dict[str, Any]) -> Html:
    """Return the name of an artifact, and its whole content for a user's own stage, which is not shown elsewhere."""
    name = str(data.get("artifact", ""))
    name_tag = tag("span", shorten(name, 600))
    if name in ARTIFACT_CLASSES:
        return name_tag
    value = json.dumps(data.get("value"), indent=1, ensure_ascii=False, default=str)
    return Html(name_tag + tag("pre", cut_middle(value)))


def _render_line(label: str, body: Html, time_text: str) -> Html:
    return tag("li", tag("span", label, class_="kind", title=time_text or None), tag("div", body))


def _render_call(event: dict[str, Any], data: dict[str, Any], result: dict[str, Any] | None, time_text: str) -> Html:
    arguments = as_dict(data.get("arguments"))
    outcome = as_dict(result.get("data")) if result else {}
    main_argument = next((arguments[key] for key in _DESCRIPTIVE_ARGUMENTS if arguments.get(key)), "")
    start, end = to_finite_number(event.get("at")), to_finite_number(result.get("at")) if result else None
    duration_text = format_duration(end - start) if start is not None and end is not None else ""
    has_failed = bool(outcome.get("is_error"))
    status_badge = (
        tag("span", "error", class_="badge bad")
        if has_failed
        else (None if result else tag("span", "no answer", class_="badge warn"))
    )
    text = outcome.get("text")
    summary = tag(
        "summary",
        tag("code", shorten(data.get("name", ""), 60)),
        " ",
        shorten(main_argument, 100) if main_argument else None,
        " ",
        tag("span", duration_text, class_="quiet"),
        " ",
        status_badge,
    )
    arguments_json = json.dumps(arguments, indent=1, ensure_ascii=False, default=str)
    readable = cut_middle(arguments_json.replace("\\n", "\n"), 1500, 300)
    result_parts = [tag("h4", "Result"), tag("pre", cut_middle(text))] if isinstance(text, str) and text else []
    content = tag("details", summary, tag("h4", "Arguments"), tag("pre", readable), *result_parts)
    action_number = data.get("action")
    return _render_line(
        f"action {action_number}" if to_finite_number(action_number) is not None else "action", content, time_text
    )
