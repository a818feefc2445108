"""The pages in a real browser: nothing is loaded or refused, tables sort, curves are drawn, and anybody can read it."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium_kit import Browser, needs_chromium, open_browser
from PIL import Image

from m3b.models.case_pictures import CasePicture, CasePictures
from m3b.report.page import render_report
from m3b.report.run_files import RunFiles

pytestmark = needs_chromium

HOSTILE = "</script><img src=x onerror=window.pwned=1>\"'<svg onload=window.pwned=1>\u202eexe.gnp"


def jpeg(side: int = 40) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (side, side), (90, 30, 60)).save(stream, "JPEG")
    return stream.getvalue()


def make_files(name: str = "case", label: str = "opacity", status: str = "completed") -> RunFiles:
    """A classifier with twelve test cases, three of them wrong, pictures, curves of two folds and a transcript."""
    rows: list[dict[str, Any]] = []
    for number in range(12):
        share = 0.95 - 0.07 * number
        true_label, other_label = ((label, "clear"), ("clear", label))[number % 2]
        decided = true_label if share > 0.4 else other_label
        probabilities = {true_label: share, other_label: 1 - share}
        rows.append({"image": f"data/x/{name} {number}.png", "patient": f"p{number}", "labels": [true_label],
                     "probabilities": probabilities, "decided": [decided], "out_of_distribution": number == 3})  # fmt: skip
    pictures = [
        CasePicture(row["image"], "test", label, jpeg(), 40, 40) for row in rows[:11]
    ] + [CasePicture(rows[11]["image"], "test", label, error=f"does not open: {name}")]  # fmt: skip
    log = [
        {"fold": str(fold), "epoch": str(epoch), "step": str(9 * epoch), "train_loss": f"{1 / epoch:.3f}",
         f"auroc {label}": f"{0.5 + 0.05 * epoch:.3f}", "lr": "0.001", "seconds": str(4 * epoch)}
        for fold in range(2) for epoch in range(1, 6)
    ]  # fmt: skip
    measure = {"name": "auroc", "value": 0.9, "low": 0.8, "high": 0.95, "n": 12, "baseline": 0.5}
    scores = {
        "task": "diagnosis", "primary": measure, "metrics": {"auroc": measure}, "classes": ["clear", label],
        "confusion": [[5, 1], [2, 4]], "n_cases": 12, "n_patients": 12, "patients_known": True,
        "per_class": [{"name": n, "n": 6, "auroc": measure, "roc": [[0, 0], [0.2, 0.9], [1, 1]]} for n in ("clear", label)],
        "calibration": [{"confidence": 0.2, "correct": 0.3, "n": 4}, {"confidence": 0.8, "correct": 0.7, "n": 8}],
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"kind": "run_started", "role": "", "at": 1.7e9, "data": {"request": f"find {label}"}},
        {"kind": "call", "role": "data_engineer", "at": 1.7e9,
         "data": {"id": "1", "name": "run_script", "action": 1, "arguments": {"command": f"python {name}.py"}}},
        {"kind": "result", "role": "data_engineer", "at": 1.7e9 + 2, "data": {"id": "1", "text": name, "is_error": True}},
        {"kind": "check", "role": "data_engineer", "at": 1.7e9 + 3, "data": {"accepted": False, "faults": [name]}},
    ]  # fmt: skip
    result = {"status": status, "reason": f"because of {name}", "request": f"find {label}", "task": "diagnosis",
              "integrity": "clean", "usage": {"wall_s": 9, "actions": 1}, "data_card": name}  # fmt: skip
    audit = {"counts": {"train": {label: 30}, "test": {label: 12}}, "cases": 42, "opened": 42, "shapes": {"8x8": 42},
             "findings": [{"weight": "warn", "message": f"alike: {name}", "cases": [name]}]}  # fmt: skip
    plan = {"network": {"name": label, "dropout": 0.2}, "size": [64, 64], "lr": 0.001, "augment": {"flip": ["w"]}}
    return RunFiles(
        Path("run"), {"id": "run", "request": f"find {label}", "result": result, "llm": {"default": "rules"}},
        events, audit, scores, log, [("predict.py", 100), (f"{name}.py", 5)], plan, 1234, rows,
        CasePictures(pictures, [CasePicture(name, "training", label, jpeg(), 40, 40, text=name)], [(label, "#aa3300")]),
    )  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as chromium:
        yield chromium


def write(folder: Path, files: RunFiles) -> Path:
    file = folder / "report.html"
    file.write_text(render_report(files), encoding="utf-8")
    return file


def test_nothing_is_loaded_and_nothing_is_refused(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path, make_files()))
    assert browser.requests == []
    assert browser.errors == []
    assert browser.evaluate("[...document.images].every(i => i.naturalWidth > 0 || i.closest('dialog'))")


def test_hostile_names_labels_and_reports_stay_text(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path, make_files(HOSTILE, HOSTILE)))
    browser.evaluate("document.querySelectorAll('.sort, select, input').forEach(e => e.click())")
    assert browser.evaluate("window.pwned === undefined")
    assert browser.evaluate("document.querySelectorAll('img[src=x], [onload], [onerror]').length") == 0
    assert browser.evaluate("document.body.textContent.includes('onerror=window.pwned=1')")
    assert browser.evaluate("document.querySelectorAll('.uplot').length") == 3, "the data block was read whole"
    assert browser.evaluate("!document.body.textContent.includes('\\u202e')")
    assert (browser.requests, browser.errors) == ([], [])


def test_the_table_of_cases_sorts_and_filters(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path, make_files()))
    column = "[...document.querySelectorAll('.sortable tbody tr:not([hidden])')].map(r => r.cells[4].textContent)"
    head = "[...document.querySelectorAll('.sortable thead th')].find(h => h.textContent.startsWith('Probability'))"
    assert browser.evaluate(column)[0] == "0.740", "the one unlike the training images"
    browser.evaluate(f"{head}.querySelector('button').click()")
    assert browser.evaluate(f"{head}.getAttribute('aria-sort')") == "ascending"
    values = [float(text) for text in browser.evaluate(column)]
    assert values == sorted(values)
    assert len(values) == 12
    browser.evaluate(
        "(f => { f.value = 'case 11'; f.dispatchEvent(new Event('input')); })(document.querySelector('.filter input'))"
    )
    assert browser.evaluate(column) == ["0.180"]
    assert browser.evaluate("document.querySelector('[role=status]').textContent").strip() == "1 of 12"


def test_curves_have_axes_of_steps_epochs_and_time(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path, make_files()))
    assert browser.evaluate("[...document.querySelector('#axis-choice select').options].map(o => o.value)") == [
        "step",
        "epoch",
        "minutes",
    ]
    assert browser.evaluate("[...document.querySelectorAll('.curve > figure')].every(f => !f.checkVisibility())")
    browser.evaluate(
        "(s => { s.value = 'minutes'; s.dispatchEvent(new Event('change')); })(document.querySelector('#axis-choice select'))"
    )
    assert browser.evaluate("document.querySelectorAll('.uplot').length") == 3
    assert browser.evaluate("document.querySelector('.u-legend').textContent").startswith("Minutes")


def test_small_values_are_legible_at_the_axis(browser: Browser, tmp_path: Path) -> None:
    files = make_files()
    log = [{**row, "lr": str(0.0008 / int(row["epoch"]))} for row in files.training_log]
    record_texts = (
        "window.texts = []; const paint = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest)"
        "{ window.texts.push(text); return paint.call(this, text, ...rest); };"
    )
    script = browser.call("Page.addScriptToEvaluateOnNewDocument", {"source": record_texts})
    browser.open(write(tmp_path, dataclasses.replace(files, training_log=log)))
    texts = browser.evaluate("new Promise(done => setTimeout(() => done(window.texts), 300))")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", script)
    assert {"0.0002", "0.0004", "0.0008"} <= set(texts)


def test_a_picture_is_enlarged_by_keyboard_too(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path, make_files()))
    browser.evaluate("document.querySelector('.enlarge').click()")
    assert browser.evaluate("document.getElementById('enlarged').open")
    assert browser.evaluate("document.querySelector('#enlarged img').src.startsWith('data:image/jpeg')")
    browser.evaluate("document.querySelector('#enlarged button').click()")
    assert not browser.evaluate("document.getElementById('enlarged').open")


def test_without_scripts_everything_is_readable(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path, make_files()), scripts=False)
    browser.call("Emulation.setScriptExecutionDisabled", {"value": False})
    assert browser.evaluate("document.querySelectorAll('.curve > figure svg.chart').length") == 3
    assert browser.evaluate("[...document.querySelectorAll('.curve > figure')].every(f => f.checkVisibility())")
    assert browser.evaluate("document.querySelectorAll('.sortable tbody tr').length") == 12


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (1100, "dark"), (390, "light")])
@pytest.mark.parametrize("status", ["completed", "failed"])
def test_axe_finds_no_violation(browser: Browser, tmp_path: Path, width: int, scheme: str, status: str) -> None:
    files = make_files(status=status)
    if status == "failed":
        files = RunFiles(Path("run"), files.record, files.events)
    browser.open(write(tmp_path, files), width=width, scheme=scheme)
    assert browser.find_violations() == []
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing is cut at the side"


def test_a_page_of_many_pictures_stays_below_5_mb(tmp_path: Path) -> None:
    from m3b.report.pictures import keep_within_size

    large = b"\xff\xd8\xff" + bytes(400_000)
    pictures = CasePictures([CasePicture(str(n), "test", "", large, 9, 9) for n in range(20)], [], [])
    limited = keep_within_size(pictures)
    assert sum(len(case.jpeg) for case in limited.tests) <= 3 * 2**20
    assert {case.error for case in limited.tests} == {"", "too large for this page"}
    fake = CasePictures([CasePicture("x", "test", "", b"GIF89a", 9, 9)], [], [])
    assert json.dumps([case.error for case in keep_within_size(fake).tests]) == '["no JPEG"]'
