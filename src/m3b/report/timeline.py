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
_TELLING = ("command", "path", "paths", "source", "job", "folder", "files", "destination")


def timeline_section(files: RunFiles) -> Html:
    """All events, grouped by the role at work."""
    answers = _answers(files.events)
    groups: list[tuple[Any, list[Html]]] = []
    for place, event in enumerate(files.events[:MAX_EVENTS]):
        drawn = _event(event, answers.get(place))
        if not drawn:
            continue
        role = event.get("role") or ""
        if not groups or groups[-1][0] != role:
            groups.append((role, []))
        groups[-1][1].append(drawn)
    folds = [_group(files.title(role), items) for role, items in groups]
    left = len(files.events) - MAX_EVENTS
    more = tag("p", f"{left:,} more events are in journal.jsonl.", class_="quiet") if left > 0 else None
    return section("timeline", "Timeline", *folds, more)


def _answers(events: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The result of each call, by the call's place: the next one of the same role with the same id.

    An id alone says little: every role of the rules begins with `rules-0`, and servers count anew in each conversation.
    """
    waiting: dict[tuple[str, str], int] = {}
    found: dict[int, dict[str, Any]] = {}
    for place, event in enumerate(events):
        key = (str(event.get("role")), str(as_dict(event.get("data")).get("id")))
        if event.get("kind") == "call":
            waiting[key] = place
        elif event.get("kind") == "result" and key in waiting:
            found[waiting.pop(key)] = event
    return found


def _group(title: str, items: list[Html]) -> Html:
    if not title:
        return tag("ol", *items, class_="events")
    steps = f"{len(items)} step{'s' if len(items) != 1 else ''}"
    summary = tag("summary", tag("strong", title), tag("span", f" {steps}", class_="quiet"))
    return tag("details", summary, tag("ol", *items, class_="events"), class_="role")


def _event(event: dict[str, Any], answer: dict[str, Any] | None) -> Html | None:
    kind, data = event.get("kind"), as_dict(event.get("data"))
    at = moment(event.get("at"))
    if kind == "call":
        return _call(event, data, answer, at)
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
    if kind == "artifact":
        return _line("artifact", _artifact(data), at)
    if kind == "delivered":
        files = len(as_dict(data.get("hashes")))
        return _line("delivered", tag("span", f"{files:,} files; the journal holds the SHA-256 of each"), at)
    if kind in ("result", "prompt", "waiting", "output", "role_started"):
        return None  # shown with its call, or of no interest afterwards
    known = (data.get(key) for key in ("text", "reason", "request", "artifact", "name", "status"))
    text = next((value for value in known if value), None)
    shown = brief(text, 600) if text else (brief(data, 300) if data else "")
    return _line(str(kind).replace("_", " "), tag("span", shown), at)


def _artifact(data: dict[str, Any]) -> Html:
    """What was handed over: of a user's own stage, whose artifact stands nowhere else on the page, all of it."""
    name = str(data.get("artifact", ""))
    told = tag("span", brief(name, 600))
    if name in KINDS:
        return told
    value = json.dumps(data.get("value"), indent=1, ensure_ascii=False, default=str)
    return Html(told + tag("pre", head_tail(value)))


def _line(what: str, body: Html, at: str) -> Html:
    return tag("li", tag("span", what, class_="kind", title=at or None), tag("div", body))


def _call(event: dict[str, Any], data: dict[str, Any], answer: dict[str, Any] | None, at: str) -> Html:
    arguments = as_dict(data.get("arguments"))
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
