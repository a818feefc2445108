"""The report: complete for a good run, calm for a broken one, and never broken out of."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from m3b.errors import RunCancelled
from m3b.markup.formatting import cut_at_word, cut_middle, format_duration, format_size, format_time, shorten
from m3b.metrics import ClassificationCase
from m3b.report import write_report
from m3b.tasks.diagnosis import score_diagnosis

Check = Callable[[str], Any]


def scored(multi: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    cases = []
    for i in range(120):
        p = float(np.clip(rng.normal(0.3 + 0.35 * (i % 2), 0.2), 0.01, 0.99))
        labels = ("normal", "pneumonia")[i % 2 : i % 2 + 1]
        cases.append(ClassificationCase(f"{i}.png", f"p{i // 2}", labels, {"normal": 1 - p, "pneumonia": p}))
    return score_diagnosis(cases, ("normal", "pneumonia"), multi, draws=200).to_dict()


EVENTS: list[dict[str, Any]] = [
    {
        "kind": "run_started",
        "role": "",
        "data": {"request": "tell pneumonia", "id": "r", "sandbox": {"name": "bubblewrap"}},
        "at": 1_700_000_000.0,
    },
    {
        "kind": "role_started",
        "role": "data_engineer",
        "data": {"title": "Data Engineer", "llm": "rules"},
        "at": 1_700_000_001.0,
    },
    {
        "kind": "reply",
        "role": "data_engineer",
        "data": {"text": "I look at the data.", "usage": {"input_tokens": 700}},
        "at": 1_700_000_002.0,
    },
    {
        "kind": "call",
        "role": "data_engineer",
        "data": {"id": "1", "name": "run_script", "arguments": {"command": "python plan.py"}},
        "at": 1_700_000_003.0,
    },
    {
        "kind": "result",
        "role": "data_engineer",
        "data": {"id": "1", "name": "run_script", "text": "Traceback ...", "is_error": True},
        "at": 1_700_000_007.5,
    },
    {
        "kind": "call",
        "role": "data_engineer",
        "data": {"id": "2", "name": "preview_dirs", "arguments": {"path": "data/chest"}},
        "at": 1_700_000_008.0,
    },
    {
        "kind": "check",
        "role": "data_engineer",
        "data": {"accepted": False, "faults": ["patient p7 is in both splits"], "warnings": []},
        "at": 1_700_000_009.0,
    },
    {"kind": "unheard_of", "role": "", "data": {}, "at": 1_700_000_010.0},
    {
        "kind": "artifact",
        "role": "data_engineer",
        "data": {"artifact": "index", "value": {"read": ["300 images from `images/*.png`"]}},
        "at": 1_700_000_011.0,
    },
]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for name in ("locked", "model", "work/Logout"):
        (tmp_path / name).mkdir(parents=True)
    scores = scored()
    result = {
        "status": "completed",
        "reason": "auroc 0.89 is in range",
        "request": "tell pneumonia from normal",
        "task": "diagnosis",
        "data_card": "chest",
        "primary": {**scores["primary"], "acceptable": [0.8, None]},
        "integrity": "clean",
        "usage": {
            "actions": 2,
            "iterations": 1,
            "input_tokens": 12345,
            "cached_tokens": 1,
            "output_tokens": 99,
            "cost_usd": 0.12,
            "wall_s": 192,
        },
        "roles": {
            "data_engineer": {
                "status": "completed",
                "actions": 2,
                "iterations": 1,
                "input_tokens": 12345,
                "output_tokens": 99,
            }
        },
    }
    run = {
        "id": "r1",
        "request": "tell pneumonia from normal",
        "status": "completed",
        "llm": {"default": "rules", "model_trainer": "acme:m"},
        "seed": 7,
        "options": {"reflect": True},
        "versions": {"m3b": "0.1.0"},
        "sandbox": {"backend": "bubblewrap"},
        "result": result,
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "journal.jsonl").write_text("\n".join(map(json.dumps, EVENTS)) + '\n{"kind": "call", "ro')
    (tmp_path / "locked/scores.json").write_text(json.dumps(scores))
    audit = {
        "findings": [{"code": "dup", "weight": "warn", "message": "2 images are alike", "cases": ["a.png"]}],
        "cases": 300,
        "opened": 300,
        "counts": {"train": {"normal": 90, "pneumonia": 90}, "test": {"normal": 60, "pneumonia": 60}},
        "patients": {"train": 90, "test": 60},
        "shapes": {"64x64": 300},
    }
    (tmp_path / "work/data_audit.json").write_text(json.dumps(audit))
    (tmp_path / "work/Logout/log.csv").write_text(
        "fold,epoch,step,loss,valid_loss,auroc,lr,seconds\n0,1,9,0.7,0.6,0.8,1e-3,4\n0,2,18,0.5,0.55,0.85,1e-3,8\n1,1,9,0.6,nan,,1e-3,4\n1,2,"
    )
    (tmp_path / "model/predict.py").write_text("pass")
    return tmp_path


def test_a_cancelled_run_has_a_report_without_pictures(check: Check, run_dir: Path) -> None:
    """The readers of a run that was cancelled refuse every job."""
    (run_dir / "locked/Datapath").mkdir()
    (run_dir / "locked/Datapath/test.json").write_text("[]")

    @contextlib.contextmanager
    def refuse() -> Iterator[Any]:
        raise RunCancelled("The run was cancelled.")
        yield

    assert "tell pneumonia from normal" in check(write_report(run_dir, refuse).read_text()).text


def test_a_complete_run(check: Check, run_dir: Path) -> None:
    target = write_report(run_dir)
    assert target == run_dir / "report.html"
    page = check(target.read_text())
    for words in (
        "run r1",
        "Classifier of normal or pneumonia, made from chest",
        "Completed",
        "AUROC 0.89 is in range",
        "tell pneumonia from normal",
        "acceptable from 0.8",
        "ROC curve",
        "Calibration",
        "Confusion matrix",
        "Clean",
        "12,345",
        "3 min 12 s",
        "0.1200 USD",
        "2 images are alike",
        "Data Engineer",
        "patient p7 is in both splits",
        "python plan.py",
        "4.5 s",
        "no answer",
        "Traceback",
        "predict.py",
        "bubblewrap",
        "64x64",
        "no medical device",
        "Line 8 of journal.jsonl is damaged and left out here.",
        "300 images from `images/*.png`",
        "AUROC",
    ):
        assert words in page.text, words
    assert "rules, Model Trainer: acme:m" in page.text
    assert '{"request"' not in page.text, "the timeline tells the request, not its JSON"
    assert page.tags.count("svg") >= 5
    urls = re.findall(r"https?://[^\s*\"'<>)]+", target.read_text())
    assert set(urls) <= {"https://github.com/leeoniya/uPlot"}, "the banner of the bundled library"
    assert [file.name for file in run_dir.iterdir() if file.name.endswith(".part")] == []


@pytest.mark.parametrize("name", ["run.json", "journal.jsonl", "locked", "model", "work"])
def test_anything_can_be_missing(check: Check, run_dir: Path, name: str) -> None:
    target = run_dir / name
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    check(write_report(run_dir).read_text())


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"null"])
def test_anything_can_be_torn(check: Check, run_dir: Path, content: bytes) -> None:
    for name in ("run.json", "journal.jsonl", "locked/scores.json", "work/data_audit.json", "work/Logout/log.csv"):
        (run_dir / name).write_bytes(content)
    check(write_report(run_dir).read_text())


def test_an_empty_folder(check: Check, tmp_path: Path) -> None:
    page = check(write_report(tmp_path).read_text())
    assert "No result yet" in page.text
    assert "A run of m3b" in page.text
    assert "no medical device" not in page.text, "there is no model to warn of"


def test_roles_are_counted_while_the_run_goes_on(check: Check, run_dir: Path) -> None:
    run = json.loads((run_dir / "run.json").read_text())
    del run["result"]
    (run_dir / "run.json").write_text(json.dumps(run | {"status": "working"}))
    page = check(write_report(run_dir).read_text())
    assert "At work" in page.text
    assert "700" in page.text


def test_no_interval_is_said(check: Check, run_dir: Path) -> None:
    scores = scored()
    scores["primary"] |= {"low": None, "high": None, "baseline": None}
    (run_dir / "locked/scores.json").write_text(json.dumps(scores))
    assert "no interval can be given" in check(write_report(run_dir).read_text()).text


def test_multi_label(check: Check, run_dir: Path) -> None:
    (run_dir / "locked/scores.json").write_text(json.dumps(scored(multi=True)))
    page = check(write_report(run_dir).read_text())
    assert "AUROC against the rest" in page.text
    assert "thresholds that the model was delivered with" in page.text


def test_words() -> None:
    assert [format_duration(s) for s in (4.23, 192, 7500, None, float("nan"))] == [
        "4.2 s",
        "3 min 12 s",
        "2 h 5 min",
        "–",
        "–",
    ]
    assert [format_size(n) for n in (3, 1500, 2_500_000, 3_000_000_000)] == ["3 B", "1.5 kB", "2.5 MB", "3.0 GB"]
    assert format_time(0) == ""
    assert format_time(1_700_000_000) == "2023-11-14 22:13:20 UTC"
    assert len(shorten("a " * 500)) == 160
    assert "8,000 characters left out" in cut_middle("x" * 10_000)
    assert cut_at_word("one two  three", 13) == "one two three"
    assert cut_at_word("one two three", 12) == "one two ... (1 more word)"
    assert cut_at_word("one two three", 7) == "one two ... (1 more word)"
    assert cut_at_word("中" * 30, 20) == "中" * 20 + "... (10 more characters)"
