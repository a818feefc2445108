"""Volumes, pictures and the manifest form of `m3b view` in a real browser, under its content security policy."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium_kit import Browser, needs_chromium, open_browser
from PIL import Image

pytest.importorskip("uvicorn")
from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.reference import EXAMPLES
from m3b.run.folder import RunFolder
from m3b.serve.view.case_list import list_cases
from view_kit import TOKEN, get_key, serve_view, write_box_run, write_form_run, write_volume_run

pytestmark = needs_chromium
ORANGE = (230, 159, 0)
HOSTILE = "</script><img src=x onerror=window.pwned=1>\"'"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_volume_run(folder / "volumes", n_tests=3)
    write_box_run(folder / "boxes", HOSTILE)
    write_form_run(folder / "form")
    for task, manifest in EXAMPLES.items():
        write_form_run(folder / f"form-{task}", manifest)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser(webgl=True) as session:
        yield session


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with serve_view(runs) as url:
        yield url


def open_page(browser: Browser, address: str, path: str) -> None:
    browser.open(f"{address}/?token={TOKEN}")
    browser.open(f"{address}{path}")


def open_case(browser: Browser, address: str, run: Path) -> None:
    """Open the first test case, and wait until it is shown."""
    case = next(case for case in list_cases(RunFolder(run)).cases if case.part == "test")
    open_page(browser, address, f"/runs/{get_key(run)}/cases/{case.id}")
    wait_for(browser, "document.getElementById('viewer').dataset.state")
    assert browser.evaluate("document.getElementById('viewer').dataset.state") == "shown"


def wait_for(browser: Browser, expression: str) -> None:
    """Wait until an expression of the page is true."""
    browser.evaluate(
        f"new Promise((done) => {{ const look = () => ({expression}) ? done() : setTimeout(look, 30); look(); }})"
    )


def take_picture(browser: Browser) -> np.ndarray:
    """Return the pixels of the page."""
    content = base64.b64decode(browser.call("Page.captureScreenshot", {"format": "png"})["data"])
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)


def count_near(picture: np.ndarray, colour: tuple[int, int, int], tolerance: int = 60) -> int:
    return int((np.abs(picture - colour).max(axis=-1) < tolerance).sum())


def click(browser: Browser, text: str) -> None:
    """Click the checkbox with a label."""
    browser.evaluate(
        f"[...document.querySelectorAll('label')].find(l => l.textContent.startsWith({json.dumps(text)})).click()"
    )


def test_a_volume_is_drawn_with_its_masks(browser: Browser, address: str, runs: Path) -> None:
    open_case(browser, address, runs / "volumes")
    browser.evaluate("viewer.view.drawScene()")
    picture = take_picture(browser)
    left, top, right, bottom = browser.evaluate(
        "(({left, top, right, bottom}) => [left, top, right, bottom])(document.querySelector('canvas').getBoundingClientRect())"
    )
    canvas = picture[int(top) : int(bottom), int(left) : int(right)]
    assert len(np.unique(canvas.reshape(-1, 3), axis=0)) > 100, "noise in many greys"
    coloured = canvas.max(axis=-1) - canvas.min(axis=-1) > 40
    assert coloured.mean() > 0.02
    for label in ("Reference", "Prediction"):
        click(browser, label)
    browser.evaluate("viewer.view.drawScene()")
    without = take_picture(browser)[int(top) : int(bottom), int(left) : int(right)]
    assert (without.max(axis=-1) - without.min(axis=-1) > 40).mean() < 0.002
    assert browser.evaluate("document.querySelector('.place').textContent").startswith("voxel")
    assert browser.errors == []


def test_boxes_are_drawn_on_a_picture(browser: Browser, address: str, runs: Path) -> None:
    open_case(browser, address, runs / "boxes")
    assert browser.evaluate("[...document.querySelectorAll('.picture-stack rect')].length") == 2
    n_orange = count_near(take_picture(browser), ORANGE)
    for label in ("Reference", "Prediction"):
        click(browser, label)
    assert count_near(take_picture(browser), ORANGE) < n_orange - 500
    assert HOSTILE in browser.evaluate("viewer.textContent")
    assert browser.evaluate("window.pwned === undefined")
    assert browser.errors == []


@pytest.mark.parametrize("page", ["cases", "data", "manifest"])
def test_axe_finds_no_violation(browser: Browser, address: str, runs: Path, page: str) -> None:
    run = runs / ("form" if page == "manifest" else "volumes")
    open_page(browser, address, f"/runs/{get_key(run)}/{page}")
    if page == "manifest":
        wait_for_counts(browser)
    assert browser.find_violations() == []


def wait_for_counts(browser: Browser) -> None:
    wait_for(browser, "['counted', 'wrong'].includes(document.getElementById('counts').dataset.state)")


def read_counts(browser: Browser) -> list[list[str]]:
    rows: list[list[str]] = browser.evaluate(
        "[...document.querySelectorAll('#counts tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return rows


def set_value(browser: Browser, part: str, value: str) -> None:
    """Type a value into the field of a part, and wait for new counts."""
    browser.evaluate(
        f"(() => {{ const field = document.getElementById({json.dumps(f'field-{part}')}); field.value = {json.dumps(value)};"
        " document.getElementById('counts').dataset.state = 'counting';"
        " field.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    wait_for_counts(browser)


def test_counts_follow_the_form_and_errors_stand_at_their_field(browser: Browser, address: str, runs: Path) -> None:
    open_page(browser, address, f"/runs/{get_key(runs / 'form')}/manifest")
    wait_for_counts(browser)
    first = read_counts(browser)
    assert [row[0] for row in first] == ["Cases", "all cases", "patients", "clear", "opacity"]
    set_value(browser, "images.files", "images/*_0.png")
    second = read_counts(browser)
    assert sum(map(int, second[1][1:])) < sum(map(int, first[1][1:]))
    assert not browser.evaluate("document.querySelector('#train-form button').disabled")
    set_value(browser, "images.frames", "900")
    assert browser.evaluate("document.getElementById('counts').dataset.state") == "wrong"
    assert browser.evaluate("document.querySelector('#train-form button').disabled")
    part = "document.querySelector('.field-error').closest('[data-part]').dataset.part"
    assert browser.evaluate(part) == "images.frames"
    assert browser.errors == []


@pytest.mark.parametrize("task", sorted(EXAMPLES))
def test_the_form_gives_back_every_manifest(browser: Browser, address: str, runs: Path, task: str) -> None:
    open_page(browser, address, f"/runs/{get_key(runs / f'form-{task}')}/manifest")
    wait_for_counts(browser)
    values: dict[str, Any] = json.loads(browser.evaluate("document.getElementById('manifest-json').textContent"))
    read, example = Manifest.model_validate(values), Manifest.model_validate(EXAMPLES[task])
    assert read.model_dump_json() == example.model_dump_json()
