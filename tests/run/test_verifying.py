"""`m3b verify`: each kind of edit of a finished run, or of its model alone, is named."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pipeline"))

from pipeline_kit import REQUEST, actor, copy_run, make_spots, play

from m3b import Pipeline, UsageError, verify
from m3b.cli.app import app
from m3b.journal import JournalError, digest_line, read_journal


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("verify")
    result = Pipeline(actor(play()), data=[make_spots(top / "spots")], out=top / "run").run(REQUEST)
    assert result.status == "completed", result.reason
    return top / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return copy_run(finished, tmp_path / "copy")


def changed(place: Path, expect: str = "") -> dict[str, str]:
    return {
        comparison.subject: comparison.detail
        for comparison in verify(place, expect).comparisons
        if comparison.state == "changed"
    }


def test_a_finished_run_is_what_it_was_wherever_it_lies(finished: Path, run: Path) -> None:
    for place in (finished, run):
        verification = verify(place)
        assert verification.ok
        assert [comparison.state for comparison in verification.comparisons] == ["same"] * len(verification.comparisons)
        assert verification.fingerprint == digest_line(
            (run / "journal.jsonl").read_bytes().splitlines(keepends=True)[-1]
        )


def test_every_line_is_bound_to_the_one_before(finished: Path) -> None:
    before = ""
    for line in (finished / "journal.jsonl").read_bytes().splitlines(keepends=True):
        assert json.loads(line)["prev"] == before
        before = digest_line(line)


def rewrite(file: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


def swap(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def better(file: Path) -> None:
    """The answers of an oracle in place of the measured ones."""
    rows = json.loads(file.read_text())
    for row in rows:
        row["probabilities"] = {name: 1.0 - value for name, value in row["probabilities"].items()}
    file.write_text(json.dumps(rows, indent=1))


def test_answers_that_were_exchanged_with_their_hash_give_another_figure(run: Path) -> None:
    """Whoever edits the hash too meets the chain; and the figure is computed once more from the answers."""
    better(run / "locked/predictions.json")
    assert "differs" in changed(run)["the figures, computed once more"]


def test_a_damaged_chain_is_not_gone_on_with(run: Path) -> None:
    swap(run / "journal.jsonl", "Indexed.", "Ignored.")
    with pytest.raises(JournalError, match="the line before"):
        list(read_journal(run / "journal.jsonl"))


def test_a_journal_that_was_made_anew_meets_the_fingerprint_kept_elsewhere(run: Path) -> None:
    """The chain alone cannot show it: all lines agree with each other, and other digests may have been made anew too."""
    run_fingerprint, model_fingerprint = verify(run).fingerprint, verify(run / "model").fingerprint
    lines, before = [], ""
    for line in (run / "journal.jsonl").read_text().replace("Indexed.", "Ignored.").splitlines():
        lines.append(json.dumps({**json.loads(line), "prev": before}, ensure_ascii=False).encode() + b"\n")
        before = digest_line(lines[-1])
    (run / "journal.jsonl").write_bytes(b"".join(lines))
    assert "the journal" not in changed(run)
    assert "the fingerprint that was expected" in changed(run, run_fingerprint)
    assert "is not the one that model/provenance.json names" in changed(run / "model")["the end of the journal"]
    assert not changed(run / "model", model_fingerprint).get("the fingerprint that was expected")


def test_a_model_alone(run: Path, tmp_path: Path) -> None:
    place = tmp_path / "given"
    shutil.copytree(run / "model", place)
    verification = verify(place)
    assert verification.ok
    assert [comparison.state for comparison in verification.comparisons] == ["same", "unknown"], "no run lies around it"
    codes = {comparison.code: comparison.state for comparison in verify(run / "model").comparisons}
    assert set(codes.values()) == {"same"}, codes
    assert {"model_files", "result", "delivered_model"} <= set(codes), "the run around it is compared too"
    (place / "README.md").write_text("mine")
    assert verify(place, verification.fingerprint[:12]).ok, "the card belongs to people"
    assert not verify(place, verification.fingerprint[:11]).ok, "too short to tell anything"
    (place / "predict.py").write_text("print('other')")
    assert "predict.py was changed" in changed(place)["the files, against provenance.json"]
    (place / "provenance.json").unlink()
    assert not verify(place).ok


def test_the_command(run: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(run)])
    assert result.exit_code == 0, result.output
    assert "each bound to the one before" in result.output
    (run / "model/model.safetensors").write_bytes(b"x")
    result = CliRunner().invoke(app, ["verify", str(run), "--json"])
    assert result.exit_code == 1
    assert not json.loads(result.output)["ok"]
    assert CliRunner().invoke(app, ["verify", str(run / "work")]).exit_code != 0
    with pytest.raises(UsageError):
        verify(run / "nothing")
