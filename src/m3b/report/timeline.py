"""The journal as a timeline: what each agent said and did, each action foldable."""

from __future__ import annotations

import json
from typing import Any

from .about import role_name
from .gather import RunFiles, as_dict, as_list, number
from .markup import Html, section, tag
from .words import brief, duration, head_tail, moment

MOST_EVENTS = 1500
_TELLING = ("command", "path", "paths", "source", "job", "folder", "files", "destination")


def timeline_section(files: RunFiles) -> Html:
    """All events, grouped by the role at work."""
    answers = {
        as_dict(event.get("data")).get("id"): event
        for event in files.events
        if event.get("kind") == "result" and isinstance(as_dict(event.get("data")).get("id"), str)
    }
    groups: list[tuple[Any, list[Html]]] = []
    for event in files.events[:MOST_EVENTS]:
        drawn = _event(event, answers)
        if not drawn:
            continue
        role = event.get("role") or ""
        if not groups or groups[-1][0] != role:
            groups.append((role, []))
        groups[-1][1].append(drawn)
    folds = [_group(role, items) for role, items in groups]
    left = len(files.events) - MOST_EVENTS
    more = tag("p", f"{left:,} more events are in journal.jsonl.", class_="quiet") if left > 0 else None
    return section("timeline", "Timeline", *folds, more)


def _group(role: Any, items: list[Html]) -> Html:
    if not role:
        return tag("ol", *items, class_="events")
    steps = f"{len(items)} step{'s' if len(items) != 1 else ''}"
    summary = tag("summary", tag("strong", role_name(role)), tag("span", f" {steps}", class_="quiet"))
    return tag("details", summary, tag("ol", *items, class_="events"), class_="role")


def _event(event: dict[str, Any], answers: dict[Any, dict[str, Any]]) -> Html | None:
    kind, data = event.get("kind"), as_dict(event.get("data"))
    at = moment(event.get("at"))
    if kind == "call":
        return _call(event, data, answers, at)
    if kind == "reply":
        text = data.get("text")
        return (
            _line("says", tag("pre", head_tail(text.strip())), at) if isinstance(text, str) and text.strip() else None
        )
    if kind == "check":
        accepted = bool(data.get("accepted"))
        badge = tag("span", "Accepted" if accepted else "Sent back", class_=f"badge {'good' if accepted else 'warn'}")
        faults = [
            tag("li", brief(text, 600)) for text in (*as_list(data.get("faults")), *as_list(data.get("warnings")))
        ]
        return _line("check", Html(badge + (tag("ul", *faults) if faults else "")), at)
    if kind in ("result", "prompt", "waiting", "output", "role_started"):
        return None  # shown with its call, or of no interest afterwards
    known = (data.get(key) for key in ("text", "reason", "request", "artifact", "name", "status"))
    text = next((value for value in known if value), None)
    shown = brief(text, 600) if text else (brief(data, 300) if data else "")
    return _line(str(kind).replace("_", " "), tag("span", shown), at)


def _line(what: str, body: Html, at: str) -> Html:
    return tag("li", tag("span", what, class_="kind", title=at or None), tag("div", body))


def _call(event: dict[str, Any], data: dict[str, Any], answers: dict[Any, dict[str, Any]], at: str) -> Html:
    arguments = as_dict(data.get("arguments"))
    identity = data.get("id")
    answer = answers.get(identity) if isinstance(identity, str) else None
    outcome = as_dict(answer.get("data")) if answer else {}
    telling = next((arguments[key] for key in _TELLING if arguments.get(key)), "")
    start, end = number(event.get("at")), number(answer.get("at")) if answer else None
    took = duration(end - start) if start is not None and end is not None else ""
    failed = bool(outcome.get("is_error"))
    state = (
        tag("span", "error", class_="badge bad")
        if failed
        else (None if answer else tag("span", "no answer", class_="badge warn"))
    )
    text = outcome.get("text")
    summary = tag(
        "summary",
        tag("code", brief(data.get("name", ""), 60)),
        " ",
        brief(telling, 100) if telling else None,
        " ",
        tag("span", took, class_="quiet"),
        " ",
        state,
    )
    asked = json.dumps(arguments, indent=1, ensure_ascii=False, default=str)
    readable = head_tail(asked.replace("\\n", "\n"), 1500, 300)
    given = [tag("h4", "Result"), tag("pre", head_tail(text))] if isinstance(text, str) and text else []
    inside = tag("details", summary, tag("h4", "Arguments"), tag("pre", readable), *given)
    place = data.get("action")
    return _line(f"action {place}" if number(place) is not None else "action", inside, at)
