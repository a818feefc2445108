"""The question before training: what it shows, what its answers do, and who has to be there to be asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import (
    actor,
    check_end,
    clean_environment,
    m3b_command,
    make_table,
    of_kind,
    play,
    say,
    script,
    write,
)
from terminal_kit import terminal

from m3b import Pipeline
from m3b.errors import LLMError, UsageError
from m3b.run.pipeline import resume
from m3b.testing import llm_error

STOP = "Far enough for this test."
REQUEST = "Tell bright spots from plain tissue on these drawn scans"


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    rows = [(f"s{n:03d}.png", f"Q{n // 2:03d}x", ["plain", "spot"][n % 2]) for n in range(48)]
    return make_table(tmp_path / "scans", rows)


class Person:
    """Answers in turn, and keeps the questions."""

    def __init__(self, *answers: str | Callable[[str], str] | None) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def __call__(self, question: str) -> str | None:
        self.asked.append(question)
        answer = self.answers.pop(0)
        return answer(question) if callable(answer) else answer


def begin(tmp_path: Path, data: Path, person: Person | None, index: Any = "rules", **options: Any) -> Any:
    llm = {
        "default": "rules",
        "data_engineer": index,
        "module_architect": actor(play(module=[llm_error(LLMError, STOP)])),
    }
    return Pipeline(llm, data=[data], out=tmp_path / "run", ask=person, **options).run(REQUEST)


def again(tmp_path: Path, person: Person | None) -> Any:
    module = actor(play(module=[llm_error(LLMError, STOP)]))
    return resume(tmp_path / "run", {"default": "rules", "module_architect": module}, ask=person)


def edited(place: Path, change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    """What a person does who opens the reading that the question names."""

    def answer(question: str) -> str:
        manifest_line = next(line for line in question.splitlines() if line.startswith("The manifest as JSON: "))
        spec = json.loads(Path(manifest_line.partition(": ")[2]).read_text())
        change(spec)
        place.write_text(json.dumps(spec))
        return str(place)

    return answer


def test_yes_goes_on_and_is_not_asked_again(tmp_path: Path, scans: Path) -> None:
    person = Person("yes")
    assert begin(tmp_path, scans, person, confirm=True).reason == STOP
    (question,) = person.asked
    lines = question.splitlines()
    assert "diagnosis: plain: 24, spot: 24" in lines[1]
    assert "patients" in question
    assert f"Page with examples: {tmp_path / 'run' / 'manifest.html'}" in lines
    assert len(lines) <= 15
    assert again(tmp_path, None).reason == STOP, "the answer is kept"


def test_no_ends_the_run_and_a_resumed_one_asks_again(tmp_path: Path, scans: Path) -> None:
    result = begin(tmp_path, scans, Person("no"), confirm=True)
    check_end(result, "cancelled", "declined", "manifest.json", "m3b resume")
    assert not of_kind(tmp_path / "run", "prompt", "module_architect")
    with pytest.raises(UsageError, match="nobody to ask"):
        again(tmp_path, None)
    person = Person("yes")
    assert again(tmp_path, person).reason == STOP
    assert len(person.asked) == 1


def test_an_edited_reading_takes_the_place_of_the_first(tmp_path: Path, scans: Path) -> None:
    person = Person(edited(tmp_path / "mine.json", lambda spec: spec["labels"]["classes"].update(spot=["spot", "plain"])),
                    edited(tmp_path / "mine.json", lambda spec: spec.pop("patient")), "yes")  # fmt: skip
    assert begin(tmp_path, scans, person, confirm=True).reason == STOP
    assert len(person.asked) == 3
    assert "mine.json" in person.asked[1] or "The manifest that was given" in person.asked[1], "why it is not taken"
    assert "plain: 24, spot: 24" in person.asked[1], "the one at hand stands"
    assert "patients unknown" in person.asked[2]
    index = json.loads((tmp_path / "run/locked/Datapath/train.json").read_text())
    assert all(entry["patient"].startswith("unknown-") for entry in index)
    handed = [entry for entry in of_kind(tmp_path / "run", "artifact") if entry["artifact"] == "index"]
    assert handed[-1]["value"]["origin"] == "given"
    assert again(tmp_path, None).reason == STOP


def test_what_is_no_answer_is_said_and_asked_again(tmp_path: Path, scans: Path) -> None:
    person = Person("perhaps", None, "y")
    assert begin(tmp_path, scans, person, confirm=True).reason == STOP
    assert person.asked[1].startswith("'perhaps' is neither yes nor no")
    assert person.asked[2].startswith("An empty answer")


def test_a_number_takes_another_proposal(tmp_path: Path) -> None:
    """Two columns could be the label: the second proposal is taken by its number, and is asked about again."""
    rows = [(f"s{n:03d}.png", f"Q{n // 2:03d}x", ["plain", "spot"][n % 2]) for n in range(48)]
    data = make_table(tmp_path / "scans", rows)
    table = (data / "cases.csv").read_text().splitlines()
    second = [
        f"{line},{['reader2', *(['plain', 'spot'][n // 2 % 2] for n in range(48))][k]}" for k, line in enumerate(table)
    ]
    (data / "cases.csv").write_text("\n".join(second) + "\n")
    person = Person("7", "2", "yes")
    assert begin(tmp_path, data, person, confirm=True).reason == STOP
    first, wrong, new_question = person.asked
    assert "  2  " in first
    assert "{" not in first
    assert wrong.startswith("There is no way 7")
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    columns = set(re.findall(r"\{\w+\.(\w+)\}", json.dumps(manifest["labels"])))
    assert columns == {"reader2"} if "reader2" in first.split("  2  ")[1] else columns != {"reader2"}
    assert new_question != first


def test_nobody_who_answers_is_a_no(tmp_path: Path, scans: Path) -> None:
    check_end(begin(tmp_path, scans, Person(*[None] * 8), confirm=True), "cancelled", "nobody said")


def test_without_anybody_to_ask_confirm_is_refused_before_anything_is_made(tmp_path: Path, scans: Path) -> None:
    with pytest.raises(UsageError, match="nobody to ask"):
        begin(tmp_path, scans, None, confirm=True)
    assert not (tmp_path / "run").exists()


INDEX_SCRIPT = """
import json
from pathlib import Path
files = sorted(Path("data/scans/images").glob("*.png"))
rows = [{"image_path": f.as_posix(), "labels": [["plain", "spot"][n % 2]], "patient": f"Q{n // 2:03d}x"} for n, f in enumerate(files)]
Path("Datapath").mkdir(exist_ok=True)
Path("Datapath/train.json").write_text(json.dumps([r for n, r in enumerate(rows) if n // 2 % 3]))
Path("Datapath/test.json").write_text(json.dumps([r for n, r in enumerate(rows) if not n // 2 % 3]))
Path("Datapath/label_dict.json").write_text(json.dumps({"plain": 0, "spot": 1}))
"""


@pytest.mark.parametrize(("table", "n_questions"), [(True, 0), (False, 1)], ids=["borne out", "by nothing"])
def test_weak_evidence_alone_is_asked_about(tmp_path: Path, scans: Path, table: bool, n_questions: int) -> None:
    if not table:
        (scans / "cases.csv").unlink()
    acts = play(index=[write({"make.py": INDEX_SCRIPT}), script("python make.py"), say("Done."), say("Done.")])
    person = Person("yes")
    data = {"default": "rules", "task_manager": actor(play("scans")), "data_engineer": actor(acts),
            "module_architect": actor(play(module=[llm_error(LLMError, STOP)]))}  # fmt: skip
    result = Pipeline(data, data=[scans], out=tmp_path / "run", ask=person, confirm="weak").run(REQUEST)
    assert result.reason == STOP
    assert len(person.asked) == n_questions
    if n_questions:
        assert "To be decided: A script made the index" in person.asked[0]
        assert "The manifest as JSON" not in person.asked[0], "none says what the script did"


def test_the_reading_that_is_kept_is_that_of_the_accepted_index(tmp_path: Path, scans: Path) -> None:
    acts = play(index=[write({"make.py": INDEX_SCRIPT}), script("python make.py"), say("Done."), say("Done.")])
    (tmp_path / "mine.json").write_text("{}")

    def give_manifest(question: str) -> str:
        run = tmp_path / "run"
        assert not (run / "manifest.json").exists(), "the script's index came from no reading"
        script_line = next(line for line in question.splitlines() if line.startswith("A script made the index"))
        proposed = Path(script_line.rpartition(": ")[2])
        (tmp_path / "mine.json").write_text(proposed.read_text())
        return str(tmp_path / "mine.json")

    def agreed(question: str) -> str:
        run = tmp_path / "run"
        assert json.loads((run / "manifest.json").read_text()) == json.loads((tmp_path / "mine.json").read_text())
        assert not (run / "manifest-proposed.json").exists()
        return "yes"

    person = Person(give_manifest, agreed)
    data = {"default": "rules", "task_manager": actor(play("scans")), "data_engineer": actor(acts),
            "module_architect": actor(play(module=[llm_error(LLMError, STOP)]))}  # fmt: skip
    assert Pipeline(data, data=[scans], out=tmp_path / "run", ask=person, confirm=True).run(REQUEST).reason == STOP
    assert not person.answers


def test_a_person_at_a_terminal_declines(tmp_path: Path, scans: Path) -> None:
    command = m3b_command("run", REQUEST, "--llm", "rules", "--data", scans, "--out", "run", "--confirm")
    with terminal(command, env=clean_environment(), cwd=tmp_path) as screen:
        screen.wait_for("Your answer")
        screen.type("no")
        status, output = screen.end()
    assert status == 1
    assert "Is the data read rightly?" in output
    assert "cancelled" in output
