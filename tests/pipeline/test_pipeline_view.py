"""What those who train see: training cases alone, from the acceptance of the index to the end, after a resume too."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pipeline_kit import (
    PROJECT,
    REQUEST,
    TRAIN,
    actor,
    check_end,
    choice,
    combine_calls,
    copy_run,
    make_spots,
    of_kind,
    play,
    say,
    script,
    write,
)  # fmt: skip
from typer.testing import CliRunner

from m3b import Pipeline, resume
from m3b.cli.app import app
from m3b.data.index import TEST, read_index
from m3b.data.index import TRAIN as TRAINING
from m3b.errors import LLMError
from m3b.run import training_view as training
from m3b.run.folder import RunFolder
from m3b.run.result import Result
from m3b.testing.scripted_model import call, llm_error

LOOK = "find -L . -type f -not -path './resources/*' | sort"


def test_names(run: Path) -> set[str]:
    return {Path(record.files[0]).name for record in read_index(run / "locked").test}


test_names.__test__ = False  # type: ignore[attr-defined]


def seen_files(run: Path) -> list[set[str]]:
    """The names that each `LOOK` of a script after the acceptance printed."""
    texts = [e["text"] for e in of_kind(run, "result") if "./Datapath/label_dict.json" in e["text"]]
    return [{Path(line).name for line in text.splitlines() if line.startswith("./")} for text in texts]


@pytest.mark.parametrize("sandbox", ["auto", pytest.param("off", marks=pytest.mark.slow)])
@pytest.mark.parametrize("roles", ["four", pytest.param("single", marks=pytest.mark.slow)])
def test_scripts_see_the_training_cases_alone(build, sandbox: str, roles: str) -> None:
    result: Result = build(
        module=[combine_calls(script(LOOK), write(PROJECT), script("python plan.py")), say("In place.")],
        model=[script(f"{LOOK}; {TRAIN}"), say("Done.")],
        sandbox=sandbox,
        roles=roles,
    )
    check_end(result, "completed")
    assert result.integrity == "clean"
    run = Path(result.run_dir)
    looks = seen_files(run)
    assert len(looks) == 2
    training_names = {Path(record.files[0]).name for record in read_index(run / "locked").train}
    for visible_files in looks:
        assert training_names <= visible_files
        assert not test_names(run) & visible_files
        assert not {"test.json", "make_index.py", "data_audit.json"} & visible_files


def test_tools_see_the_training_cases_alone(build, spots: Path) -> None:
    victim = "data/spots/plain/p000.png"
    looks = [
        call("list_files", path="data/spots/plain"),
        call("read_files", paths=[victim]),
        call("copy_files", source=victim, target="mine.png"),
        call("read_files", paths=[str(spots / "plain/p000.png")]),
    ]
    result: Result = build(model=[*looks, script(TRAIN), say("Done.")])
    check_end(result, "completed")
    texts = [e["text"] for e in of_kind(Path(result.run_dir), "result", "model_trainer")]
    assert "p000" not in texts[0]
    assert "p004" in texts[0]
    assert "p000.png does not exist" in texts[1]
    assert not (Path(result.run_dir) / "work/mine.png").exists()
    assert "outside of the allowed folders" in texts[3]


@pytest.mark.confined
def test_other_data_sets_are_gone_too(tmp_path: Path, spots: Path) -> None:
    second_dataset = make_spots(tmp_path / "more", seed=3, patients=8)
    acts = play(model=[script(f"{LOOK}; ls data; ls {second_dataset} {spots} || true; {TRAIN}"), say("Done.")])
    acts["index"] = [
        combine_calls(write({"make_index.py": MAKE_SPOTS}), script("python make_index.py")),
        say("Indexed."),
    ]
    result = Pipeline(actor(acts), data=[spots, second_dataset], out=tmp_path / "run").run(REQUEST)
    check_end(result, "completed")
    (text,) = [e["text"] for e in of_kind(Path(result.run_dir), "result", "model_trainer")]
    assert "\nmore\n" not in text
    assert text.count("No such file or directory") == 2 or text.count("ermission denied") == 2


MAKE_SPOTS = """
import json
from pathlib import Path
root = Path("data/spots")
cases = {"train": [], "test": []}
for label in ("plain", "spot"):
    for n, file in enumerate(sorted((root / label).glob("*.png"))):
        cases["test" if n % 3 == 0 else "train"].append(
            {"image_path": file.as_posix(), "labels": [label], "patient": file.stem})
Path("Datapath").mkdir(exist_ok=True)
for split, rows in cases.items():
    Path(f"Datapath/{split}.json").write_text(json.dumps(rows))
Path("Datapath/label_dict.json").write_text(json.dumps({"plain": 0, "spot": 1}))
"""


def test_afterwards_people_find_the_test_cases_and_the_raw_data(finish, spots: Path) -> None:
    result: Result = finish()
    run = Path(result.run_dir)
    assert (run / "work" / TEST).read_bytes() == (run / "locked" / TEST).read_bytes()
    assert os.readlink(run / "work/data/spots") == str(spots)
    assert (run / "work/data_audit.json").is_file()
    assert (run / "scratch/make_index.py").is_file()
    assert not (run / "view").exists(), "a run that is over needs it no more"


def test_a_resumed_run_takes_them_away_again(build) -> None:
    first: Result = build(model=[llm_error(LLMError, "Gone.")])
    check_end(first, "failed", "Gone.")
    run = Path(first.run_dir)
    assert (run / "work" / TEST).is_file()
    assert (run / "view").is_dir(), "kept for the resume"
    second = resume(run, actor(play(model=[script(f"{LOOK}; {TRAIN}"), say("Done.")])))
    check_end(second, "completed")
    assert second.integrity == "clean"
    (visible_files,) = seen_files(run)
    assert not (test_names(run) | {"test.json", "data_audit.json"}) & visible_files


def test_a_moved_run_leads_to_its_own_view(halfway_run: Path, tmp_path: Path, finish) -> None:
    place = copy_run(halfway_run, tmp_path / "elsewhere")
    result = finish([script(f"{LOOK}; readlink data/spots; {TRAIN}"), say("Done.")], copied=place)
    check_end(result, "completed")
    (text,) = [e["text"] for e in of_kind(place, "result", "model_trainer")]
    assert f"{place}/view/spots" in text


@pytest.mark.parametrize("step", range(6))
def test_a_crash_at_any_step_of_the_change_is_made_good(
    halfway_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """As if the machine had stopped between two steps: the next try ends in the same state."""
    place = RunFolder(copy_run(halfway_run, tmp_path / "run"))
    raw = {"spots": Path(os.readlink(place.work / "data/spots"))}
    training.remove_tree(place.path / "view")  # back to where the index was accepted
    training.remove_tree(place.work)
    (place.path / "scratch").rename(place.work)
    count = 0

    def crashing(self: Path, target: Path, real=Path.rename) -> Path:
        nonlocal count
        count += 1
        if count == 1 + step // 2 and step % 2 == 0:
            raise KeyboardInterrupt
        moved = real(self, target)
        if count == 1 + step // 2:
            raise KeyboardInterrupt
        return moved

    monkeypatch.setattr(Path, "rename", crashing)
    with pytest.raises(KeyboardInterrupt):
        training.begin_training(place, raw, "spots", "diagnosis", allow_links=True)
    monkeypatch.undo()
    (place.work / "data").mkdir(parents=True, exist_ok=True)  # as laying out the run folder does
    training.begin_training(place, raw, "spots", "diagnosis", allow_links=True)
    work_files = {p.relative_to(place.work) for p in place.work.rglob("*")}
    assert Path(TRAINING) in work_files
    assert Path(TEST) not in work_files
    assert Path("Datapath/label_dict.json") in work_files
    assert (place.path / "scratch/make_index.py").is_file()
    assert sorted(os.listdir(place.path / "view")) == ["spots"]
    assert not [p.name for p in place.path.iterdir() if p.name.endswith(".part")]


def test_files_of_both_sides_are_refused(build, tmp_path: Path) -> None:
    """One archive named whole by a training case, and item by item by test cases."""
    data = tmp_path / "stack"
    data.mkdir()
    import numpy as np

    items = np.random.default_rng(0).integers(0, 255, (30, 12, 12)).astype(np.uint8)
    np.savez(data / "many.npz", images=items[4:])
    np.savez(data / "few.npz", images=items[:4])
    places = [*(f"few.npz#images[{n}]" for n in range(4)), *(f"many.npz#images[{n}]" for n in range(25)), "few.npz"]
    rows = [
        {"image_path": f"data/stack/{place}", "labels": ["ab"[n % 2]], "patient": str(n)}
        for n, place in enumerate(places)
    ]
    files = {
        TRAINING: json.dumps(rows[10:]),
        TEST: json.dumps(rows[:10]),
        "Datapath/label_dict.json": json.dumps({"a": 0, "b": 1}),
    }
    result: Result = build(
        data=data, selection=[choice("stack")], index=[write(files), say("Indexed.")], max_iterations=0
    )
    check_end(result, "failed", "1 files belong to training and to test cases at once", "data/stack/few.npz")


def test_a_run_that_was_killed_can_still_be_audited(halfway_run: Path, tmp_path: Path) -> None:
    """While a run is at work its test cases are in `locked/` alone."""
    place = copy_run(halfway_run, tmp_path / "run")
    (place / "work" / TEST).unlink()
    result = CliRunner().invoke(app, ["data", "audit", str(place), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["opened"] == 60
