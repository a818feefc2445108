"""The keep-or-discard loop with a scripted model: what is kept, what is deleted, and that a killed run goes on."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from program_kill_kit import KillingModel, kill_program, wait_for

from m3b.bench.systems import CellJob, CellOutcome
from m3b.bench.systems.autoresearch_agent import FILE_PATTERN
from m3b.bench.systems.external_systems import AUTORESEARCH, REACT
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import say

MAKE = """
import json, struct
from pathlib import Path
out = Path("Deliver")
out.mkdir()
header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
(out / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
(out / "config.json").write_text(json.dumps({"task": "diagnosis", "classes": ["a", "b"], "multi_label": False}))
(out / "predict.py").write_text("print('no')")
(out / "README.md").write_text("# x")
(out / "requirements.txt").write_text("numpy")
"""
"""A deliverable without libraries, whose import takes longer than the experiment."""


@pytest.fixture
def job(tmp_path: Path) -> CellJob:
    data = tmp_path / "spots"
    data.mkdir()
    (data / "table.csv").write_text("image,label\na.png,1\n")
    card = {"name": "Spots", "description": "Invented.", "path": str(data)}
    options = {"max_actions": 9, "train_minutes": 6.0}
    return CellJob(tmp_path / "cell", "Tell spots apart.", [card], "anthropic:some-model", options)


def experiment(figure: Any, *lines: str, note: str = "Another change.") -> Any:
    """A reply with an experiment that delivers a model and claims a figure; `lines` are run after that."""
    claim = f"echo '{json.dumps({'metric': 'auroc', 'value': figure})}' > CLAIM.json"
    script = "\n".join(["python make.py", claim, "echo ran $EXPERIMENT_SECONDS", *lines])
    return say(
        f"{note}\n\nFILE: make.py\n````python\n{MAKE.strip()}\n````\nFILE: experiment.sh\n````\n{script}\n````\n"
    )


def run(job: CellJob, model: ScriptedModel, *, restart: bool = False) -> CellOutcome:
    system = replace(AUTORESEARCH, connect=lambda spec: model)
    return system.restart(job) if restart else system.run(job)


def load_log(job: CellJob) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((job.folder / "run" / "work" / "autoresearch.json").read_text())
    return state


def list_outcomes(job: CellJob) -> list[tuple[str, float | None]]:
    return [(item["outcome"], item["figure"]) for item in load_log(job)["experiments"]]


def last_text(model: ScriptedModel) -> str:
    return model.requests[-1][0][-1].text


def test_only_what_raises_the_figure_is_kept(job: CellJob) -> None:
    model = ScriptedModel(
        [
            say("LOOK: ls data/spots"),
            experiment(0.7, note="A first network."),
            experiment(0.6, note="Fewer layers."),
            experiment("nan", note="Nonsense."),
            experiment(0.9, "exit 3", note="It breaks."),
            experiment(0.8, "cat data/spots/table.csv", note="More layers."),
            say("DONE"),
        ]
    )
    ended = run(job, model)
    assert ended.status == "completed", ended.reason
    assert ended.claimed == {"name": "auroc", "value": 0.8}
    assert ended.usage["requests"] == len(model.requests) == 7
    assert list_outcomes(job) == [
        ("kept", 0.7),
        ("discarded", 0.6),
        ("failed", None),
        ("failed", 0.9),
        ("kept", 0.8),
    ]
    assert model.requests[1][0][-1].text.endswith("table.csv\n"), "the answer to LOOK"
    assert "2. discarded, figure 0.6" in last_text(model)
    assert "Fewer layers." in last_text(model)
    assert "image,label" in last_text(model), "the output of the last experiment"
    assert "ran 60" in last_text(model), "six experiments share six minutes"
    work = job.folder / "run" / "work"
    assert not (work / "trial").exists()
    assert (work / "best" / "data").is_symlink()


def test_files_are_laid_over_the_best_experiment(job: CellJob) -> None:
    change = say("Only the claim.\nFILE: CLAIM.txt\n```\n0.9\n```\nFILE: experiment.sh\n```\npython make.py\n"
                 "echo '{\"metric\": \"auroc\", \"value\": '$(cat CLAIM.txt)'}' > CLAIM.json\n```\n")  # fmt: skip
    escape = say("FILE: ../../bin/launcher.py\n```\npass\n```\n")
    ended = run(job, ScriptedModel([experiment(0.5), change, escape, say("No idea."), say("DONE")]))
    assert ended.claimed == {"name": "auroc", "value": 0.9}
    assert list_outcomes(job) == [("kept", 0.5), ("kept", 0.9)]
    assert (job.folder / "run" / "bin" / "launcher.py").read_text() != "pass\n"


def test_an_experiment_ends_with_its_time(job: CellJob) -> None:
    quick = replace(job, options={**job.options, "train_minutes": 0.1})
    model = ScriptedModel([experiment(0.9, "sleep 600"), say("DONE")])
    ended = run(quick, model)
    assert ended.status == "failed"
    assert list_outcomes(quick) == [("too long", None)]
    assert "ended after 1 s" in last_text(model)


def test_a_request_is_declined(job: CellJob) -> None:
    ended = run(job, ScriptedModel([say('LOOK: echo "no spots" > DECLINED.txt'), say("DONE")]))
    assert (ended.status, ended.reason) == ("no_dataset", "no spots")


@pytest.mark.confined
def test_a_killed_run_goes_on(job: CellJob) -> None:
    steps = [experiment(0.5), say("LOOK: echo a clue"), say("LOOK: echo never heard")]
    first = KillingModel(steps, job.folder, kill_at=3)
    assert run(job, first).status == "completed", "what was kept before is delivered"
    assert first.kill_count > 0
    second = ScriptedModel([experiment(0.7), say("DONE")])
    ended = run(job, second, restart=True)
    assert ended.claimed == {"name": "auroc", "value": 0.7}
    assert second.requests[0][0] == first.requests[2][0], "the request without an answer is sent again, and no other"
    assert list_outcomes(job) == [("kept", 0.5), ("kept", 0.7)]


def test_react_does_not_go_on(job: CellJob) -> None:
    first = KillingModel([say("I forgot the format.")], job.folder, kill_at=2)
    assert replace(REACT, connect=lambda spec: first).run(job).kind == "crashed"
    second = ScriptedModel([say("I forgot the format.")], repeat=True)
    replace(REACT, connect=lambda spec: second).restart(job)
    assert second.requests[0] == first.requests[0]
    assert REACT.is_resumable is False
    assert AUTORESEARCH.is_resumable is True, "as the tests beside this show"


@pytest.mark.confined
def test_a_run_killed_in_an_experiment_repeats_only_that(job: CellJob) -> None:
    work = job.folder / "run" / "work"
    wait = "if [ ! -f ../began ]; then touch ../began; sleep 600; fi"
    model = ScriptedModel([experiment(0.5, wait), say("DONE")])

    def kill_when_it_runs() -> None:
        if wait_for(work / "began"):
            kill_program(job.folder)

    killer = threading.Thread(target=kill_when_it_runs)
    killer.start()
    assert run(job, model).status == "failed"
    killer.join()
    ended = run(job, model, restart=True)
    assert ended.claimed == {"name": "auroc", "value": 0.5}
    assert len(model.requests) == 2, "its reply was on disk"


def test_files_in_replies() -> None:
    text = "FILE: a.py\n```python\nx = 1\n```\nthen\nFILE: b/c.sh\n````\necho '```'\n````\nFILE: no fence\n"
    assert [(name, body) for name, _, body in FILE_PATTERN.findall(text)] == [
        ("a.py", "x = 1"),
        ("b/c.sh", "echo '```'"),
    ]
