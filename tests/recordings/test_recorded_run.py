"""The committed recording of a whole real run: replayed through the real pipeline, training included.

When this fails because a prompt, a template or a tool's words were changed on purpose, `python
tests/recordings/rerecord.py` writes the recording anew with the same replies; look at its diff.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rerecord import FILE, SCORED_STATUSES, replay

from m3b.llm.recording import ReplayLLM
from m3b.run.result import Result


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run, in a folder that is another each time."""
    return replay(tmp_path_factory.mktemp("replayed"))


def test_the_run_goes_to_its_end_as_recorded(replayed: Result) -> None:
    """Half a minute of training may or may not be enough on a busy machine; the conversation must be the same."""
    assert replayed.status in SCORED_STATUSES, replayed.reason
    assert replayed.integrity == "clean"
    assert replayed.model_dir is not None
    assert replayed.usage["actions"] == 5
    assert list(replayed.roles) == ["task_manager", "data_engineer", "module_architect", "model_trainer"]


def test_every_recorded_reply_was_given(replayed: Result) -> None:
    journal = Path(replayed.run_dir) / "journal.jsonl"
    replies = [line for line in map(json.loads, journal.read_text("utf-8").splitlines()) if line["kind"] == "reply"]
    recorded = ReplayLLM(FILE).exchanges
    assert [line["data"]["text"] for line in replies] == [exchange.reply.text for exchange in recorded]
    tokens = sum(exchange.reply.usage.input_tokens for exchange in recorded)
    assert replayed.usage["input_tokens"] == tokens


def test_the_recording_is_of_no_machine_and_holds_no_secret() -> None:
    text = FILE.read_text("utf-8")
    assert not re.search(r"/(?:tmp|home|root|work|usr|var)/|127\.0\.0\.1|localhost", text)
    assert not re.search(r"\bsk-|api[_-]key|Bearer ", text, re.IGNORECASE)
    assert len(text) < 100_000


def test_the_recorded_model_made_a_slip_that_was_mended() -> None:
    """The real exchange held arguments with Python's quotes; the recording holds the call that they meant."""
    calls = [call for exchange in ReplayLLM(FILE).exchanges for call in exchange.reply.calls]
    assert len(calls) == 5
    assert not any(call.parse_error for call in calls)
