"""The prompts of the roles: Markdown files with sections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from m3b.agents.roles import BUILTIN_ROLES, Role
from m3b.errors import DataError

REQUIRED_SECTIONS = ("Role", "Task", "Example", "Reflection")
SECOND_TRAINING = "Second training"
"""Heading of the parts on a second training, which runs with a search over plans do not have."""


def read_sections(file: Path) -> dict[str, str]:
    """Return the sections of a prompt file by heading.

    Raises:
        DataError: the file or one of its four sections is missing.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"The prompt {file} cannot be read: {error}.") from error
    parts = re.split(r"^# (\w+)\s*$", text, flags=re.MULTILINE)
    text_by_heading = {heading: body.strip() for heading, body in zip(parts[1::2], parts[2::2], strict=True)}
    missing = [name for name in REQUIRED_SECTIONS if not text_by_heading.get(name)]
    if missing:
        raise DataError(f"The prompt {file} lacks the sections {', '.join(missing)}.")
    return text_by_heading


def build_system_prompt(
    folder: Path,
    roles: Sequence[Role],
    *,
    with_examples: bool,
    extra_prompts: Path | None = None,
    tool_prompts: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> str:
    """Return the system prompt of one role, or of one agent with several roles.

    Args:
        folder: holds `common.md` and one file for each role.
        extra_prompts: a folder of additional texts with the same file names; each is appended to the prompt it adds to.
        tool_prompts: names of files in `folder` on tools that only some runs have; they come last.
        left_out: headings (`## ...`) of parts that do not hold in this run.
        with_examples: whether the worked example is included (False is the paper's few-shot ablation).
    """
    parts = [(folder / "common.md").read_text(encoding="utf-8").strip() + _read_extra_prompt(extra_prompts, "common")]
    if len(roles) > 1:
        names = ", ".join(role.title for role in roles)
        parts.append(
            f"You take the parts of {names}, one after the other. Each message that begins with `Stage:` says which."
        )
    for role in roles:
        heading = f"# {role.title}\n" if len(roles) > 1 else ""
        role_prompt = _drop_parts(_role_prompt(folder, role, with_examples=with_examples), left_out)
        parts.append(f"{heading}{role_prompt}{_read_extra_prompt(extra_prompts, role.name)}".strip())
    parts += [(folder / name).read_text(encoding="utf-8").strip() for name in tool_prompts]
    return "\n\n".join(parts)


def _role_prompt(folder: Path, role: Role, *, with_examples: bool) -> str:
    """Return the prompt of a role from its file, or the prompt that a user's role carries."""
    if _is_user_role(folder, role):
        return role.prompt.strip()
    section_texts = read_sections(folder / f"{role.name}.md")
    example = f"\n\n## Example of the work\n{section_texts['Example']}" if with_examples else ""
    return f"{section_texts['Role']}\n\n{section_texts['Task']}{example}"


def _drop_parts(text: str, headings: Sequence[str]) -> str:
    """Return a text without the parts that have one of these headings of the second level."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return "".join(
        part for part in parts if part.partition("\n")[0].removeprefix("## ").strip() not in headings
    ).strip()


def _is_user_role(folder: Path, role: Role) -> bool:
    return role not in BUILTIN_ROLES and not (folder / f"{role.name}.md").is_file()


def has_prompt(folder: Path, role: Role, extra_prompts: Path | None) -> bool:
    """Return whether there is a prompt for a role."""
    files = [prompt_folder / f"{role.name}.md" for prompt_folder in (folder, extra_prompts) if prompt_folder]
    return bool(role.prompt.strip()) or any(file.is_file() for file in files)


def _read_extra_prompt(extra_prompts: Path | None, name: str) -> str:
    """Return the user's addition to a prompt, with the paragraph break before it."""
    file = extra_prompts / f"{name}.md" if extra_prompts else None
    return f"\n\n{file.read_text(encoding='utf-8').strip()}" if file and file.is_file() else ""


def read_reflection(folder: Path, role: Role, left_out: Sequence[str] = ()) -> str:
    """Return the reflection prompt, sent once if an artifact is accepted with warnings; '' for none.

    Args:
        left_out: as in `build_system_prompt`.
    """
    if _is_user_role(folder, role):
        return role.reflection.strip()
    return _drop_parts(read_sections(folder / f"{role.name}.md")["Reflection"], left_out)
