"""The page about manifests and its JSON schema are made from the model."""

from __future__ import annotations

import json
import re
from typing import Annotated

import jsonschema
import pytest
from pydantic import TypeAdapter

from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.reference import (
    EXAMPLES,
    FIELD_EXAMPLES,
    describe_fields,
    full_page,
    json_schema,
    parts,
    short_page,
)
from m3b.dataset.manifest.resolve import OPTIONAL_PARTS, TARGETS
from m3b.resources import get_resources_folder


@pytest.mark.parametrize("part", parts(), ids=lambda part: part.__name__)
def test_every_field_is_on_both_pages(part: type[Manifest]) -> None:
    section = full_page().partition(f"\n## {part.__name__}\n")[2].partition("\n## ")[0]
    for name in part.model_fields:
        entry = re.search(rf"^- `{name}` \(.+\): (.*)$", section, re.MULTILINE)
        assert entry is not None
        assert len(entry[1]) > 3, f"{part.__name__}.{name} is not described"


def test_docstrings_describe_no_field_that_there_is_not() -> None:
    for part in parts():
        described = re.findall(r"^ {8}([a-z_, ]+): ", (part.__doc__ or "").partition("Args:")[2], re.MULTILINE)
        assert {name for names in described for name in names.split(", ")} <= set(part.model_fields)


@pytest.mark.parametrize("task", TARGETS)
def test_the_short_page_has_every_key_of_a_task_and_fits_into_a_briefing(task: str) -> None:
    page = short_page(task)
    assert len(re.findall(r"\w+|[^\w\s]", page)) < 2_000
    lines = dict(re.findall(r"^- ([A-Z]\w+): (.*)$", page, re.MULTILINE))
    assert {"Images", "Split", "Table"} < set(lines)
    for part in parts():
        if part.__name__ in lines and part is not Manifest:
            assert all(re.search(rf"(^|, ){name}\*? \S", lines[part.__name__]) for name in part.model_fields)
    other_keys = {name for targets in TARGETS.values() for name in targets} - {
        *TARGETS[task],
        *OPTIONAL_PARTS.get(task, ()),
    }
    assert not any(re.search(rf"(^|, ){name}\*? ", lines["Manifest"]) for name in other_keys)


@pytest.mark.parametrize("task", TARGETS)
def test_the_short_page_says_what_names_of_keys_do_not(task: str) -> None:
    notes = dict(re.findall(r"^- `([\w.]+)`: (.+)$", short_page(task), re.MULTILINE))
    assert set(notes) == {"Manifest.exclude", "Images.frames"}
    assert notes["Manifest.exclude"] == describe_fields(Manifest)["exclude"]


@pytest.mark.parametrize("part", parts(), ids=lambda part: part.__name__)
def test_examples_of_keys_are_valid(part: type[Manifest]) -> None:
    for name, example in FIELD_EXAMPLES[part.__name__].items():
        field = part.model_fields[name]
        TypeAdapter(
            Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        ).validate_python(example)


@pytest.mark.parametrize("task", TARGETS)
def test_there_is_an_example_for_each_task_which_is_valid(task: str) -> None:
    example = EXAMPLES[task]
    assert example["task"] == task
    jsonschema.validate(json.loads(json.dumps(example)), json_schema())
    manifest = Manifest.model_validate(example)
    assert Manifest.model_validate_json(manifest.model_dump_json(exclude_defaults=True)) == manifest
    assert json.dumps(example, indent=1) in full_page()


def test_the_schema_has_the_descriptions() -> None:
    masks = json_schema()["$defs"]["Masks"]
    assert (
        masks["properties"]["above"]["description"]
        == describe_fields(parts()[0].model_fields["masks"].annotation.__args__[0])["above"]
    )


def test_the_page_that_agents_read_is_the_generated_one() -> None:
    """`python -c "from m3b.dataset.manifest.reference import full_page; print(full_page(), end='')"` makes it."""
    page = get_resources_folder() / "indexes" / "manifest.md"
    assert page.read_text(encoding="utf-8") == full_page()
