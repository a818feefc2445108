"""A whole training on drawn clips: their frames are chosen alike in training and by predict.py, which names what does not open."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from template_kit import Run, load

FAST = ("--minutes", "0.05", "--set", "device=cpu", "network.width=4", "network.pretrained=none", "max_epochs=2")


def draw(file: Path, sick: bool, seed: int) -> None:
    """A clip of seven frames in which a spot moves, bright in the sick."""
    import av

    random = np.random.default_rng(seed)
    with av.open(str(file), "w") as out:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        for step in range(7):
            image = random.integers(20, 60, (32, 48), np.uint8)
            image[8 + step : 16 + step, 20:30] = 220 if sick else 90
            colour = np.repeat(image[..., None], 3, axis=-1)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(colour, format="rgb24")))
        out.mux(stream.encode())


@pytest.mark.parametrize(("frames", "dims"), [(1, 2), pytest.param(4, 3, marks=pytest.mark.slow)])
def test_clips_from_the_index_to_prediction(project: Path, run: Run, frames: int, dims: int) -> None:
    pytest.importorskip("av")
    (project / "data").mkdir()
    records = []
    for at in range(24):
        draw(project / f"data/c{at:02d}.mp4", at % 2 > 0, at)
        path = f"data/c{at:02d}.mp4#frames={frames}"
        records.append({"image_path": path, "labels": [("well", "sick")[at % 2]], "patient": f"p{at}"})
    for part, part_records in (("train", records[:20]), ("test", records[20:])):
        (project / f"Datapath/{part}.json").write_text(json.dumps(part_records))
    (project / "Datapath/label_dict.json").write_text(json.dumps({"well": 0, "sick": 1}))
    run("plan.py", *FAST)
    plan = json.loads((project / "plan.json").read_text())
    assert (plan["dims"], plan["frames"]) == (dims, frames)
    run("train.py")
    run("export.py")
    assert any(line.startswith("av") for line in (project / "Deliver/requirements.txt").read_text().splitlines())
    assert "clips" in (project / "Deliver/README.md").read_text()
    (project / "data/torn.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    paths = ["data/c20.mp4", f"data/c20.mp4#frames={frames}", "data/torn.mp4", "data/gone.mp4"]
    done = run("Deliver/predict.py", *paths, "-o", "out.json", check=False)
    assert done.returncode == 1, done.stderr
    default_frames, explicit_frames, torn, missing = json.loads((project / "out.json").read_text())
    assert default_frames["probabilities"] == pytest.approx(explicit_frames["probabilities"], abs=1e-6)
    assert "torn.mp4" in torn["error"]
    assert "no such file" in missing["error"]


def test_an_index_names_as_many_frames_of_every_clip() -> None:
    clips_module = load("clips")
    assert clips_module.find_frame_count([{"image_path": "a.mp4#frames=3"}, {"image_path": "b.gif#frames=3"}]) == 3
    assert clips_module.find_frame_count([{"image_path": "a.png"}, {"image_path": {"t1": "a.nii"}}]) is None
    with pytest.raises(SystemExit, match="same number of frames"):
        clips_module.find_frame_count([{"image_path": "a.mp4#frames=3"}, {"image_path": "b.mp4"}])
    assert clips_module.add_frame_count("a.mp4", 3) == "a.mp4#frames=3"
    assert clips_module.add_frame_count("a.npz#x[1]", 3) == "a.npz#x[1]"
