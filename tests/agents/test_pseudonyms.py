"""Invented names go out, the real ones come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.agents.pseudonymization import PSEUDONYM_NOTE, PseudonymizingModel, Pseudonyms
from m3b.llm import LLMRequest
from m3b.messages import Message, ToolCall
from m3b.testing.scripted_model import ScriptedModel, call, combine_calls, say

NAMES = [
    "Weber_Anna_1956-03-02.png",
    "WEBER^ANNA",
    "anna-weber/MRN_7654321.dcm",
    "Müller_Jürgen",
    "张伟_CT",
    "García_López_María",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_goes_out_invented_and_comes_back(name: str) -> None:
    names = Pseudonyms()
    pseudonymized = names.pseudonymize(f"data/x/{name}: 3 files")
    for part in ("weber", "anna", "1956", "765", "müller", "张", "garcía", "maría"):
        assert part not in pseudonymized.lower()
    assert names.restore(pseudonymized) == f"data/x/{name}: 3 files"
    assert names.pseudonymize(f"data/x/{name}: 3 files") == pseudonymized, "the same each time"
    assert Pseudonyms().pseudonymize(f"data/x/{name}: 3 files") == pseudonymized, "and in a resumed run"


@given(
    st.lists(
        st.sampled_from(
            [*NAMES, "case_01.png", "Anonbadefiko", "x", " ", "\n", "1956", "McDonald_John", "Mcdonald_John"]
        )
    )
)
def test_whatever_is_shown_comes_back_whole(parts: list[str]) -> None:
    names, text = Pseudonyms(), "/".join(parts)
    assert names.restore(names.pseudonymize(text)) == text


def test_case_is_kept_so_that_patterns_fit() -> None:
    names = Pseudonyms()
    pseudonymized = names.pseudonymize("Weber_Anna WEBER_ANNA weber_anna")
    titlecase, uppercase, lowercase = pseudonymized.split(" ")
    assert (titlecase.istitle(), uppercase.isupper(), lowercase.islower()) == (True, True, True)
    assert titlecase.upper() == uppercase == lowercase.upper()
    assert names.restore(titlecase.replace("Anon", "anon").lower()) == "weber_anna"


def test_a_name_that_was_seen_in_company_is_known_alone() -> None:
    names = Pseudonyms()
    assert names.pseudonymize("Weber alone") == "Weber alone"
    pseudonymized = names.pseudonymize("Weber_Anna.png")
    assert names.pseudonymize("patients: ['Weber', 'Anna']").count("Anon") == 2
    assert "Weberian" in names.pseudonymize("Weberian")
    assert names.restore(pseudonymized.partition("_")[0]) == "Weber"


def test_common_words_are_not_known_alone() -> None:
    names = Pseudonyms()
    names.pseudonymize("Brown_Anna.png")
    assert names.pseudonymize("brown and Brown tissue") == "brown and Brown tissue"


def test_a_model_meets_invented_names_only_and_its_calls_hit_the_real_ones() -> None:
    def reads(messages: object, tools: object) -> object:
        file_name = model.requests[-1][0][-1].text.splitlines()[0]
        return combine_calls(
            call("read_files", paths=[file_name]),
            call("write_files", files=[{"path": "a.py", "content": f"open('{file_name}')"}]),
        )

    model = ScriptedModel([reads, say("done")])
    veiled = PseudonymizingModel(model, Pseudonyms())
    talk = [Message("system", "You are."), Message("user", "data/x/Weber_Anna.png\nand so on")]
    first = veiled.ask(LLMRequest(talk))
    assert first.calls[0].arguments == {"paths": ["data/x/Weber_Anna.png"]}
    assert first.calls[1].arguments["files"][0]["content"] == "open('data/x/Weber_Anna.png')"
    talk += [
        first.to_message(),
        *(Message("tool", "no Weber_Anna.png", call_id=tool_call.id) for tool_call in first.calls),
    ]
    assert veiled.ask(LLMRequest(talk)).text == "done"
    for messages, _ in model.requests:
        transcript = repr(messages)
        assert "Weber" not in transcript
        assert transcript.count(PSEUDONYM_NOTE) == 1
    assert model.requests[1][0][2].calls[0].arguments["paths"][0] == model.requests[0][0][1].text.splitlines()[0]


def test_what_has_no_names_passes_unchanged() -> None:
    model = ScriptedModel([say("ok")])
    talk = [Message("system", "s"), Message("user", "data/x/case_01.png"), Message("assistant", "", (ToolCall("1", "a", {"b": [1]}),)),
            Message("tool", "Kellgren grade", call_id="1")]  # fmt: skip
    PseudonymizingModel(model, Pseudonyms()).ask(LLMRequest(talk))
    assert list(model.requests[0][0]) == talk


def test_names_of_files_are_known_before_anything_is_shown(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "Weber_Anna_001.png").write_bytes(b"")
    names = Pseudonyms()
    names.learn_names(tmp_path)
    assert "Weber" not in (pseudonymized := names.pseudonymize("families: Weber 10"))
    assert names.restore(pseudonymized) == "families: Weber 10"
