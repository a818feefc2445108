"""Times and events out of tables: which columns, which values mean that the event came, and what the audit says of them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from spec_kit import picture

from m3b.data.index import Index, Record, read_records, write_records
from m3b.data.spec.execute import execute
from m3b.data.spec.proposals import Ask, Proposal, propose, sufficient
from m3b.data.spec.proposals.survivals import sides_of
from m3b.data.survey import survey
from m3b.data.survey.table_facts import Column
from m3b.dataset.audit import AuditData, get_checks, run_checks
from m3b.errors import DataError

HEAD = ["file", "patient_id", "age", "os_months", "os_status", "pfs_months", "pfs_event"]


def folder(root: Path, head: list[str] = HEAD, cases: int = 80) -> Path:
    root.mkdir()
    random = np.random.default_rng(0)
    with (root / "clinical.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(head)
        for at in range(cases):
            picture(root / "scans" / f"s{at:03d}.png", 40 + at, (24, 24))
            time = round(float(random.exponential(20)) + 0.5, 1)
            status = ("0:LIVING", "1:DECEASED")[int(at % 3 > 0)]
            rows.writerow(
                [f"s{at:03d}.png", f"p{at:02d}", 40 + at % 30, time, status, round(time / 2, 1), int(at % 4 > 0)]
            )
    return root


def best(root: Path, request: str) -> Proposal:
    return propose(survey(root), Ask("survival", request))[0]


@pytest.mark.parametrize(
    ("request_", "columns", "name"),
    [
        ("Predict overall survival from CT", ("os_months", "os_status"), "overall survival (months)"),
        (
            "Predict progression-free survival from CT",
            ("pfs_months", "pfs_event"),
            "progression-free survival (months)",
        ),
    ],
)
def test_time_and_event_are_found_together(request_: str, columns: tuple[str, str], name: str, tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    found = propose(survey(root), Ask("survival", request_))
    assert sufficient(found) == ""
    survival = found[0].spec.survival
    assert survival is not None
    assert (survival.time.source.column, survival.event.column) == columns  # type: ignore[union-attr]
    assert found[0].spec.classes == (name,)
    done = execute(found[0].spec, root, name="raw", work=tmp_path / "work")
    records = [*done.train, *done.test]
    assert {frozenset(one.extra) for one in records} == {frozenset(("time", "event"))}
    assert done.values == {name: 0}
    share = [sum(one.extra["event"] for one in part) / len(part) for part in (done.train, done.test)]
    assert abs(share[0] - share[1]) < 0.1, "a drawn split gives each part its share of events"
    write_records(tmp_path / "train.json", done.train, "survival")
    assert read_records(tmp_path / "train.json", "survival") == done.train


def test_age_beside_the_image_is_not_the_time(tmp_path: Path) -> None:
    spec = best(folder(tmp_path / "raw"), "Predict overall survival from CT using age").spec
    assert set(spec.covariates) == {"age"}


@pytest.mark.parametrize(
    ("name", "values", "came"),
    [
        ("event", {"0": 5, "1": 5}, ("1",)),
        ("censored", {"0": 5, "1": 5}, ("0",)),
        ("vital_status", {"Alive": 5, "Dead": 5}, ("Dead",)),
        ("status", {"alive": 5, "dead of disease": 3, "lost": 2}, ("dead of disease",)),
        ("event", {"A": 5, "B": 5}, None),
        ("sex", {"0": 5, "1": 5}, None),
    ],
)
def test_which_values_say_that_it_came(name: str, values: dict[str, int], came: tuple[str, ...] | None) -> None:
    column = Column(name=name, type="category", filled=10, missing=0, distinct=len(values), folded=len(values))
    found = sides_of(column, values)
    assert (found[0] if found else None) == came


@pytest.mark.parametrize(
    "item", [{"time": -1, "event": True}, {"time": "x", "event": True}, {"time": 3, "event": 1}, {"time": 3}]
)
def test_records_that_cannot_be_are_refused(item: dict[str, object], tmp_path: Path) -> None:
    import json

    (tmp_path / "train.json").write_text(json.dumps([{"image_path": "data/x/1.png", "patient": "p1", **item}]))
    with pytest.raises(DataError, match=r"time|event"):
        read_records(tmp_path / "train.json", "survival")


def test_what_the_audit_says() -> None:
    def codes(event: object, time: object) -> set[str]:
        made = tuple(
            Record(f"data/x/{at}.png", (), f"p{at}", extra={"time": float(time(at)), "event": bool(event(at))})  # type: ignore[operator]
            for at in range(80)
        )
        return {
            one.code
            for one in run_checks(
                [check for check in get_checks() if check.targets == ("survival",)],
                AuditData(Index(made[:60], made[60:], ("survival (months)",), "survival"), Path("/nowhere")),
            )
        }

    assert codes(lambda at: at % 2, lambda at: at + 1) == set()
    assert codes(lambda at: at < 60, lambda at: at + 1) == {"no_events"}
    assert codes(lambda at: at % 20 == 1, lambda at: at + 1) == {"few_events"}
    assert codes(lambda at: at % 2, lambda at: 999 if at % 10 == 0 else at + 1) == {"time_code"}
    assert "one_time" in codes(lambda at: at % 2, lambda at: 5)
    assert "censored_first" in codes(lambda at: at % 2, lambda at: 100 + at if at % 2 else at)
