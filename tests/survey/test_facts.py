"""The contract of a survey: frozen facts that come back from JSON as they were."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from m3b.data.survey.facts import FileGroup, PathPart, SurveyLimits, Value
from m3b.data.survey.relations import End, Join, Survey
from m3b.data.survey.templates import _inner


def example() -> Survey:
    part = PathPart(
        slot="name0", kind="number", distinct=2, values=(Value(text="1", count=1), Value(text="2", count=1))
    )
    group = FileGroup(
        id="g1", template="{number}.png", pattern=r"(?P<name0>\d+)\.png", kind="picture", suffixes=(".png",), count=2,
        bytes=10, parts=(part,),
    )  # fmt: skip
    join = Join(
        left=End(kind="column", owner="t1", name="image"), right=End(kind="path", owner="g1"), rule="stem",
        left_values=4, left_matched=2, right_values=2, right_matched=2, most_left=1, most_right=1,
    )  # fmt: skip
    return Survey(
        name="x", fingerprint="f", limits=SurveyLimits(), files=2, folders=0, bytes=10, exact=True, groups=(group,),
        joins=(join,),
    )  # fmt: skip


def test_a_survey_comes_back_from_json() -> None:
    survey = example()
    again = Survey.model_validate_json(survey.model_dump_json())
    assert again == survey
    assert (again.joins[0].left_share, again.joins[0].right_share) == (0.5, 1.0)
    assert again.group("g1").parts[0].kind == "number"
    assert again.joins_of("t1") == survey.joins


def test_facts_cannot_be_changed_and_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        example().files = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="extra"):
        Survey.model_validate({**example().model_dump(), "unheard_of": 1})


def test_an_unknown_group_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        example().group("g9")


def test_numbered_words_as_frequent_as_each_other_are_told_in_one_order() -> None:
    """Of more words than are told, another process told others."""
    words = [f"{letter}x" for letter in "hgfedcba"]
    stems = ["_".join(f"{word}{at}" for word in words) for at in range(10, 30)]
    told = [slot for slot, _ in _inner(stems) if slot.removeprefix("name.") in words]
    assert told == [f"name.{letter}x" for letter in "abcdef"]
