"""The planners over any typed facts: what they answer is an action that the tools take, or closing words of the right form."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from m3b.agents.artifacts import find_json_object, parse_give_up
from m3b.facts import (
    Answer,
    AuditSummary,
    Brief,
    DocumentSummary,
    FolderSummary,
    IndexBrief,
    ManifestProposal,
    ModelBrief,
    ModuleBrief,
    Rejection,
    ScriptOutcome,
    SelectionBrief,
    Summary,
    TableSummary,
    TaskOption,
    parse_facts,
)
from m3b.llm import LLMRequest
from m3b.llm.rules import RulesLLM
from m3b.messages import Message, ToolCall
from m3b.tools import TOOLS, schema

WORDS = (
    "Tell pneumonia from normal on chest X-rays", "Segment the liver on CT", "Find nodules", "predict survival", "lung",
    "chest", "x-ray", "mri", "diagnosis", "segmentation", "detection", "auroc", "dice", "masks", "boxes", "texts",
    "imgs/case_{001..020}.png", "labels/*_seg.nii.gz", "findings.csv", "x1", "y1", "x2", "y2", "bbox", "report", "list",
    "no_label", "class_absent_train", "python plan.py", "yes", "",
)  # fmt: skip
TEXT = st.one_of(st.sampled_from(WORDS), st.text(max_size=12))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXT),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)
SPECS = st.one_of(
    st.dictionaries(TEXT, VALUES, max_size=3),
    st.fixed_dictionaries({
        "labels": st.one_of(VALUES, st.fixed_dictionaries({"one_hot": VALUES, "classes": VALUES})),
        "split": st.one_of(VALUES, st.fixed_dictionaries({"source": VALUES})),
        "masks": st.one_of(VALUES, st.fixed_dictionaries({"classes": st.just({"yes": 1, "list": 2})})),
    }),
)  # fmt: skip


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation as the facts have them."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return of(inner[0])
    if origin in (Union, types.UnionType):
        return st.one_of([of(part) for part in inner])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        return (
            st.lists(of(inner[0]), max_size=3).map(tuple)
            if inner[-1] is Ellipsis
            else st.tuples(*(of(part) for part in inner))
        )
    if origin is dict:
        return SPECS if inner[1] is Any else st.dictionaries(TEXT, of(inner[1]), max_size=2)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return facts(hint)
    simple = {
        str: TEXT,
        bool: st.booleans(),
        int: st.integers(0, 99),
        float: st.floats(0.01, 1e6),
        type(None): st.none(),
    }
    return simple[hint]


def facts(model: type[BaseModel], **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any facts of a class."""
    parts = {name: of(field.annotation) for name, field in model.model_fields.items()}
    if "metrics" in parts:
        parts["metrics"] = st.lists(TEXT, min_size=1, max_size=3).map(tuple)
    return st.builds(model, **{**parts, **fixed})


COMMANDS = st.sampled_from(("python plan.py --minutes 5", "python train.py", "python train.py --resume && x", "ls"))
STEP = st.tuples(COMMANDS, st.booleans(), st.one_of(st.none(), facts(ScriptOutcome)))
LAST_FACTS = st.one_of(st.none(), facts(Rejection), facts(Answer))
BRIEFS = (SelectionBrief, IndexBrief, ModuleBrief, ModelBrief)


def conversation(brief: Summary, steps: Sequence[Any], last_facts: Summary | None) -> list[Message]:
    """A briefing, calls with their results, and what was said last, as a model gets them: texts empty, facts as JSON."""
    messages = [Message("user", "", facts=(_json(brief),))]
    for at, (command, failed, outcome) in enumerate(steps):
        messages.append(Message("assistant", "", (ToolCall(f"c{at}", "run_script", {"command": command}),)))
        outcome_facts = (_json(outcome),) if outcome else ()
        messages.append(Message("tool", "", call_id=f"c{at}", is_error=failed, facts=outcome_facts))
    return [*messages, Message("user", "", facts=(_json(last_facts),))] if last_facts else messages


def _json(summary: Summary) -> dict[str, Any]:
    return dict(json.loads(json.dumps(summary.to_json())))


@pytest.mark.parametrize("kind", BRIEFS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_facts_lead_to_an_action_or_to_closing_words(kind: type[BaseModel], data: st.DataObject) -> None:
    brief = data.draw(facts(kind))
    steps, last_facts = data.draw(st.lists(STEP, max_size=3)), data.draw(LAST_FACTS)
    reply = RulesLLM().ask(LLMRequest(conversation(brief, steps, last_facts)))
    assert bool(reply.calls) != bool(reply.text)
    for call in reply.calls:
        assert schema.coerce_arguments(TOOLS[call.name], call.arguments) == call.arguments
    if reply.text:
        _check_closing(brief, reply.text, worked=bool(steps))


def _check_closing(brief: Brief, text: str, *, worked: bool) -> None:
    """What stands at the end of a stage: the choice, why there is none, or that the work is done, where any was."""
    if not isinstance(brief, SelectionBrief):
        closing = find_json_object(text, "unusable") or find_json_object(text, "undecided") or {}
        assert parse_give_up(text) or any(closing.values()) or (worked and not text.startswith("{"))
        return
    selection = json.loads(text)
    if selection["data_card"] is None:
        assert set(selection) == {"data_card", "reason"}
        assert selection["reason"]
        return
    assert selection["data_card"] in {card.name for card in brief.cards}
    offers = [task for task in brief.tasks if task.name == selection["task"]]
    assert offers
    assert any(selection["metric"] in (*task.metrics, *task.box_metrics) for task in offers)


CODES = st.sampled_from(
    (
        ("no_label",),
        ("class_absent_train",),
        ("class_absent_test", "class_absent_train"),
        ("class_nowhere",),
        ("other",),
    )
)
SUFFICIENT_PROPOSALS = facts(ManifestProposal, sufficient=st.just(True))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    facts(IndexBrief, readings=st.lists(SUFFICIENT_PROPOSALS, min_size=1, max_size=2).map(tuple), unusable=st.just("")),
    facts(Rejection, codes=CODES),
)
def test_any_reading_that_is_sent_back_is_edited_or_given_up(brief: IndexBrief, rejection: Rejection) -> None:
    """Whatever stands in a reading that a later version, or a person, wrote."""
    copied = [("cp", False, None)]
    first = RulesLLM().ask(LLMRequest(conversation(brief, [], None)))
    assert [call.name for call in first.calls] == ["copy_files"]
    reply = RulesLLM().ask(LLMRequest(conversation(brief, copied, rejection)))
    if not reply.calls:
        assert parse_give_up(reply.text)
        return
    (call,) = reply.calls
    assert call.name == "write_files"
    (file,) = schema.coerce_arguments(TOOLS[call.name], call.arguments)["files"]
    assert file["path"] == brief.place
    assert json.loads(file["content"]) != brief.readings[0].manifest


def test_classes_of_a_list_that_no_mask_holds_are_dropped() -> None:
    """Where masks hold values without a name besides, an absent class may be one of these: nothing is dropped."""
    spec = {
        "masks": {"files": "m/{case}.png", "classes": {"T1": 1, "T2": 2, "T3": 3}},
        "task": "segmentation",
    }
    reading = ManifestProposal(file="1.json", sufficient=True, manifest=spec)
    brief = IndexBrief(request="Segment", task="segmentation", data="data/x", place="x.json", readings=(reading,))
    rejection = Rejection(faults=("No mask holds: T3 (3).",), codes=("class_nowhere",), absent=("T3",))
    reply = RulesLLM().ask(LLMRequest(conversation(brief, [("cp", False, None)], rejection)))
    ((file,),) = (schema.coerce_arguments(TOOLS[call.name], call.arguments)["files"] for call in reply.calls)
    assert json.loads(file["content"]) == {**spec, "masks": {**spec["masks"], "classes": {"T1": 1, "T2": 2}}}  # type: ignore[dict-item]
    unsure = Rejection(faults=("No mask holds: T3 (3). The masks also hold 5.",), codes=("class_nowhere",))
    assert not RulesLLM().ask(LLMRequest(conversation(brief, [("cp", False, None)], unsure))).calls


def test_a_plan_that_fails_twice_is_no_project() -> None:
    brief = ModuleBrief(task="detection", template="resources/templates/detection", minutes=5)
    failed = ("python plan.py --minutes 5", True, ScriptOutcome(job=1, exit_code=1))
    assert RulesLLM().ask(LLMRequest(conversation(brief, [failed], None))).calls, "once more"
    closing = RulesLLM().ask(LLMRequest(conversation(brief, [failed, failed], None))).text
    assert "plan.py cannot plan" in parse_give_up(closing)


@given(data=st.lists(SPECS, max_size=3))
def test_facts_of_no_known_kind_are_declined(data: list[Any]) -> None:
    reply = RulesLLM().ask(LLMRequest([Message("user", "Stage: selection", facts=tuple(data))]))
    assert not reply.calls
    assert "use a language model" in parse_give_up(reply.text).lower()


@given(facts(SelectionBrief))
def test_facts_survive_the_journal(brief: SelectionBrief) -> None:
    assert parse_facts([_json(brief)]) == [brief]


def test_no_planner_reads_a_text_that_m3b_wrote() -> None:
    """The words of a card's own fields and of its maker count; a message's text is never looked at."""
    brief = SelectionBrief(
        request="Tell pneumonia on chest X-rays", tasks=(TaskOption(name="diagnosis", metrics=("auroc",)),)
    )
    quiet = RulesLLM().ask(LLMRequest([Message("user", "", facts=(_json(brief),))]))
    loud = RulesLLM().ask(
        LLMRequest([Message("user", "## Data card\n# chest (x-ray; data at data/chest)", facts=(_json(brief),))])
    )
    assert quiet.text == loud.text


def test_what_facts_must_hold() -> None:
    assert not parse_facts([{"kind": "selection", "request": "x", "tasks": [{"name": "diagnosis", "metrics": []}]}])
    assert not parse_facts([{"kind": "module", "task": "x", "template": "t", "minutes": math.nan}])
    assert parse_facts([FolderSummary(path="data/x").to_json()]) == []
    assert parse_facts([ScriptOutcome(job=1, exit_code=2).to_json()])[0].has_failed  # type: ignore[union-attr]
    later = {**ManifestProposal(file="x").to_json(), "of_a_later_version": 1}
    assert ManifestProposal.model_validate(later) == ManifestProposal(file="x")
    finding = {"code": "no_label", "weight": "fix", "message": "m", "cases": ["a"], "told": "t"}
    audit = AuditSummary.model_validate({"cases": 3, "findings": [finding], "seconds": 1.0})
    assert audit.findings[0].code == "no_label"
    assert {DocumentSummary().kind, TableSummary().kind} == {"document", "table"}
