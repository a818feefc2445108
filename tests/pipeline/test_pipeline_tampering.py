"""An agent that cheats after the test split is locked: the integrity label says what it did, and nothing is completed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pipeline_kit import REQUEST, TRAIN, actor, check_end, copy_run, make_spots, play, say, script

from m3b import Pipeline
from m3b.models import StagedCases
from m3b.run import sandbox_executor
from m3b.run.result import Result

LEAK = """python - <<'END'
import json
train = json.load(open('Datapath/train.json'))
test = [{**train[0], "image_path": f"data/spots/plain/p{n:03d}.png"} for n in (0, 6, 12, 18)]
json.dump(train + test, open('Datapath/train.json', 'w'))
END
"""


@pytest.mark.parametrize(
    ("cheat", "words"),
    [
        (LEAK, ["train.json changed after it was locked", "4 test images in the training index"]),
        ("rm Datapath/train.json\n", ["train.json changed after it was locked"]),
        ("""echo '{"spot": 0, "plain": 1}' > Datapath/label_dict.json\n""", ["label_dict.json changed"]),
    ],
    ids=["leak", "removed", "labels"],
)
@pytest.mark.confined
def test_the_index_is_changed_after_the_lock(finish, cheat: str, words: list[str]) -> None:
    result: Result = finish([script(f"{TRAIN} --out Deliver"), script(cheat), say("Done.")])
    check_end(result, "failed", "tampered", *words)
    for word in words:
        assert word in result.integrity
    assert not result.ok
    run = Path(result.run_dir)
    assert len(json.loads((run / "locked" / "Datapath" / "test.json").read_text())) == 20, "the locked copy stands"
    assert result.primary is not None
    assert result.primary.n == 20, "measured on the locked test split"
    assert "changed after it was locked" in (run / "model" / "provenance.json").read_text()


@pytest.mark.confined
def test_scripts_can_neither_read_nor_write_what_is_locked(finish) -> None:
    spy = "cat ../locked/Datapath/test.json; echo '[]' > ../locked/Datapath/test.json; ls ..; rm -rf ../locked; true"
    result: Result = finish([script(f"{spy}; {TRAIN}"), say("Done.")])
    check_end(result, "completed")
    assert result.integrity == "clean"
    script_outputs = [
        e["data"]["text"] for e in journal_of(result) if e["kind"] == "result" and e["data"]["name"] == "run_script"
    ]
    assert not any("image_path" in text for text in script_outputs)
    assert not any("locked" in text and "journal.jsonl" in text for text in script_outputs), "not even its names"


def journal_of(result: Result) -> list[dict]:
    from pipeline_kit import journal

    return journal(Path(result.run_dir))


def test_raw_data_that_changes_during_a_run(tmp_path: Path) -> None:
    """With the sandbox off a script can write to it; that shows, even where size and times are put back."""
    data = make_spots(tmp_path / "spots")
    victim = data / "plain" / "p000.png"
    swap = f"touch -r {victim} stamp; cp {data}/plain/p002.png {victim}; touch -r stamp {victim}"
    acts = play(model=[script(f"{swap}; {TRAIN}"), say("Done.")])
    result = Pipeline(actor(acts), data=[data], out=tmp_path / "run", sandbox="off").run(REQUEST)
    check_end(result, "failed", "raw data changed")
    assert "raw data changed" in result.integrity


def test_raw_data_that_changes_between_two_parts_of_a_run(tmp_path: Path, finish, halfway_run: Path) -> None:
    """The fingerprint taken at the start is kept, so that a resumed run compares with it."""
    place = copy_run(halfway_run, tmp_path / "copy")
    (place / "locked" / "raw.json").write_text('{"fingerprint": "of other data"}')
    result = finish(copied=place)
    check_end(result, "failed", "raw data changed")


def test_a_locked_copy_that_changes(tmp_path: Path, finish, halfway_run: Path) -> None:
    place = copy_run(halfway_run, tmp_path / "copy")
    locked = place / "locked" / "Datapath" / "test.json"
    rows = json.loads(locked.read_text())
    for row in rows:
        row["labels"] = ["plain" if row["labels"] == ["spot"] else "spot"]
    locked.write_text(json.dumps(rows))
    result = finish(copied=place)
    check_end(result, "failed", "locked copy of test.json changed")


def test_cases_that_are_linked_while_they_are_staged_leave_the_run_clean(
    finish, spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hard link, as large files without minimal copies get, changes the ctime of the raw file, which is no change of the data."""
    place_links, links = sandbox_executor.place_links, tmp_path / "links"
    links.mkdir()

    def place_and_link(staged: StagedCases, base: Path) -> None:
        place_links(staged, base)
        for file in sorted(spots.rglob("*.png")):
            (links / f"{len(list(links.iterdir()))}.png").hardlink_to(file)

    monkeypatch.setattr(sandbox_executor, "place_links", place_and_link)
    result: Result = finish()
    check_end(result, "completed")
    assert any(links.iterdir())
    assert result.integrity == "clean"


def test_an_honest_run_stays_clean(finish, halfway_run: Path) -> None:
    """The same road without a cheat: what the tests above see is the cheat, not the road."""
    before = shutil.disk_usage(halfway_run)
    assert before.free > 0
    result = finish()
    check_end(result, "completed")
    assert result.integrity == "clean"
