"""The pages of `m3b view` in a real browser, from a server as the command starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
from chromium_kit import Browser, needs_chromium, open_browser

from m3b.events import ReplyReceived, RoleStarted, RunEnded, RunStarted
from m3b.journal import Journal
from m3b.run.folder import RunFolder
from m3b.serve.view.run_index import make_key

pytestmark = needs_chromium

HOSTILE = "</script><img src=x onerror=window.pwned=1>\"'"
TOKEN = "a-token-of-the-test-suite"  # nosec B105
LOG = "step,train_loss,auroc\n" + "".join(f"{9 * n},{1 / n:.3f},{0.5 + n / 20:.3f}\n" for n in range(1, 6))


def make_run(folder: Path, started: float, status: str = "completed", request: str = "tell spots") -> RunFolder:
    run = RunFolder.create(folder)
    measure = {"name": "auroc", "value": 0.9 - started / 1e5, "low": 0.8, "high": 0.95, "n": 60}
    result = {"status": status, "primary": measure, "metrics": {"auroc": measure}, "task": "diagnosis"}
    record = {"id": run.id, "request": request, "status": status, "started": started, "stages": ["model_trainer"]}
    run.save_record({**record, "result": None if status == "working" else result})
    (run.work / "Logout").mkdir()
    (run.work / "Logout/log.csv").write_text(LOG)
    journal = Journal(run.journal_file)
    journal.write(RunStarted(request, run.id, {"name": "bubblewrap"}))
    journal.write(RoleStarted("Model Trainer", "rules", role="model_trainer"))
    journal.write(ReplyReceived(HOSTILE, role="model_trainer"))
    journal.close()
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    folder = tmp_path_factory.mktemp("runs")
    requests = ["tell spots", "outline lesions", HOSTILE]
    return [make_run(folder / f"run-{i}", 1000.0 * (i + 1), request=request) for i, request in enumerate(requests)]


@pytest.fixture(scope="module")
def address(runs: list[RunFolder]) -> Iterator[str]:
    """The address that the command prints."""
    argv = [sys.executable, "-m", "m3b", "view", str(runs[0].path.parent), "--port", "0"]
    environment = {**os.environ, "M3B_SERVE_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Browser]:
    with open_browser() as chromium:
        chromium.open(address)
        assert chromium.evaluate("location.search") == "", "the token does not stay in the address"
        yield chromium


def get_root(address: str) -> str:
    return address.partition("?")[0]


def wait_for(browser: Browser, expression: str) -> None:
    """Wait until an expression is true on the page; the page says so when it is, without a clock."""
    browser.evaluate(
        f"new Promise(done => {{ const look = () => ({expression}) ? done(true) : requestAnimationFrame(look); look(); }})"
    )


def test_runs_are_filtered_sorted_chosen_and_compared(browser: Browser, address: str) -> None:
    browser.open(get_root(address))
    names = "[...document.querySelectorAll('.runs tbody tr:not([hidden]) th a')].map(a => a.textContent)"
    assert browser.evaluate(names) == ["run-2", "run-1", "run-0"]
    browser.evaluate("[...document.querySelectorAll('.sort')].find(b => b.textContent === 'Started').click()")
    assert browser.evaluate(names) == ["run-0", "run-1", "run-2"]
    browser.evaluate(
        "(f => { f.value = 'lesions'; f.dispatchEvent(new Event('input')); })(document.querySelector('.filter input'))"
    )
    assert browser.evaluate(names) == ["run-1"]
    assert browser.evaluate("document.getElementById('compare').disabled")
    browser.evaluate("[...document.querySelectorAll('input[name=run]')].slice(0, 2).forEach(box => box.click())")
    assert not browser.evaluate("document.getElementById('compare').disabled")
    assert browser.errors == []
    query = browser.evaluate("new URLSearchParams(new FormData(document.querySelector('form'))).toString()")
    browser.open(f"{get_root(address)}compare?{query}")
    assert browser.evaluate("document.querySelectorAll('.uplot').length") == 2
    assert browser.evaluate("document.querySelector('.u-legend').textContent").count("A") == 1
    assert browser.errors == []


def test_a_run_at_work_is_followed_until_it_ends(browser: Browser, address: str, runs: list[RunFolder]) -> None:
    run = make_run(runs[0].path.parent / "at-work", 9000.0, "working")
    run.lock()
    browser.open(f"{get_root(address)}runs/{make_key(run)}/live")
    wait_for(browser, "document.querySelectorAll('#messages li').length === 3")
    wait_for(browser, "document.querySelectorAll('.uplot').length === 2")
    assert browser.evaluate("document.querySelector('#stages .working').textContent") == "Model Trainer at work"
    assert browser.evaluate("document.querySelector('#messages').textContent.includes('onerror=window.pwned=1')")
    journal = Journal(run.journal_file)
    journal.write(RunEnded({"status": "failed", "reason": "no room"}))
    journal.close()
    run.save_record({**run.load_record(), "status": "failed", "reason": "no room"})
    run.unlock()
    wait_for(browser, "document.getElementById('live').dataset.ended")
    assert browser.evaluate("document.getElementById('state').textContent") == "Failed"
    assert browser.evaluate("document.querySelector('#messages li .said').textContent") == "Failed: no room"
    assert browser.evaluate("window.pwned === undefined")
    assert browser.errors == []


def test_pages_are_legible_for_anybody_and_load_nothing_from_elsewhere(
    browser: Browser, address: str, runs: list[RunFolder]
) -> None:
    keys = [make_key(run) for run in runs]
    pages = ["", f"runs/{keys[2]}", f"runs/{keys[2]}/live", f"compare?run={keys[0]}&run={keys[2]}"]
    for page in pages:
        for width, scheme in ((1100, "light"), (1100, "dark"), (390, "light")):
            browser.open(get_root(address) + page, width=width, scheme=scheme)
            if page.endswith("live"):
                wait_for(browser, "document.getElementById('live').dataset.ended")
            assert browser.find_violations() == [], (page, width, scheme)
            assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (page, width)
            assert all(url.startswith(get_root(address)) for url in browser.requests), json.dumps(browser.requests)
            assert (browser.errors, browser.evaluate("window.pwned === undefined")) == ([], True)
