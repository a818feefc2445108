"""The journal as a timeline: what each agent said and did, each action foldable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from m3b.agents.artifacts import KINDS

from .gather import RunFiles, as_dict, as_list, number
from .markup import Html, section, tag
from .words import brief, duration, head_tail, moment

MAX_EVENTS = 1500
_DESCRIPTIVE_ARGUMENTS = ("command", "path", "paths", "source", "job", "folder", "files", "destination")


def timeline_section(files: RunFiles) -> Html:
    """All events, grouped by the role at work."""
    results_by_call = _answers(files.events)
    groups: list[tuple[Any, list[Html]]] = []
    for position, event in enumerate(files.events[:MAX_EVENTS]):
        item = _event(event, results_by_call.get(position))
        if not item:
            continue
        role = event.get("role") or ""
        if not groups or groups[-1][0] != role:
            groups.append((role, []))
        groups[-1][1].append(item)
    role_groups = [_group(files.title(role), items) for role, items in groups]
    hidden_count = len(files.events) - MAX_EVENTS
    truncation_note = (
        tag("p", f"{hidden_count:,} more events are in journal.jsonl.", class_="quiet") if hidden_count > 0 else None
    )
    return section("timeline", "Timeline", *role_groups, truncation_note)


def _answers(events: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The result of each call, by the call's place: the next one of the same role with the same id.

    An id alone says little: every role of the rules begins with `rules-0`, and servers count anew in each conversation.
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


def _group(title: str, items: list[Html]) -> Html:
    if not title:
        return tag("ol", *items, class_="events")
    steps = f"{len(items)} step{'s' if len(items) != 1 else ''}"
    summary = tag("summary", tag("strong", title), tag("span", f" {steps}", class_="quiet"))
    return tag("details", summary, tag("ol", *items, class_="events"), class_="role")


def _event(event: dict[str, Any], answer: dict[str, Any] | None) -> Html | None:
    kind, data = event.get("kind"), as_dict(event.get("data"))
    time_text = moment(event.get("at"))
    if kind == "call":
        return _call(event, data, answer, time_text)
    if kind == "reply":
        text = data.get("text")
        return (
            _line("says", tag("pre", head_tail(text.strip())), time_text)
            if isinstance(text, str) and text.strip()
            else None
        )
    if kind == "check":
        accepted = bool(data.get("accepted"))
        badge = tag("span", "Accepted" if accepted else "Sent back", class_=f"badge {'good' if accepted else 'warn'}")
        faults = [
            tag("li", brief(text, 600)) for text in (*as_list(data.get("faults")), *as_list(data.get("warnings")))
        ]
        return _line("check", Html(badge + (tag("ul", *faults) if faults else "")), time_text)
    if kind == "artifact":
        return _line("artifact", _artifact(data), time_text)
    if kind == "delivered":
        files = len(as_dict(data.get("hashes")))
        return _line("delivered", tag("span", f"{files:,} files; the journal holds the SHA-256 of each"), time_text)
    if kind in ("result", "prompt", "waiting", "output", "role_started"):
        return None  # shown with its call, or of no interest afterwards
    candidates = (data.get(key) for key in ("text", "reason", "request", "artifact", "name", "status"))
    text = next((value for value in candidates if value), None)
    summary = brief(text, 600) if text else (brief(data, 300) if data else "")
    return _line(str(kind).replace("_", " "), tag("span", summary), time_text)


def _artifact(data: dict[str, Any]) -> Html:
    """What was handed over: of a user's own stage, whose artifact stands nowhere else on the page, all of it."""
    name = str(data.get("artifact", ""))
    name_tag = tag("span", brief(name, 600))
    if name in KINDS:
        return name_tag
    value = json.dumps(data.get("value"), indent=1, ensure_ascii=False, default=str)
    return Html(name_tag + tag("pre", head_tail(value)))


def _line(what: str, body: Html, at: str) -> Html:
    return tag("li", tag("span", what, class_="kind", title=at or None), tag("div", body))


def _call(event: dict[str, Any], data: dict[str, Any], answer: dict[str, Any] | None, at: str) -> Html:
    arguments = as_dict(data.get("arguments"))
    outcome = as_dict(answer.get("data")) if answer else {}
    main_argument = next((arguments[key] for key in _DESCRIPTIVE_ARGUMENTS if arguments.get(key)), "")
    start, end = number(event.get("at")), number(answer.get("at")) if answer else None
    duration_text = duration(end - start) if start is not None and end is not None else ""
    has_failed = bool(outcome.get("is_error"))
    status_badge = (
        tag("span", "error", class_="badge bad")
        if has_failed
        else (None if answer else tag("span", "no answer", class_="badge warn"))
    )
    text = outcome.get("text")
    summary = tag(
        "summary",
        tag("code", brief(data.get("name", ""), 60)),
        " ",
        brief(main_argument, 100) if main_argument else None,
        " ",
        tag("span", duration_text, class_="quiet"),
        " ",
        status_badge,
    )
    arguments_json = json.dumps(arguments, indent=1, ensure_ascii=False, default=str)
    readable = head_tail(arguments_json.replace("\\n", "\n"), 1500, 300)
    result_parts = [tag("h4", "Result"), tag("pre", head_tail(text))] if isinstance(text, str) and text else []
    content = tag("details", summary, tag("h4", "Arguments"), tag("pre", readable), *result_parts)
    action_number = data.get("action")
    return _line(f"action {action_number}" if number(action_number) is not None else "action", content, at)
