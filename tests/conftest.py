"""What holds for every test."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

# Workers and their trainings are more than there are processors: one thread each. Read as torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# how long one example takes says something of the machine's load, and speed is measured in benchmarks/
settings.register_profile("fast", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=200)  # `make test-slow`
settings.load_profile("fast")

# A shell ignores Ctrl-C for what it starts in the background, and children inherit that: tests that send it would wait for ever.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


STATE = "XDG_STATE_HOME"
"""Names the folder of a user's list of runs. Subprocesses of the tests inherit it."""


@pytest.fixture(scope="session", autouse=True)
def session_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the runs of session and module fixtures out of the user's own list, and the user's runs out of the tests."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE, str(folder / "session"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))  # without m3b.toml
        yield folder


_numbers = itertools.count()


@pytest.fixture(autouse=True)
def own_state(session_state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a list of runs of its own, which is empty."""
    folder = session_state / str(next(_numbers))
    monkeypatch.setenv(STATE, str(folder))
    return folder


# --- warm processes ------------------------------------------------------------------------------------------------

CONFINED_FOLDERS = ("sandbox", "attacks", "reader", "fuzz")
"""Folders whose tests are about isolation; elsewhere the marker `confined` asks for the real sandbox."""


def pytest_configure(config: pytest.Config) -> None:
    """Start the servers of warm processes once for all workers."""
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        from warm.servers import start_zygotes

        config.add_cleanup(start_zygotes())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose the real sandbox or the warm stand-in before any fixture of the test is made."""
    from warm.sandbox import use_sandbox

    folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
    use_sandbox(folder in CONFINED_FOLDERS or item.get_closest_marker("confined") is not None)


# --- duration ------------------------------------------------------------------------------------------------------

MAX_FAST_S = 5.0
"""Seconds that a fast test may take on a quiet machine; longer ones are named at the end."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the fast tests that took longer than `MAX_FAST_S`, so that they are made faster or marked `slow`."""
    if "not slow" not in config.option.markexpr:
        return
    seconds: dict[str, float] = {}
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("", []):
        seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    slow_tests = sorted(((s, name) for name, s in seconds.items() if s > MAX_FAST_S), reverse=True)
    if slow_tests:
        terminalreporter.section(f"{len(slow_tests)} fast tests took longer than {MAX_FAST_S:g} s")
        for duration, name in slow_tests:
            terminalreporter.line(f"{duration:6.1f} s  {name}")
