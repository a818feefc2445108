"""The state between an agent and a segmenter."""

from __future__ import annotations

import numpy as np
import pytest
from interactive_kit import Threshold, make_disk_image

from m3b.errors import UsageError
from m3b.interactive import BoxPrompt, Episode, MaskProposal, Point
from m3b.interactive.segmenter import ByteImage, Mask


class ScriptedSegmenter:
    """Answers masks whose expected IoU a test wrote."""

    name = "said"

    def __init__(self, *scores: float) -> None:
        self.scores = list(scores)
        self.predict_calls: list[tuple[int, int, bool]] = []

    def set_image(self, image: ByteImage) -> None:
        self.shape = image.shape[:2]

    def predict(self, boxes: object, points: object, previous: MaskProposal | None = None) -> MaskProposal:
        self.predict_calls.append((len(boxes), len(points), previous is not None))  # type: ignore[arg-type]
        mask: Mask = np.zeros(self.shape, dtype=bool)
        mask[: len(self.predict_calls)] = True
        return MaskProposal(mask, self.scores.pop(0))


def test_the_most_trusted_mask_is_kept_and_not_the_last() -> None:
    episode = Episode(ScriptedSegmenter(0.5, 0.9, 0.2), make_disk_image()[0])
    for place in (10, 20, 30):
        episode.add(Point(place, place))
    assert episode.best is not None
    assert episode.best.number == 2


def test_of_equals_the_later_is_kept() -> None:
    episode = Episode(ScriptedSegmenter(0.5, 0.5), make_disk_image()[0])
    episode.add(Point(1, 1))
    episode.add(Point(20, 20))
    assert episode.best is not None
    assert episode.best.number == 2


def test_the_agent_may_choose() -> None:
    episode = Episode(ScriptedSegmenter(0.5, 0.9), make_disk_image()[0])
    episode.add(Point(1, 1))
    episode.add(Point(20, 20))
    episode.stop(1)
    assert episode.best is not None
    assert episode.best.number == 1
    with pytest.raises(ValueError, match="no mask 3; there are 1 to 2"):
        episode.stop(3)


def test_a_point_refines_the_mask_that_stands_and_a_box_begins_anew() -> None:
    segmenter = ScriptedSegmenter(0.5, 0.5, 0.5)
    episode = Episode(segmenter, make_disk_image()[0])
    episode.add(BoxPrompt(0, 0, 10, 10))
    episode.add(Point(5, 5))
    episode.add(BoxPrompt(0, 0, 12, 12))
    assert segmenter.predict_calls == [(1, 0, False), (1, 1, True), (1, 1, False)]


def test_a_click_of_the_other_sign_takes_the_place_of_its_neighbour() -> None:
    episode = Episode(ScriptedSegmenter(0.5, 0.5, 0.5), make_disk_image()[0])
    episode.add(Point(20, 20))
    episode.add(Point(40, 40))
    episode.add(Point(21, 20, positive=False))
    assert [(point.x, point.positive) for point in episode.points] == [(40, True), (21, False)]


def test_undoing_goes_back_to_the_mask_before() -> None:
    segmenter = ScriptedSegmenter(0.5, 0.6, 0.7)
    episode = Episode(segmenter, make_disk_image()[0])
    episode.add(BoxPrompt(0, 0, 10, 10))
    episode.add(Point(5, 5))
    turn = episode.undo()
    assert turn is not None
    assert turn.number == 1
    assert episode.points == ()
    episode.undo()
    assert episode.current is None
    with pytest.raises(ValueError, match="no prompt"):
        episode.undo()
    assert len(episode.turns) == 2  # undone masks stay, so that the best is never lost


def test_a_first_proposal_is_corrected_and_cannot_be_undone() -> None:
    image, truth = make_disk_image()
    segmenter = Threshold()
    episode = Episode(segmenter, image, MaskProposal(truth, 0.5))
    episode.add(Point(5, 5, positive=False))
    assert segmenter.asked[0][2]
    episode.undo()
    with pytest.raises(ValueError, match="no prompt"):
        episode.undo()


def test_a_segmenter_of_another_size_is_named() -> None:
    class Small(ScriptedSegmenter):
        def predict(self, boxes: object, points: object, previous: MaskProposal | None = None) -> MaskProposal:
            return MaskProposal(np.zeros((4, 4), dtype=bool), 0.5)

    with pytest.raises(UsageError, match=r"said answered a mask of \(4, 4\) for an image of \(60, 90\)"):
        Episode(Small(), make_disk_image()[0]).add(Point(1, 1))


def test_only_colour_pictures_are_taken() -> None:
    with pytest.raises(UsageError, match="uint8"):
        Episode(ScriptedSegmenter(), np.zeros((4, 4), dtype=np.uint8))
