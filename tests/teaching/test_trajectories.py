"""Expert trajectories: what is kept of them, what is written, and going on after a crash."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_world import Brush, targets

from m3b.errors import DataError, UsageError
from m3b.interactive.pictures import PictureStyle
from m3b.interactive.segmenter import BoxPrompt, MaskProposal, Point
from m3b.interactive.targets import Target
from m3b.teaching.chats import ChatRecord, read_chats
from m3b.teaching.expert_trajectories import TrajectoryFolder, TrajectoryResult, make_trajectories, settings_of
from m3b.teaching.experts import CLOSING_MESSAGE, Demonstration, Expert, PromptMode, demonstrate
from m3b.teaching.reward import RewardWeights

EXPERT = Expert(look=PictureStyle(48), min_gain=0.01, tremor=0.5)


class Stubborn(Brush):
    """Answers the first prompt, and whatever follows with the same mask."""

    name = "stubborn"

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        return previous or super().predict(boxes, points)


class Blind(Brush):
    """Finds nothing."""

    name = "blind"

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        proposal = super().predict(boxes, points, previous)
        return MaskProposal(np.zeros_like(proposal.mask), 0.0)


def make_demonstration(way: PromptMode, segmenter: Brush | None = None, expert: Expert = EXPERT) -> Demonstration:
    return demonstrate(targets(1, 5)[0], segmenter or Brush(), expert, way, np.random.default_rng(0), RewardWeights())


def calls(demonstration: Demonstration) -> list[str]:
    return [call.name for message in demonstration.messages for call in message.calls]


def write_trajectories(
    out: Path, count: int = 6, expert: Expert = EXPERT, held_out: float = 0.3, skip: int = 0
) -> TrajectoryResult:
    collection = TrajectoryFolder(out, settings_of("toy", "brush", expert, held_out))
    return make_trajectories(targets(count, 7)[skip:], Brush(), collection, expert, held_out=held_out)


def test_a_box_comes_first_or_never() -> None:
    assert calls(make_demonstration("hybrid"))[0] == "add_box"
    assert set(calls(make_demonstration("points"))) == {"add_point", "stop"}


def test_every_step_gains_more_than_the_threshold() -> None:
    for way in ("hybrid", "points"):
        demonstration = make_demonstration(way)  # type: ignore[arg-type]
        assert len(demonstration.iou) > 1
        steps = np.diff([0.0, *demonstration.iou])
        assert (steps > EXPERT.min_gain).all(), steps


def test_the_last_call_stops_and_keeps_the_last_mask() -> None:
    demonstration = make_demonstration("hybrid")
    last = [call for message in demonstration.messages for call in message.calls][-1]
    assert (last.name, last.arguments) == ("stop", {"keep": len(demonstration.iou)})
    assert demonstration.messages[-1].text == CLOSING_MESSAGE
    assert demonstration.score.form == 1
    assert demonstration.score.overshoot == 0


def test_turns_and_good_masks_end_an_episode() -> None:
    assert len(make_demonstration("points", expert=replace(EXPERT, max_turns=2, enough=1.0)).iou) == 2
    assert len(make_demonstration("hybrid", expert=replace(EXPERT, enough=0.5, jitter=0.0)).iou) == 1


def test_a_step_that_gains_nothing_ends_it_after_its_retries() -> None:
    demonstration = make_demonstration("points", Stubborn())
    assert len(demonstration.iou) == 1
    assert demonstration.reason == "final IoU below 0.7"
    assert make_demonstration("hybrid", Blind()).reason == "no first prompt gained anything"


def test_retries_are_made_elsewhere() -> None:
    prompts: list[tuple[Point, ...]] = []

    class Counting(Blind):
        def predict(
            self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
        ) -> MaskProposal:
            prompts.append(tuple(points))
            return super().predict(boxes, points, previous)

    make_demonstration("points", Counting(), replace(EXPERT, retries=3))
    assert len(prompts) == 4
    assert len(set(prompts)) > 1


def test_what_is_written_reads_back_whole(tmp_path: Path) -> None:
    result = write_trajectories(tmp_path / "out")
    chats = [*read_chats(tmp_path / "out"), *read_chats(tmp_path / "out" / "validation.jsonl")]
    assert len(chats) == result.summary["kept"] == 12
    assert result.summary["by_way"]["points"]["kept"] == 6
    for chat in chats:
        assert [message["role"] for message in chat.messages[:2]] == ["system", "user"]
        assert {tool["function"]["name"] for tool in chat.tools} == {"add_box", "add_point", "undo", "stop"}
        assert len(chat.images) == 1 + len(chat.facts["iou"])
        assert 0.2 < chat.reward <= 1
        with Image.open(chat.images[-1]) as picture:
            assert max(picture.size) == 48 + 26
    assert len(list((tmp_path / "out" / "pictures").iterdir())) == 10
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0, "pictures of patients"


def test_no_patient_is_on_both_sides(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "out", 8)
    sides = [
        {chat.facts["patient"] for chat in read_chats(tmp_path / "out" / f"{name}.jsonl")}
        for name in ("train", "validation")
    ]
    assert all(sides)
    assert not sides[0] & sides[1]


def _lines(chats: Sequence[ChatRecord], folder: Path) -> list[str]:
    return sorted(chat.to_line(folder) for chat in chats)


def test_going_on_after_a_crash_makes_the_same(tmp_path: Path) -> None:
    complete, torn = tmp_path / "whole", tmp_path / "torn"
    write_trajectories(complete)
    collection = TrajectoryFolder(torn, settings_of("toy", "brush", EXPERT, 0.3))

    def crash(accepted: int, tried: int) -> None:
        if tried == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_trajectories(targets(6, 7), Brush(), collection, EXPERT, held_out=0.3, on_progress=crash)
    with (torn / "train.jsonl").open("a") as stream:
        stream.write('{"id": "half a li')
    again = TrajectoryFolder(torn, settings_of("toy", "brush", EXPERT, 0.3))
    assert len(again.done_cases) == 2, "finished cases are not opened again"
    make_trajectories(
        [target for target in targets(6, 7) if target.case not in again.done_cases],
        Brush(),
        again,
        EXPERT,
        held_out=0.3,
    )
    for name in ("train.jsonl", "validation.jsonl"):
        assert _lines(list(read_chats(torn / name)), torn) == _lines(list(read_chats(complete / name)), complete)
    assert json.loads((torn / "summary.json").read_text()) == json.loads((complete / "summary.json").read_text())


def test_other_settings_do_not_go_on(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "out", 2)
    with pytest.raises(UsageError, match=r"min_gain was 0\.01, is 0\.2"):
        write_trajectories(tmp_path / "out", 2, replace(EXPERT, min_gain=0.2))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    with pytest.raises(UsageError, match="other files"):
        write_trajectories(tmp_path / "other")


def test_nothing_kept_says_why(tmp_path: Path) -> None:
    collection = TrajectoryFolder(tmp_path / "out", settings_of("toy", "blind", EXPERT, 0.0))
    with pytest.raises(DataError, match=r"no first prompt gained anything \(4\)"):
        make_trajectories(targets(2, 7), Blind(), collection, EXPERT, held_out=0.0)
    with pytest.raises(DataError, match="there is no target"):
        make_trajectories(
            [], Brush(), TrajectoryFolder(tmp_path / "none", settings_of("toy", "brush", EXPERT, 0.0)), EXPERT
        )


def test_a_target_at_the_edge_has_a_box_on_the_grid() -> None:
    truth = np.zeros((64, 64), dtype=bool)
    truth[60:, 60:] = True
    image = np.repeat(np.where(truth, 190, 60).astype(np.uint8)[..., None], 3, -1)
    edge = Target("edge.png", "p", "disk", image, truth)
    for seed in range(5):
        demonstrate(edge, Brush(), replace(EXPERT, jitter=0.9), "hybrid", np.random.default_rng(seed), RewardWeights())


@pytest.mark.parametrize(
    "wrong", [{"ways": ()}, {"ways": ("boxes",)}, {"max_turns": 0}, {"min_iou": 1.5}, {"tremor": -1.0}, {"retries": -1}]
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Expert(**wrong)  # type: ignore[arg-type]
