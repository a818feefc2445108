"""The roles and what they are told before anything else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from m3b.agents.artifacts import KINDS
from m3b.agents.prompts import SECTIONS, reflection, sections, system_prompt
from m3b.agents.replies import given_up
from m3b.agents.roles import SINGLE, STAGES, Role
from m3b.errors import DataError
from m3b.resources import resources_dir
from m3b.run.stages import SHIPPED
from m3b.tools import TOOLS

PROMPTS = resources_dir() / "prompts"
roles = pytest.mark.parametrize("role", STAGES, ids=lambda role: role.name)


def test_the_roles_stand_in_the_order_of_their_work() -> None:
    assert [role.name for role in STAGES] == ["task_manager", "data_engineer", "module_architect", "model_trainer"]
    assert [(one.role, one.artifact) for one in SHIPPED] == list(zip(STAGES, KINDS.values(), strict=True))


@pytest.mark.parametrize("role", [*STAGES, SINGLE], ids=lambda role: role.name)
def test_tools_of_a_role_exist(role: Role) -> None:
    assert set(role.tools) <= set(TOOLS)
    assert len(set(role.tools)) == len(role.tools)


def test_who_may_do_what() -> None:
    assert not {"write_files", "edit_files", "copy_files", "run_script"} & set(STAGES[0].tools), "the first only looks"
    assert all("run_script" in role.tools for role in STAGES[1:])
    assert set(SINGLE.tools) == set(TOOLS) == {tool for role in STAGES for tool in role.tools}


@roles
def test_every_prompt_has_its_sections(role: Role) -> None:
    found = sections(PROMPTS / f"{role.name}.md")
    assert set(found) == set(SECTIONS)
    assert all(found.values())


@roles
def test_a_system_prompt(role: Role) -> None:
    text = system_prompt(PROMPTS, [role], examples=True)
    part = sections(PROMPTS / f"{role.name}.md")
    common = (PROMPTS / "common.md").read_text().strip()
    assert text.startswith(common)
    assert [text.index(part[name]) for name in ("Role", "Task", "Example")] == sorted(
        text.index(part[name]) for name in ("Role", "Task", "Example")
    )
    assert part["Reflection"] not in text, "asked when its time has come"
    assert len(text) < 8000, "read with every single request"


@roles
def test_a_role_knows_how_to_give_up(role: Role) -> None:
    """The very reply that the prompt names is understood."""
    shown = next(line for line in system_prompt(PROMPTS, [role], examples=False).splitlines() if "given_up" in line)
    assert given_up(shown[shown.index("{") : shown.index("}") + 1]).startswith("<what was found")


@roles
def test_examples_can_be_left_out(role: Role) -> None:
    part = sections(PROMPTS / f"{role.name}.md")
    text = system_prompt(PROMPTS, [role], examples=False)
    assert part["Task"] in text
    assert part["Example"] not in text
    assert "Example of the work" not in text


@roles
def test_prompts_name_only_tools_that_the_role_has(role: Role) -> None:
    text = "".join(sections(PROMPTS / f"{role.name}.md").values())
    assert not [tool for tool in TOOLS if tool in text and tool not in role.tools]


@roles
def test_reflection_is_a_question(role: Role) -> None:
    assert "?" in reflection(PROMPTS, role)


def test_one_agent_with_all_four_parts() -> None:
    text = system_prompt(PROMPTS, STAGES, examples=True)
    places = [text.index(f"# {role.title}\n") for role in STAGES]
    assert places == sorted(places)
    assert "`Stage:`" in text
    for role in STAGES:
        assert sections(PROMPTS / f"{role.name}.md")["Task"] in text


@roles
def test_the_prefix_is_the_same_each_time(role: Role) -> None:
    assert system_prompt(PROMPTS, [role], examples=True) == system_prompt(PROMPTS, [role], examples=True)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_prompt_that_lacks_a_section(tmp_path: Path, name: str) -> None:
    file = tmp_path / "task_manager.md"
    file.write_text("".join(f"# {section}\ntext\n" for section in SECTIONS if section != name) + f"# {name}\n\n")
    with pytest.raises(DataError, match=f"lacks the sections {name}"):
        sections(file)


def test_a_prompt_that_is_not_there(tmp_path: Path) -> None:
    shutil.copy(PROMPTS / "common.md", tmp_path)
    with pytest.raises(DataError, match=r"task_manager\.md cannot be read"):
        system_prompt(tmp_path, STAGES[:1], examples=True)
