"""What is refused of a task family, a plug-in or a template from outside, and in which words."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from m3b import Pipeline
from m3b.errors import DataError
from m3b.tasks import get_family
from m3b.tasks.templates import find_user_templates, list_templates_for
from m3b.workspace import Workspace
from warm.commands import run_python

EXAMPLE = Path(__file__).parents[2] / "examples" / "landmarks"


def template(folder: Path, *, task: str = "") -> Path:
    """A folder that looks like a training project."""
    folder.mkdir(parents=True)
    for name in ("README.md", "plan.py", "train.py", "export.py"):
        (folder / name).write_text("# mine\n")
    if task:
        (folder / "template.json").write_text(f'{{"task": "{task}"}}')
    return folder


def run(code: str, path: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what is registered stays registered."""
    return run_python("-c", code, env={**os.environ, "PYTHONPATH": path}, server="m3b")


def test_a_family_is_registered_once_under_its_name() -> None:
    code = (
        "from landmarks import FAMILY, Landmarks; from m3b import register_task; from m3b.tasks import get_family, names\n"
        "assert register_task(FAMILY) is register_task(FAMILY) is get_family('landmarks')\n"
        "assert names()[-1] == 'landmarks'\n"
        "register_task(Landmarks())"
    )
    ran = run(code, str(EXAMPLE))
    assert "ValueError: There is a task family 'landmarks' already" in ran.stderr


def test_a_family_that_is_refused_leaves_nothing_behind() -> None:
    code = (
        "from landmarks import LandmarkRecords, Landmarks; from m3b import MetricTable, register_task\n"
        "from m3b.tasks import get_family, names\n"
        "def refuse(task, table):\n"
        "    records = type('Records', (LandmarkRecords,), {'name': task})()\n"
        "    family = type('Family', (Landmarks,), {'name': task, 'records': records, 'metrics': table})()\n"
        "    try:\n"
        "        register_task(family)\n"
        "    except ValueError:\n"
        "        return\n"
        "    raise AssertionError(task)\n"
        "refuse('diagnosis', Landmarks.metrics)\n"
        "refuse('drawing', MetricTable({'hd95': ()}, 'hd95'))\n"
        "assert get_family('diagnosis').metrics.default_metric == 'auroc'\n"
        "assert 'drawing' not in names()"
    )
    ran = run(code, str(EXAMPLE))
    assert ran.returncode == 0, ran.stderr


def test_a_broken_plug_in_is_warned_of_and_stops_nobody(tmp_path: Path) -> None:
    info = tmp_path / "broken-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[m3b.tasks]\nbroken = no_such_module:FAMILY\n")
    ran = run("from m3b.tasks import names; print(names())", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert "'report'" in ran.stdout
    assert "The task family 'broken' (no_such_module:FAMILY) cannot be loaded: ModuleNotFoundError" in ran.stderr


def test_a_template_says_which_task_it_serves(tmp_path: Path) -> None:
    template(tmp_path / "all" / "my-unet", task="segmentation")
    template(tmp_path / "all" / "diagnosis")
    assert list(find_user_templates(tmp_path / "all")) == ["diagnosis", "my-unet"]
    assert list(find_user_templates(tmp_path / "all" / "my-unet")) == ["my-unet"]
    (tmp_path / "all" / "segmentation").mkdir()
    assert list_templates_for(tmp_path / "all", get_family("segmentation")) == ["my-unet", "segmentation"]
    assert list_templates_for(tmp_path / "all", get_family("diagnosis")) == ["diagnosis"]
    with pytest.raises(DataError, match="No template serves the task report"):
        list_templates_for(tmp_path / "all", get_family("report"))


def test_what_is_wrong_with_a_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither it nor a folder in it has a plan.py"):
        Workspace(templates=tmp_path)
    folder = template(tmp_path / "odd")
    with pytest.raises(DataError, match=r"does not say which task it serves: give it a template.json"):
        Workspace(templates=folder)
    (folder / "template.json").write_text('{"task": "painting"}')
    with pytest.raises(DataError, match="no task 'painting'"):
        Workspace(templates=folder)
    (folder / "template.json").write_text("[]")
    with pytest.raises(DataError, match=r"template.json must be JSON such as"):
        Workspace(templates=folder)
    (folder / "train.py").unlink()
    with pytest.raises(DataError, match=r"lacks train.py"):
        Workspace(templates=folder)


def test_prompts_are_added_to_those_that_there_are(tmp_path: Path) -> None:
    from m3b.agents.prompts import build_system_prompt
    from m3b.agents.roles import DATA_ENGINEER, TASK_MANAGER

    (tmp_path / "data_engineer.md").write_text("Our scanner writes the patient into the folder's name.\n")
    workspace = Workspace(prompts=tmp_path)
    texts = [
        build_system_prompt(workspace.root / "prompts", [role], with_examples=True, extra_prompts=workspace.prompts)
        for role in (DATA_ENGINEER, TASK_MANAGER)
    ]
    assert texts[0].endswith("Our scanner writes the patient into the folder's name.")
    assert "Our scanner" not in texts[1]
    (tmp_path / "trainer.md").write_text("x")
    with pytest.raises(DataError, match=r"holds trainer.md; prompts are added to common"):
        Pipeline("rules", workspace=Workspace(prompts=tmp_path))
