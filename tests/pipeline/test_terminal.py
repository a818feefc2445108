"""What a person at a terminal sees and may answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_kit import clean_environment, m3b_command
from terminal_kit import terminal

PROMPT = "Your answer (empty for none):"
OFF = "Detect brain tumours on MRI"
"""A request that the drawn spots do not serve."""
LEAKS = ("Reply with one JSON object", '{"data_card"', "Decide again", "data_card")


def unserved(tmp_path: Path, spots: Path) -> list[str]:
    """A run of the rules on data that says of itself to be something else; its budget ends after the selection."""
    data = tmp_path / "xrays"
    data.mkdir()
    for folder in spots.iterdir():
        (data / folder.name).symlink_to(folder)
    (data / "README.md").write_text("Chest X-rays, with and without spots.")
    return m3b_command("run", OFF, "--llm", "rules", "--data", data, "--out", "run", "--max-actions", "1")


@pytest.mark.parametrize("answer", ["xrays", "yes"])
def test_the_name_of_the_data_set_is_an_answer(tmp_path: Path, spots: Path, answer: str) -> None:
    """The name is taken: the run goes on to its data."""
    with terminal(unserved(tmp_path, spots), env=clean_environment(), cwd=tmp_path) as screen:
        screen.wait_for(PROMPT)
        screen.type(answer)
        status, shown = screen.end()
    assert status == 1
    assert "Which data set should be used? (xrays)" in shown
    assert "Data Engineer" in shown
    assert not [leak for leak in LEAKS if leak in shown], shown


def test_an_answer_that_is_none(tmp_path: Path, spots: Path) -> None:
    """A wrong name is said in plain words and asked again; no answer is the end, with the reason."""
    with terminal(unserved(tmp_path, spots), env=clean_environment(), cwd=tmp_path) as screen:
        screen.wait_for(PROMPT)
        screen.type("knees")
        screen.wait_for("'knees'")
        while screen.text.count(PROMPT) < 2:
            screen.read()
        screen.type("")
        status, shown = screen.end()
    assert status == 1
    assert "no_dataset: " in shown
    assert "Data here: xrays" in shown
    assert "Data Engineer" not in shown
    assert not [leak for leak in LEAKS if leak in shown], shown


def test_the_prompt_stands_still_while_somebody_types(tmp_path: Path, spots: Path) -> None:
    """The moving line is off between question and answer: what is typed stays behind its prompt."""
    with terminal(unserved(tmp_path, spots), env=clean_environment(), cwd=tmp_path) as screen:
        screen.wait_for(PROMPT)
        before = screen.seen
        screen.type("xrays")
        screen.wait_for(f"{PROMPT} xrays")
        typed = screen.seen[len(before) :].split(b"xrays")[0]
        screen.end()
    assert b"\x1b" not in typed
    assert before.decode().rstrip().endswith(PROMPT)
