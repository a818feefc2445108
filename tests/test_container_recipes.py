"""The container recipes: what they copy exists, what they install is declared, and what they call is what the commands take."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from typer.main import get_command

from m3b.cli.app import app

ROOT = Path(__file__).parents[1]
INSTRUCTIONS = ("FROM", "LABEL", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD", "EXPOSE")


def read_dockerfile() -> list[tuple[str, str]]:
    """Return the instructions with their arguments."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, arguments) for name, _, arguments in (line.partition(" ") for line in lines)]


def read_definition() -> dict[str, list[str]]:
    """Return section -> lines of the Apptainer recipe."""
    sections: dict[str, list[str]] = {"": []}
    name = ""
    for line in (ROOT / "m3b.def").read_text().splitlines():
        if line.startswith("%"):
            name = line[1:]
            sections[name] = []
        elif line.strip():
            sections[name].append(line.strip())
    return sections


def parse_call(words: list[str]) -> None:
    """Parse the words of a call of m3b without running it; raises for an unknown command or option."""
    command = get_command(app)
    context = command.make_context("m3b", list(words))
    with context:
        name, inner, arguments = command.resolve_command(context, words)  # type: ignore[attr-defined]
        inner.make_context(name, list(arguments), parent=context)


def container_calls() -> Iterator[list[str]]:
    """Yield the calls that recipes and pages make, without `m3b`."""
    yield from (json.loads(arguments) for name, arguments in read_dockerfile() if name == "CMD")
    definition = read_definition()
    yield shlex.split(definition["startscript"][0])[2:]
    yield shlex.split(definition["help"][1])[3:]
    for line in (ROOT / "docs" / "dicom.md").read_text().splitlines():
        if match := re.fullmatch(r"docker run .* m3b(?:-served)? (.+)", line):
            yield shlex.split(match[1])


def test_dockerfile_is_well_formed() -> None:
    instructions = read_dockerfile()
    assert {name for name, _ in instructions} <= set(INSTRUCTIONS)
    for name, arguments in instructions:
        if name == "FROM" and " AS " in arguments and not arguments.startswith("library"):
            assert re.search(r":\d", arguments), "a base image without a version"
        if name in ("CMD", "ENTRYPOINT"):
            assert all(isinstance(word, str) for word in json.loads(arguments)), "the form that runs no shell"
        if name == "WORKDIR":
            assert arguments.startswith("/")
    users = [arguments for name, arguments in instructions if name == "USER"]
    assert users[-1:] == ["m3b"], "runs as root"
    assert [arguments for name, arguments in instructions if name == "ENTRYPOINT"] == ['["m3b"]']


@pytest.mark.parametrize("recipe", ["Dockerfile", "m3b.def"])
def test_what_is_copied_and_installed_exists(recipe: str) -> None:
    if recipe == "Dockerfile":
        copies = [arguments.split()[:-1] for name, arguments in read_dockerfile() if name == "COPY"]
        sources = [source for words in copies for source in words]
        installed = next(arguments for name, arguments in read_dockerfile() if name == "RUN")
    else:
        sources = [line.split()[0] for line in read_definition()["files"]]
        installed = " ".join(read_definition()["post"])
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in sources:
        assert (ROOT / source).exists()
        assert any(fnmatch(source, pattern) for pattern in allowed)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.search(r"'\.\[([\w,-]+)\]'", installed)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    needed = {project["readme"], *project["license-files"], "src", "resources", "pyproject.toml"}
    assert needed <= set(sources), "the wheel cannot be built"


def test_calls_in_recipes_and_pages_are_what_the_commands_take() -> None:
    calls = list(container_calls())
    assert len(calls) >= 6
    for words in calls:
        if words != ["--help"]:
            parse_call(words)
