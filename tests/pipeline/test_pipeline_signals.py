"""Ctrl-C and a polite kill in every phase of a run: `cancelled`, exit code 1, nothing left running, and resumable."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pipeline_kit import (
    PROJECT,
    REQUEST,
    check_left,
    copy_run,
    left_running,
    m3b_command,
    plugin,
    wait_until,
)  # fmt: skip

from m3b.journal import read_journal

AUDIT_LONG = '''
MANY = """
import json
from pathlib import Path
rows = [{"image_path": f"data/big/i{n}.png", "labels": [("plain", "spot")[n % 2]], "patient": str(n)} for n in range(400)]
Path("Datapath").mkdir(exist_ok=True)
for split, part in (("train", rows[:300]), ("test", rows[300:])):
    Path(f"Datapath/{split}.json").write_text(json.dumps(part))
Path("Datapath/label_dict.json").write_text('{"plain": 0, "spot": 1}')
"""
acts = play("big", index=[combine_calls(write({"m.py": MANY}), script("python m.py")), say("Indexed.")])
'''
SLOW_LOADER = "import time\nprint('probing', flush=True)\ntime.sleep(987)\n" + PROJECT["Datapath/dataloader.py"]
SLOW_PREDICT = "import time\ntime.sleep(987)\n" + PROJECT["deliver/predict.py"]


def stage_said(run: Path, words: str) -> bool:
    return any(e.kind == "stage" and words in e.data["text"] for e in read_journal(run / "journal.jsonl"))


def confined(run: Path, command: str) -> Callable[[], bool]:
    return lambda: any(command in line for line in left_running(run))


# What the model does; whether the run begins halfway; when the phase has begun; the role that is at work.
PHASES = {
    "selection": ("acts = play(selection=[lambda m, t: time.sleep(987)])", False, "asking", "task_manager"),
    "index script": ("acts = play(index=[script('sleep 987')])", False, "sleep 987", "data_engineer"),
    "audit": (AUDIT_LONG, False, "auditing", "data_engineer"),
    "probe": (
        f"acts = play(module=[write({{**PROJECT, 'Datapath/dataloader.py': {SLOW_LOADER!r}}}), say('In place.')])",
        False,
        "probe.py",
        "module_architect",
    ),
    "training": (
        "acts = play(model=[script('python train.py && sleep 987 && python export.py')])", True, "sleep 987",
        "model_trainer",
    ),
    "predict": (
        f"acts = play(model=[combine_calls(write({{'deliver/predict.py': {SLOW_PREDICT!r}}}), script(TRAIN)), "
        "say('Done.')])",
        True, "m3b_worker.py", "model_trainer",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 names of one large noisy picture, so that opening them all takes a while."""
    folder = tmp_path_factory.mktemp("data") / "big"
    folder.mkdir()
    noise = np.random.default_rng(0).integers(0, 255, (1400, 1400), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "i0.png", compress_level=1)
    for number in range(1, 400):
        (folder / f"i{number}.png").hardlink_to(folder / "i0.png")
    return folder


def phase_condition(run: Path, mark: str) -> Callable[[], bool]:
    if mark == "asking":
        return lambda: any(e.kind == "prompt" for e in read_journal(run / "journal.jsonl"))
    if mark == "auditing":
        return lambda: stage_said(run, "auditing")
    return confined(run, mark)


CASES = [(phase, signal.SIGINT) for phase in PHASES] + [("index script", signal.SIGTERM), ("predict", signal.SIGTERM)]
QUICK = ("selection-SIGINT", "index script-SIGTERM", "training-SIGINT")
"""One of each: while the model is asked, while a script runs, while a model is trained."""


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        pytest.param(
            phase,
            number,
            id=f"{phase}-{number.name}",
            marks=[] if f"{phase}-{number.name}" in QUICK else [pytest.mark.slow],
        )
        for phase, number in CASES
    ],
)
def test_stop_in_each_phase(
    tmp_path: Path, spots: Path, big: Path, halfway_run: Path, phase: str, number: signal.Signals
) -> None:
    source, halfway, mark, role = PHASES[phase]
    env = plugin(tmp_path / "plugin", source)
    run = tmp_path / "run"
    if halfway:
        copy_run(halfway_run, run)
        command = m3b_command("resume", run, "--llm", "played:x", "--json")
    else:
        data = big if phase == "audit" else spots
        command = m3b_command("run", REQUEST, "--llm", "played:x", "--data", data, "--out", run, "--json")
    process = subprocess.Popen(
        command,
        env=env,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(phase_condition(run, mark), 60, f"{phase} has begun")
        process.send_signal(number)
        out, err = process.communicate(timeout=900)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, err
    assert "Traceback" not in err
    result = json.loads(out)
    assert result["status"] == "cancelled"
    assert f"m3b resume {run}" in result["reason"]
    assert result["roles"][role]["status"] == "cancelled"
    assert result["model_dir"] is None
    check_left(run, "cancelled")


def test_stop_and_go_on(tmp_path: Path, halfway_run: Path) -> None:
    """What was cancelled goes on with the same command."""
    env = plugin(tmp_path / "plugin", "acts = play(model=[script('sleep 987'), *play()['model']])")
    run = copy_run(halfway_run, tmp_path / "run")
    command = m3b_command("resume", run, "--llm", "played:x", "-q")
    process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(confined(run, "sleep 987"), 60, "the script runs")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1
    finally:
        process.kill()
    ended = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    events = check_left(run, "completed")
    assert len([e for e in events if e["kind"] == "run_started"]) == 3
