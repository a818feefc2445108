"""Reading the roles' prompts: Markdown files with separable sections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from m3b.agents.roles import Role
from m3b.errors import DataError

SECTIONS = ("Role", "Task", "Example", "Reflection")


def sections(file: Path) -> dict[str, str]:
    """The sections of one prompt file by heading.

    Raises:
        DataError: the file or one of its four sections is missing.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"The prompt {file} cannot be read: {error}.") from error
    parts = re.split(r"^# (\w+)\s*$", text, flags=re.MULTILINE)
    found = {heading: body.strip() for heading, body in zip(parts[1::2], parts[2::2], strict=True)}
    missing = [name for name in SECTIONS if not found.get(name)]
    if missing:
        raise DataError(f"The prompt {file} lacks the sections {', '.join(missing)}.")
    return found


def system_prompt(folder: Path, roles: Sequence[Role], *, examples: bool, added: Path | None = None) -> str:
    """What stands before everything else in the conversation of one role, or of one agent with several.

    Args:
        folder: holds `common.md` and one file a role.
        added: a folder of further texts by the same names, each put behind what it adds to.
        examples: whether the worked example is shown (off is the paper's few-shot ablation).
    """
    parts = [(folder / "common.md").read_text(encoding="utf-8").strip() + _more(added, "common")]
    if len(roles) > 1:
        names = ", ".join(role.title for role in roles)
        parts.append(
            f"You take the parts of {names}, one after the other. Each message that begins with `Stage:` says which."
        )
    for role in roles:
        part = sections(folder / f"{role.name}.md")
        heading = f"# {role.title}\n" if len(roles) > 1 else ""
        body = f"{heading}{part['Role']}\n\n{part['Task']}"
        if examples:
            body += f"\n\n## Example of the work\n{part['Example']}"
        parts.append(body + _more(added, role.name))
    return "\n\n".join(parts)


def _more(added: Path | None, name: str) -> str:
    """What a user adds to a prompt, with the paragraph before it."""
    file = added / f"{name}.md" if added else None
    return f"\n\n{file.read_text(encoding='utf-8').strip()}" if file and file.is_file() else ""


def reflection(folder: Path, role: Role) -> str:
    """What is asked once, when a hand-over is accepted with notes."""
    return sections(folder / f"{role.name}.md")["Reflection"]
