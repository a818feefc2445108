"""The roles and what they are told before anything else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from m3b.agents.artifacts import ARTIFACT_CLASSES, parse_give_up
from m3b.agents.prompts import REQUIRED_SECTIONS, SECOND_TRAINING, build_system_prompt, read_reflection, read_sections
from m3b.agents.roles import BUILTIN_ROLES, MODEL_TRAINER, SINGLE_AGENT, Role
from m3b.errors import DataError
from m3b.resources import get_resources_folder
from m3b.run.stages import BUILTIN_STAGES
from m3b.tools import TOOLS

PROMPTS = get_resources_folder() / "prompts"
LEFT_OUT: tuple[tuple[str, ...], ...] = ((), (SECOND_TRAINING,))
roles = pytest.mark.parametrize("role", BUILTIN_ROLES, ids=lambda role: role.name)


def test_the_roles_stand_in_the_order_of_their_work() -> None:
    assert [role.name for role in BUILTIN_ROLES] == [
        "task_manager",
        "data_engineer",
        "module_architect",
        "model_trainer",
    ]
    assert [(stage.role, stage.artifact) for stage in BUILTIN_STAGES] == list(
        zip(BUILTIN_ROLES, ARTIFACT_CLASSES.values(), strict=True)
    )


@pytest.mark.parametrize("role", [*BUILTIN_ROLES, SINGLE_AGENT], ids=lambda role: role.name)
def test_tools_of_a_role_exist(role: Role) -> None:
    assert set(role.tools) <= set(TOOLS)
    assert len(set(role.tools)) == len(role.tools)


def test_who_may_do_what() -> None:
    assert not {"write_files", "edit_files", "copy_files", "run_script"} & set(BUILTIN_ROLES[0].tools), (
        "the first only looks"
    )
    assert all("run_script" in role.tools for role in BUILTIN_ROLES[1:])
    assert set(SINGLE_AGENT.tools) == set(TOOLS) == {tool for role in BUILTIN_ROLES for tool in role.tools}


@roles
def test_every_prompt_has_its_sections(role: Role) -> None:
    sections = read_sections(PROMPTS / f"{role.name}.md")
    assert set(sections) == set(REQUIRED_SECTIONS)
    assert all(sections.values())


@roles
def test_a_system_prompt(role: Role) -> None:
    text = build_system_prompt(PROMPTS, [role], with_examples=True)
    part = read_sections(PROMPTS / f"{role.name}.md")
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
    example_line = next(
        line for line in build_system_prompt(PROMPTS, [role], with_examples=False).splitlines() if "given_up" in line
    )
    assert parse_give_up(example_line[example_line.index("{") : example_line.index("}") + 1]).startswith(
        "<what was found"
    )


@roles
def test_examples_can_be_left_out(role: Role) -> None:
    part = read_sections(PROMPTS / f"{role.name}.md")
    text = build_system_prompt(PROMPTS, [role], with_examples=False)
    assert part["Task"] in text
    assert part["Example"] not in text
    assert "Example of the work" not in text


@roles
def test_prompts_name_only_tools_that_the_role_has(role: Role) -> None:
    text = "".join(read_sections(PROMPTS / f"{role.name}.md").values())
    assert not [tool for tool in TOOLS if tool in text and tool not in role.tools]


@roles
def test_reflection_is_a_question(role: Role) -> None:
    assert "?" in read_reflection(PROMPTS, role)


def test_a_run_with_a_search_is_told_nothing_of_a_second_training() -> None:
    for texts in (
        [build_system_prompt(PROMPTS, BUILTIN_ROLES, with_examples=True, left_out=left_out) for left_out in LEFT_OUT],
        [read_reflection(PROMPTS, MODEL_TRAINER, left_out) for left_out in LEFT_OUT],
    ):
        whole, shortened = texts
        assert SECOND_TRAINING.casefold() in whole.casefold()
        assert SECOND_TRAINING.casefold() not in shortened.casefold()
        assert whole.startswith(shortened[:40])
        assert shortened.strip()
    text = build_system_prompt(PROMPTS, [MODEL_TRAINER], with_examples=True, left_out=[SECOND_TRAINING])
    assert read_sections(PROMPTS / "model_trainer.md")["Example"] in text, "only that part is left out"


def test_one_agent_with_all_four_parts() -> None:
    text = build_system_prompt(PROMPTS, BUILTIN_ROLES, with_examples=True)
    places = [text.index(f"# {role.title}\n") for role in BUILTIN_ROLES]
    assert places == sorted(places)
    assert "`Stage:`" in text
    for role in BUILTIN_ROLES:
        assert read_sections(PROMPTS / f"{role.name}.md")["Task"] in text


@roles
def test_the_prefix_is_the_same_each_time(role: Role) -> None:
    assert build_system_prompt(PROMPTS, [role], with_examples=True) == build_system_prompt(
        PROMPTS, [role], with_examples=True
    )


@pytest.mark.parametrize("name", REQUIRED_SECTIONS)
def test_a_prompt_that_lacks_a_section(tmp_path: Path, name: str) -> None:
    file = tmp_path / "task_manager.md"
    file.write_text(
        "".join(f"# {section}\ntext\n" for section in REQUIRED_SECTIONS if section != name) + f"# {name}\n\n"
    )
    with pytest.raises(DataError, match=f"lacks the sections {name}"):
        read_sections(file)


def test_a_prompt_that_is_not_there(tmp_path: Path) -> None:
    shutil.copy(PROMPTS / "common.md", tmp_path)
    with pytest.raises(DataError, match=r"task_manager\.md cannot be read"):
        build_system_prompt(tmp_path, BUILTIN_ROLES[:1], with_examples=True)
