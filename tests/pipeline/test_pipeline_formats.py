"""Runs that an earlier m3b began, taken up by this one."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline_kit import REQUEST, actor, check_end, journal, play, say

from m3b import resume

OLD = Path(__file__).parents[1] / "run" / "journals" / "format-1-stopped"


def test_a_run_of_format_1_is_resumed(tmp_path: Path, spots: Path) -> None:
    """Written while the journal had format 1: the second role had run three scripts, and its model was then away."""
    run = tmp_path / "stopped"
    run.mkdir()
    for name in ("run.json", "journal.jsonl"):
        text = (OLD / name).read_text(encoding="utf-8")
        (run / name).write_text(text.replace("@DATA@", str(spots)).replace("@RUN@", str(run)), encoding="utf-8")
    halt = [say(json.dumps({"given_up": "Enough."}))]
    model = actor(play(index=[None, None, None, None, *play()["index"]], module=halt))
    result = resume(run, model)
    check_end(result, "failed", "Enough.")
    assert result.request == REQUEST
    assert list(result.roles) == ["task_manager", "data_engineer", "module_architect"]
    message_texts = [message.text for message in model.requests[0][0]]
    assert any("first" in text for text in message_texts)
    assert any("second" in text for text in message_texts)
    lines = journal(run)
    assert sum("n" not in line for line in lines) == len((OLD / "journal.jsonl").read_text("utf-8").splitlines())
    assert json.loads((run / "run.json").read_text())["format"] == 2
    assert result.roles["data_engineer"]["iterations"] == 2
