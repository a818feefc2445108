"""Whole runs in which agents look at training cases, as the user has allowed it: never at test cases, never at names."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from pipeline_kit import REQUEST, actor, call, check_end, copy_run, of_kind, play, say, script
from test_pipeline_masks import acts as mask_acts
from test_pipeline_masks import squares as squares  # the fixture
from test_pipeline_providers import faults

from m3b import Pipeline, resume
from m3b.data.index import read_index
from m3b.dataset.pixel_text import is_ocr_installed
from m3b.errors import Authentication, UsageError
from m3b.llm.base import ModelFacts
from m3b.models.montage import MAX_MONTAGE_SIDE_PX, MontageRequest, draw_montage
from m3b.resources import get_resources_folder
from m3b.run.image_viewing import VIEW_PROMPT, estimate_error
from m3b.testing.conformance import DIALECTS, Server
from m3b.testing.scripted_model import llm_error
from warm.commands import run_m3b

SEEING = ModelFacts(price_in=0.0, price_out=0.0, vision=True)
LOOK = [
    call("view_image"),
    script("python train.py && python export.py"),
    call("view_image", errors=True),
    say("Trained."),
]
NOTE = (get_resources_folder() / "prompts" / VIEW_PROMPT).read_text(encoding="utf-8").strip()
needs_ocr = pytest.mark.skipif(not is_ocr_installed(), reason="the extra `ocr` is not installed")


def find_pngs(value: Any) -> list[bytes]:
    """Return the PNGs in a request's body, in whatever form the protocol has them."""
    if isinstance(value, dict):
        return [png for item in value.values() for png in find_pngs(item)]
    if isinstance(value, list):
        return [png for item in value for png in find_pngs(item)]
    text = value.removeprefix("data:image/png;base64,") if isinstance(value, str) else ""
    return [base64.b64decode(text)] if text.startswith("iVBORw0KGgo") else []


@needs_ocr
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_pictures_reach_a_model_over_http(
    dialect: str, spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command line: a model that m3b does not know, on a server of this machine."""
    monkeypatch.setenv("M3B_API_KEY", "none")
    out = tmp_path / "run"
    with Server(faults.Actor(play(model=LOOK), DIALECTS[dialect])) as server:
        spec = f"{dialect}:m@{server.url}{'/v1' if dialect == 'openai' else ''}"
        ended = run_m3b("run", REQUEST, "--data", spots, "--llm", spec, "--out", out, "--send-images")
        bodies = [request.body for request in server.requests]
    assert ended.returncode == 0, ended.stderr
    pngs = list(dict.fromkeys(find_pngs(bodies[-1])))
    assert len(pngs) == 2, "the whole conversation is sent with each request"
    for png in pngs:
        with Image.open(io.BytesIO(png)) as image:
            assert max(image.size) <= MAX_MONTAGE_SIDE_PX
            assert np.asarray(image.convert("L")).std() > 10
    assert not any(find_pngs(body) for body in bodies[:4]), "nothing is sent before the tool is called"
    assert sorted(path.name for path in (out / "viewed").iterdir()) == ["001.png", "002.png"]


def view(results: Path, role: str = "model_trainer") -> list[dict[str, Any]]:
    return [data for data in of_kind(results, "result", role) if data["name"] == "view_image"]


@needs_ocr
def test_worst_validation_masks_are_drawn_with_the_answers(squares: Path, tmp_path: Path) -> None:
    model = mask_acts(model=LOOK)
    model.facts = SEEING
    check_end(
        Pipeline(model, data=[squares], out=tmp_path / "run", send_images=True).run("Outline squares"), "completed"
    )
    cases, errors = view(tmp_path / "run")
    index = read_index(tmp_path / "run/locked", "segmentation")
    counts = [sum(line.startswith("case ") for line in result["text"].splitlines()) for result in (cases, errors)]
    assert counts == [8, 6]
    assert "square #" in cases["text"]
    assert not any(Path(path).stem in f"{cases['text']}{errors['text']}" for r in index.records for path in r.files)
    with Image.open(tmp_path / "run/viewed/001.png") as single, Image.open(tmp_path / "run/viewed/002.png") as pair:
        assert single.size != pair.size, "the answers stand beside the labels"
    assert "No answers" not in errors["text"]
    images = [message.images for message in model.requests[-1][0] if message.role == "tool" and message.images]
    assert len(images) == 2


@needs_ocr
def test_who_has_the_tool_and_is_told_of_it(spots: Path, tmp_path: Path) -> None:
    model = actor(play(model=LOOK), facts=SEEING)
    Pipeline(model, data=[spots], out=tmp_path / "run", send_images=True).run(REQUEST)
    has_note = {
        bool(NOTE in messages[0].text)
        for messages, tools in model.requests
        if any(t.name == "view_image" for t in tools)
    }
    assert has_note == {True}
    assert {len(tools) for messages, tools in model.requests if NOTE in messages[0].text} == {7}
    without = [messages for messages, tools in model.requests if not any(t.name == "view_image" for t in tools)]
    assert without
    assert not any(NOTE in messages[0].text for messages in without)


def test_without_the_option_nothing_is_there(spots: Path, tmp_path: Path) -> None:
    model = actor(play(model=LOOK), facts=SEEING)
    Pipeline(model, data=[spots], out=tmp_path / "run").run(REQUEST)
    assert not any(tool.name == "view_image" for _, tools in model.requests for tool in tools)
    assert not any(NOTE in messages[0].text for messages, _ in model.requests)
    assert all(data["is_error"] for data in view(tmp_path / "run"))
    assert not any(message.images for messages, _ in model.requests for message in messages)
    assert not (tmp_path / "run/viewed").exists()


@needs_ocr
def test_a_single_agent_sees_nothing_before_the_lock(spots: Path, tmp_path: Path) -> None:
    early = play(index=[call("view_image"), *play()["index"]], model=LOOK)
    model = actor(early, facts=SEEING)
    result = Pipeline(model, data=[spots], out=tmp_path / "run", send_images=True, roles="single").run(REQUEST)
    check_end(result, "completed")
    view_results = [data for data in of_kind(tmp_path / "run", "result") if data["name"] == "view_image"]
    assert [data["is_error"] for data in view_results] == [True, False, False]


@needs_ocr
def test_wrong_numbers_and_too_many_are_refused(spots: Path, tmp_path: Path) -> None:
    steps = [
        call("view_image", cases=[1000]),
        call("view_image", cases=list(range(1, 11))),
        call("view_image", errors=True),
    ]
    model = actor(play(model=[*steps, call("view_image", cases=[3, 1]), *LOOK[1:2], say("Done.")]), facts=SEEING)
    Pipeline(model, data=[spots], out=tmp_path / "run", send_images=True).run(REQUEST)
    view_results = view(tmp_path / "run")
    assert [data["is_error"] for data in view_results] == [True, True, True, False]
    assert [line.split(":")[0] for line in view_results[-1]["text"].splitlines()] == ["case 3", "case 1"]


@needs_ocr
def test_a_resumed_run_shows_the_same_pictures(spots: Path, tmp_path: Path) -> None:
    broken = play(model=[call("view_image"), llm_error(Authentication, "The key is refused.")])
    out = tmp_path / "run"
    assert (
        Pipeline(actor(broken, facts=SEEING), data=[spots], out=out, send_images=True).run(REQUEST).status == "failed"
    )
    changed = copy_run(out, tmp_path / "changed")
    (changed / "viewed/001.png").write_bytes(b"\x89PNG\r\nsomething else")

    def first_images(folder: Path) -> list[bytes]:
        model = actor(play(model=[call("view_image"), *LOOK[1:2], say("Trained.")]), facts=SEEING)
        check_end(resume(folder, model), "completed")
        return [image.data for message in model.requests[0][0] for image in message.images]

    assert first_images(out) == [(out / "viewed/001.png").read_bytes()]
    assert first_images(changed) == [], "what is not the journaled picture is not sent"


def test_models_that_cannot_see_are_refused_before_anything_is_made(spots: Path, tmp_path: Path) -> None:
    for model in ("rules", actor(play(), facts=ModelFacts())):
        with pytest.raises(UsageError):
            Pipeline(model, data=[spots], out=tmp_path / "run", send_images=True, phi="allow").run(REQUEST)
    assert not (tmp_path / "run").exists()


def test_without_the_extra_pictures_are_refused(spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("m3b.run.image_viewing.is_ocr_installed", lambda: False)
    with pytest.raises(UsageError, match=r"m3b\[ocr\]"):
        Pipeline(actor(play(), facts=SEEING), data=[spots], out=tmp_path / "run", send_images=True).run(REQUEST)


# --- the picture itself ------------------------------------------------------------------------------------------------


def make_index(folder: Path, text: str) -> Path:
    (folder / "Datapath").mkdir()
    for number in range(4):
        canvas = Image.fromarray(np.full((200, 260), 40 + 20 * number, np.uint8))
        ImageDraw.Draw(canvas).text((20, 90), text, fill=255, font=ImageFont.load_default(20))
        canvas.save(folder / f"{number}.png")
    rows = [
        {"image_path": f"{number}.png", "labels": ["ab"[number % 2]], "patient": f"p{number}"} for number in range(4)
    ]
    (folder / "Datapath/train.json").write_text(json.dumps(rows[:2]))
    (folder / "Datapath/test.json").write_text(json.dumps(rows[2:]))
    (folder / "Datapath/label_dict.json").write_text('{"a": 0, "b": 1}')
    return folder


def test_a_test_case_is_never_drawn(tmp_path: Path) -> None:
    make_index(tmp_path, "x")
    montage = draw_montage(MontageRequest(tmp_path, "diagnosis", ["2.png", "3.png"], hides_text=False))
    assert montage.png == b""
    assert montage.cases == []
    montage = draw_montage(MontageRequest(tmp_path, "diagnosis", ["1.png", "3.png"], hides_text=False))
    assert [case.number for case in montage.cases] == [2]


@needs_ocr
@pytest.mark.parametrize(("text", "is_hidden"), [("WEBER^ANNA", True), ("GAIN 7", True), ("R", False), ("", False)])
def test_images_with_text_in_their_pixels_are_left_out(tmp_path: Path, text: str, is_hidden: bool) -> None:
    """All of them: beside a line that was found there may be one that was not."""
    make_index(tmp_path, text)
    for hides_text in (False, True):
        montage = draw_montage(MontageRequest(tmp_path, "diagnosis", ["0.png", "1.png"], hides_text=hides_text))
        left_out = is_hidden and hides_text
        assert [bool(case.error) for case in montage.cases] == [left_out] * 2
        assert (montage.png == b"") == left_out


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"dice": {"a": 0.9, "b": None}}, {"dice": {"a": 0.1}}),
        (
            {"labels": ["a"], "probabilities": {"a": 0.9, "b": 0.1}},
            {"labels": ["b"], "probabilities": {"a": 0.9, "b": 0.1}},
        ),
        ({"grade": "1", "probabilities": {"1": 0.9}}, {"grade": "2", "probabilities": {"1": 0.9}}),
        ({"value": 3.0, "predicted": 3.5}, {"value": 3.0, "predicted": 9.0}),
        ({"abnormal": True, "anomaly_score": 0.9}, {"abnormal": False, "anomaly_score": 0.9}),
        ({"boxes": 2, "boxes_found": 2}, {"boxes": 2, "boxes_found": 0}),
        ({"dice": "odd"}, {"dice": {"a": 0.5}}),
    ],
)
def test_the_larger_error_comes_first(better: dict[str, Any], worse: dict[str, Any]) -> None:
    assert estimate_error(better) < estimate_error(worse)
