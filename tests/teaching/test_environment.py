"""The environment that TRL plays in, without TRL: m3b's own tools, several episodes at once, the reward."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toy_world import Brush, targets

from m3b.interactive.agent import SYSTEM_PROMPT
from m3b.interactive.pictures import PictureStyle
from m3b.interactive.segmenter import BoxPrompt, ByteImage, to_grid
from m3b.interactive.simulated_user import make_true_box
from m3b.interactive.targets import Target, compute_overlap
from m3b.teaching.environment import (
    EPISODE_OVER,
    EpisodeSetup,
    PromptingEnvironment,
    SharedSegmenter,
    make_reward_functions,
)
from m3b.teaching.reward import RewardWeights

TARGETS = targets(3, 11)


def stage(**settings: Any) -> EpisodeSetup:
    return EpisodeSetup(TARGETS, SharedSegmenter(Brush()), style=PictureStyle(32, rulers=False), **settings)


def tight(target: Target) -> list[int]:
    rows, columns = target.truth.shape
    box = make_true_box(target.truth)
    return [
        to_grid(box.x0, columns),
        to_grid(box.y0, rows),
        to_grid(box.x1 - 0.01, columns),
        to_grid(box.y1 - 0.01, rows),
    ]


def make_environment(number: int = 0, **settings: Any) -> PromptingEnvironment:
    environment = PromptingEnvironment(stage(**settings))
    (picture,) = environment.reset(number=number, prompt="as the trainer passes the whole row")
    assert picture["image"].size == (32, 32)
    return environment


def words(blocks: list[dict[str, Any]]) -> str:
    return str(blocks[0]["text"])


def test_a_good_episode_earns_nearly_all() -> None:
    environment = make_environment()
    answer = environment.add_box(box=tight(TARGETS[0]))
    assert [block["type"] for block in answer] == ["text", "image"]
    assert words(answer).startswith("Mask 1 covers")
    assert words(environment.stop(keep=1)) == "Stopped."
    score = environment._score()
    assert score.form == 1
    assert score.total > 0.9


def test_rows_hold_what_the_agent_is_told_at_work() -> None:
    rows = stage(max_turns=2).to_rows()
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert rows[0]["prompt"][0] == {"role": "system", "content": SYSTEM_PROMPT}
    assert rows[0]["prompt"][1]["content"] == "Target: disk\nThe image has 64 x 64 pixels. You have 2 turns."
    assert "data" not in json.dumps(rows), "pictures are drawn when an episode begins"


def test_faults_are_told_and_counted() -> None:
    environment = make_environment()
    assert "is not on the grid" in words(environment.add_box(box=[0, 0, 5000, 10]))
    assert "Unknown argument 'where'" in words(environment.add_point(where=3))
    assert "missing" in words(environment.add_box())
    assert "nothing" in words(environment.undo()) or "no prompt" in words(environment.undo())
    environment.add_box(box=tight(TARGETS[0]))
    environment.stop()
    assert words(environment.undo()) == EPISODE_OVER
    score = environment._score()
    assert environment._fault_count >= 5
    assert score.form == 0.5, "the last call was no stop"


def test_turns_end() -> None:
    environment = make_environment(max_turns=1)
    environment.add_box(box=tight(TARGETS[0]))
    assert "All turns are used" in words(environment.add_box(box=[0, 0, 999, 999]))
    environment.stop()
    assert environment._score().turns == 1


def test_episodes_that_take_turns_keep_their_own_image() -> None:
    shared = EpisodeSetup(TARGETS, SharedSegmenter(Brush()), style=PictureStyle(32, rulers=False))
    first, second = PromptingEnvironment(shared), PromptingEnvironment(shared)
    first.reset(number=0)
    second.reset(number=1)
    for environment, target in ((first, TARGETS[0]), (second, TARGETS[1])):
        environment.add_box(box=tight(target))
    first.add_point(point=tight(TARGETS[0])[:2], positive=False)
    second.stop()
    first.stop()
    alone = make_environment(0)
    alone.add_box(box=tight(TARGETS[0]))
    alone.add_point(point=tight(TARGETS[0])[:2], positive=False)
    alone.stop()
    assert first._score() == alone._score()
    assert second._score().quality > 0.9


def test_an_image_is_set_again_only_when_another_was() -> None:
    set_images: list[int] = []

    class Watched(Brush):
        def set_image(self, image: ByteImage) -> None:
            set_images.append(id(image))
            super().set_image(image)

    shared = SharedSegmenter(Watched())
    first, second = shared.borrow(), shared.borrow()
    first.set_image(TARGETS[0].image)
    second.set_image(TARGETS[1].image)
    for view in (first, first, second, first):
        view.predict([BoxPrompt(0, 0, 20, 20)], [])
    assert len(set_images) == 3


def test_the_functions_for_the_trainer_sum_to_the_reward() -> None:
    weights = RewardWeights(fault=0.1)
    environment = make_environment(reward=weights)
    environment.add_box(box=[9, 9, 9, 9])
    environment.add_box(box=tight(TARGETS[0]))
    environment.stop()
    functions, factors = make_reward_functions(weights)
    parts = [function(environments=[environment], prompts=[], completions=[])[0] for function in functions]
    assert sum(part * factor for part, factor in zip(parts, factors, strict=True)) == pytest.approx(
        environment._score().total
    )
    dice = compute_overlap(environment._episode.turns[0].mask, TARGETS[0].truth)[0]
    assert parts[1] > 0.9 * dice
