"""Clips: as many frames as they have, and grey ones are grey, whatever a codec made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from m3b.dataset.formats import read_image
from m3b.dataset.proposals.image_sets import list_image_sets
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk

av = pytest.importorskip("av")


def write_clip(path: Path, seed: int, frames: int, tint: tuple[float, ...] = (1, 1, 1), mark: int = 0) -> None:
    """Write a clip of a moving spot in noise, coloured by `tint`, with a red mark of `mark` x `mark` pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for step in range(frames):
            grey = random.integers(20, 60, (48, 64)).astype(float)
            grey[8 + step % 20 : 20 + step % 20, 20:34] = 200
            colour = grey[..., None] * np.array(tint)
            colour[:mark, :mark] = (220, 20, 20)
            array = np.rint(colour + random.integers(-1, 2, colour.shape)).clip(0, 255).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(array, format="rgb24")))
        container.mux(stream.encode())


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize(("frames", "proposed"), [(8, 8), (40, 16)])
def test_a_proposal_takes_no_more_frames_than_clips_have(
    tmp_path: Path, frames: int, proposed: int, suffix: str
) -> None:
    """Clips of 8 frames were proposed with 16; Matroska files do not say how many they have."""
    for number in range(16):
        write_clip(tmp_path / f"{('ill', 'well')[number % 2]}/{number:02d}.{suffix}", number, frames)
    inventory = walk(tmp_path)
    image_sets = list_image_sets(survey_inventory(inventory, SurveyLimits()), inventory)
    assert max(image_set.images.frames for image_set in image_sets) == proposed


@pytest.mark.parametrize(
    ("tint", "mark", "channels"),
    [((1, 1, 1), 0, 1), ((1.01, 1, 0.99), 0, 1), ((1.3, 1, 0.8), 0, 3), ((1, 1, 1), 12, 3)],
    ids=["grey", "rounded", "tinted", "marked"],
)
def test_colour_of_a_clip_is_more_than_what_a_codec_makes(
    tmp_path: Path, tint: tuple[float, ...], mark: int, channels: int
) -> None:
    """Grey clips were read with three channels, some of a set with one."""
    write_clip(tmp_path / "a.mp4", 0, 6, tint, mark)
    assert read_image("a.mp4#frames=4", tmp_path).array.shape[0] == channels
