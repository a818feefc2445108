"""The report under hostile and senseless input: text stays text, and there is always a page."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from m3b.markup.html import escape, tag
from m3b.report.page import render_report
from m3b.report.run_files import RunFiles

Check = Callable[[str], Any]
KINDS = ("call", "result", "reply", "check", "note", "run_ended")

HOSTILE = (
    "</pre></style><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload=x & \u202egnp.exe\x00\x1b[31m\ud800"
)


def poisoned(value: Any) -> Any:
    if isinstance(value, dict):
        return {(key if len(key) > 1 else HOSTILE): poisoned(item) for key, item in value.items()} | {HOSTILE: HOSTILE}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return value + HOSTILE if isinstance(value, str) else value


def test_hostile_text_stays_text(check: Check) -> None:
    run = {"id": "r", "request": "q", "status": "failed", "reason": "why", "llm": "l", "options": {"reflect": "yes"}}
    result = {"task": "t", "integrity": "odd", "roles": {"single": {"status": "s"}}, "usage": {"actions": 1}}
    calls = [{"id": "1", "name": "run_script", "arguments": {"command": "c"}, "text": "t", "faults": ["f"]}]
    events = [{"kind": kind, "role": HOSTILE, "data": poisoned(data)} for kind in KINDS for data in calls]
    audit = {
        "counts": {"train": {"aa": 1}},
        "shapes": {"8x8": 1},
        "findings": [{"weight": "warn", "message": "m", "cases": ["c"]}],
    }
    per_class = [{"name": "aa", "auroc": {"value": 0.5}, "roc": [[0, 0], [1, 1]]}] * 3
    scores = {"metrics": {"auroc": {"value": 0.5}}, "per_class": per_class, "classes": ["aa"], "confusion": [[1]]}
    log = [{"epoch": "1", f"loss {HOSTILE}": "0.5"}, {"epoch": "2", f"loss {HOSTILE}": "0.4"}]
    record = poisoned({**run, "result": result})
    files = RunFiles(Path("r"), record, events, poisoned(audit), poisoned(scores), log, [(HOSTILE, 3)])
    page = check(render_report(files))
    assert page.text.count("alert(1)") > 30
    assert "<script>alert(1)</script>" in page.text
    assert "\u202e" not in page.text
    assert "\x00" not in page.text
    assert "\ud800" not in page.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def shaped(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key: JSON | st.lists(JSON, max_size=3) for key in keys})


MEASURE = shaped("name", "value", "low", "high", "n", "baseline", "acceptable", "auroc", "roc", "confidence", "correct")
SCORES = st.fixed_dictionaries(
    {},
    optional={
        "primary": MEASURE | JSON,
        "metrics": st.dictionaries(st.text(max_size=4), MEASURE | JSON, max_size=3),
        "classes": st.lists(JSON, max_size=3),
        "per_class": st.lists(MEASURE | JSON, max_size=4),
        "calibration": st.lists(MEASURE | JSON, max_size=3),
        "confusion": st.lists(st.lists(JSON, max_size=3) | JSON, max_size=3),
        "multi_label": JSON,
        "n_cases": JSON,
    },
)
RUN = shaped(
    "id", "request", "status", "reason", "options", "llm", "versions", "seed", "sandbox"
) | st.fixed_dictionaries(
    {"result": shaped("status", "reason", "primary", "metrics", "usage", "roles", "integrity", "task", "data_card")}
)
EVENT = st.fixed_dictionaries(
    {"kind": st.sampled_from(["call", "reply", "result", "check", "note", "run_ended"]) | JSON},
    optional={
        "role": JSON,
        "at": JSON,
        "data": JSON
        | shaped("id", "name", "arguments", "text", "is_error", "action", "accepted", "faults", "usage", "reason"),
    },
)
AUDIT = shaped("findings", "counts", "patients", "shapes", "cases", "opened")
LOG = st.lists(
    st.dictionaries(st.sampled_from(["epoch", "fold", "loss", "auroc"]), st.text(max_size=5) | st.floats().map(str)),
    max_size=4,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(RUN, st.lists(EVENT, max_size=4), AUDIT, SCORES, LOG)
def test_any_json_makes_a_page(
    check: Check,
    run: dict[str, Any],
    events: list[dict[str, Any]],
    audit: dict[str, Any],
    scores: dict[str, Any],
    log: list[dict[str, str]],
) -> None:
    check(render_report(RunFiles(Path("r"), run, events, audit, scores, log)))


@given(st.text())
def test_escape_leaves_nothing_special(text: str) -> None:
    escaped = escape(text)
    assert not set("<>\"'") & set(escaped)
    escaped.encode("utf-8")
    tags: list[object] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attrs: tags.append((tag, [name for name, _ in attrs]))  # type: ignore[method-assign]
    reader.feed(tag("p", text, title=text))
    assert tags == [("p", ["title"])]
