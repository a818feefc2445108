"""The paper kit of a real run by command and in Python, its verification, and the refusal of a failed run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "pipeline"))

from pipeline_kit import REQUEST, actor, copy_run, make_spots, play

from m3b import Pipeline, UsageError, verify, write_paper_kit
from m3b.cli.app import app
from m3b.errors import Authentication
from m3b.testing.scripted_model import llm_error


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("paper")
    result = Pipeline(actor(play()), data=[make_spots(top / "spots")], out=top / "run").run(REQUEST)
    assert result.status == "completed", result.reason
    return top / "run"


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    return copy_run(finished, tmp_path / "run")


def call(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_a_kit_is_written_and_verified(run_dir: Path, tmp_path: Path) -> None:
    """Outside of the run, it is verified by name; as `paper` in the run, always."""
    kit = tmp_path / "kit"
    exit_code, output = call("report", run_dir, "--paper", kit)
    assert exit_code == 0, output
    assert str(kit) in output
    assert (
        "40 cases of 40 patients were assigned to training and 20 cases of 20 patients"
        in (kit / "methods.md").read_text()
    )
    write_paper_kit(run_dir, run_dir / "paper")
    for arguments in ((kit,), (run_dir, "--paper", kit)):
        exit_code, output = call("verify", *arguments, "--json")
        verification = json.loads(output)
        assert exit_code == 0, verification
        assert "the paper kit" in verification["findings"][-1]["what"]
        assert {finding["state"] for finding in verification["findings"]} == {"same"}

    file = run_dir / "paper/results.md"
    primary = json.loads((run_dir / "run.json").read_text())["result"]["primary"]
    text = file.read_text(encoding="utf-8")
    assert f"{primary['value']:.3f}" in text
    file.write_text(text.replace(f"{primary['value']:.3f}", "0.999"), encoding="utf-8")
    exit_code, output = call("verify", run_dir, "--json")
    assert exit_code == 1
    codes = {finding["code"] for finding in json.loads(output)["findings"] if finding["state"] == "changed"}
    assert codes == {"paper_number_changed"}


def test_a_moved_run_is_named_with_its_kit(finished: Path, run_dir: Path, tmp_path: Path) -> None:
    kit = write_paper_kit(run_dir, tmp_path / "kit").folder
    moved = copy_run(run_dir, tmp_path / "moved")
    (run_dir / "run.json").unlink()
    with pytest.raises(UsageError):
        verify(kit)
    assert verify(moved, paper=kit).ok


def test_a_failed_run_is_refused(finished: Path, tmp_path: Path) -> None:
    acts = play(model=[llm_error(Authentication, "The key is refused.")])
    data = finished.parent / "spots"
    result = Pipeline(actor(acts), data=[data], out=tmp_path / "run").run(REQUEST)
    assert result.status == "failed"
    exit_code, _ = call("report", tmp_path / "run", "--paper", tmp_path / "kit")
    assert exit_code != 0
    assert not (tmp_path / "kit").exists()
    with pytest.raises(UsageError, match="The key is refused"):
        write_paper_kit(tmp_path / "run", tmp_path / "kit")
