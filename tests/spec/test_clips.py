"""Clips as cases: one a file, of each the frames that the reading states, and what does not open left out by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from clip_kit import animation, frame, ultrasound, video
from pydantic import ValidationError
from spec_kit import picture, read

from m3b.data.records import Record
from m3b.data.spec.execute import execute
from m3b.data.spec.model import IndexSpec
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey
from m3b.dataset.reading import read_image
from m3b.dataset.view import needed_files_of
from m3b.errors import DataError
from m3b.models.staging import stage_cases

REQUEST = "Tell COVID from healthy lungs on ultrasound clips"
GREYS = (40, 80, 120, 160, 200, 240)


def close(array: np.ndarray, value: int) -> bool:
    """Whether a frame is that of a grey, as far as compression leaves it."""
    return bool(np.abs(array[0].astype(int) - frame(value)).mean() < 6)


@pytest.mark.parametrize("name", ["a.mp4", "a.avi", "a.mpg", "a.mkv"])
def test_a_video_is_its_middle_frame_or_evenly_spaced_ones(tmp_path: Path, name: str) -> None:
    av = pytest.importorskip("av")
    if name == "a.mpg":
        with av.open(str(tmp_path / name), "w") as out:
            stream = out.add_stream("mpeg1video", rate=25)
            stream.width = stream.height = 32
            stream.bit_rate = 4_000_000
            for value in GREYS:
                colour = np.repeat(frame(value)[..., None], 3, axis=-1)
                out.mux(stream.encode(av.VideoFrame.from_ndarray(colour, format="rgb24")))
            out.mux(stream.encode())
    else:
        video(tmp_path / name, GREYS)
    for path in (name, f"{name}#frames=1"):
        middle = read_image(path, str(tmp_path))
        assert (middle.dims, middle.array.shape[1:]) == (2, (32, 32))
        assert close(middle.array, 160)
    three = read_image(f"{name}#frames=3", str(tmp_path))
    assert (three.dims, three.array.shape[1:]) == (3, (32, 32, 3))
    assert all(close(three.array[..., at], value) for at, value in enumerate((80, 160, 240)))
    assert read_image(f"{name}#frames=9", str(tmp_path)).array.shape[-1] == 9, "a short clip repeats frames"


def test_frames_of_animations_and_of_ultrasound_in_dicom(tmp_path: Path) -> None:
    for file in (animation(tmp_path / "a.gif", GREYS), ultrasound(tmp_path / "a.dcm", GREYS)):
        assert close(read_image(f"{file}#frames=1").array, 160)
        assert [close(read_image(f"{file}#frames=2").array[..., at], v) for at, v in enumerate((80, 200))] == [
            True,
            True,
        ]
        assert read_image(str(file)).array.shape[-1] == len(GREYS), "without a number all of it, as before"
    assert read_image(f"{picture(tmp_path / 'one.png')}#frames=1").dims == 2


def test_what_is_no_clip_says_so(tmp_path: Path) -> None:
    (tmp_path / "torn.mp4").write_bytes(video(tmp_path / "whole.mp4", GREYS).read_bytes()[:300])
    (tmp_path / "text.avi").write_text("no video")
    (tmp_path / "list.mp4").write_text("ffconcat version 1.0\nfile 'whole.mp4'\n")
    (tmp_path / "list.mkv").write_text("#EXTM3U\n#EXTINF:1,\nwhole.mp4\n")
    video(tmp_path / "none.mp4", ())
    for name in ("torn.mp4", "text.avi", "list.mp4", "list.mkv", "none.mp4", "gone.mp4#frames=2"):
        with pytest.raises(DataError, match=name.partition("#")[0]):
            read_image(name, str(tmp_path))
    nib.save(nib.Nifti1Image(np.zeros((8, 8, 4), np.float32), np.eye(4)), tmp_path / "a.nii.gz")
    with pytest.raises(DataError, match="no such part"):
        read_image("a.nii.gz#frames=2", str(tmp_path))


def test_a_folder_of_pictures_with_a_clip_beside_them_is_what_it_was(tmp_path: Path) -> None:
    for at in range(3):
        picture(tmp_path / "s" / f"{at}.png")
    video(tmp_path / "s" / "all.mp4", GREYS)
    assert read_image("s", str(tmp_path)).array.shape == (1, 12, 16, 3)


def clips(root: Path, number: int = 16) -> Path:
    for at in range(number):
        low, kind = 20 + 4 * at, ("covid", "healthy")[at % 2]
        make = animation if at % 4 < 2 else video
        make(
            root / kind / f"clip_{at:02d}{'.gif' if at % 4 < 2 else '.mp4'}",
            [low + 15 * step for step in range(5 + at % 3)],
        )
    return root


SPEC = {
    "task": "diagnosis",
    "images": {"files": {"pattern": "{kind:word}/{name}.{mp4,gif,avi}"}, "frames": 1},
    "labels": {"sources": ["{kind}"], "classes": {"healthy": ["healthy"], "covid": ["covid"]}},
}


def test_a_folder_of_clips_is_proposed_with_its_middle_frames(tmp_path: Path) -> None:
    root = clips(tmp_path / "data")
    found = propose(survey(root), Ask("diagnosis", REQUEST))
    assert sufficient(found) == ""
    assert found[0].spec.images.frames == 1
    assert any("of each of the 16 clips the middle frame is the case" in one for one in found[0].evidence)
    made = execute(found[0].spec, root, name="set", work=tmp_path)
    assert len(made.train) + len(made.test) == 16
    assert all(str(record.image).endswith("#frames=1") for record in (*made.train, *made.test))
    assert not made.patients
    assert made.accounting.whole


def test_clips_that_do_not_open_or_are_copies_are_left_out_by_name(tmp_path: Path) -> None:
    root = clips(tmp_path / "data")
    (root / "covid" / "torn.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    video(root / "healthy" / "none.avi", ())
    shutil.copy(root / "healthy" / "clip_01.gif", root / "healthy" / "again.gif")
    made = read(root, tmp_path, **SPEC)
    assert len(made.train) + len(made.test) == 16
    reasons = made.accounting.reasons()
    assert reasons["the image does not open"] == (2, ("covid/torn.mp4", "healthy/none.avi"))
    assert reasons["an exact copy of another image of the index"][0] == 1
    assert any("the middle frame is what a model sees" in note for note in made.notes)


def test_several_frames_are_one_case_and_lie_on_one_side(tmp_path: Path) -> None:
    made = read(clips(tmp_path / "data"), tmp_path, **{**SPEC, "images": {**SPEC["images"], "frames": 4}})
    files = [str(record.image).partition("#")[0] for record in (*made.train, *made.test)]
    assert len(set(files)) == len(files) == 16
    (tmp_path / "data" / "set").symlink_to(tmp_path / "data")
    assert read_image(str(made.train[0].image), str(tmp_path)).array.shape[1:] == (32, 32, 4)


def test_ultrasound_in_dicom_is_a_clip_a_file_and_its_patient_is_known(tmp_path: Path) -> None:
    for at in range(16):
        kind = ("covid", "healthy")[at % 2]
        values = [20 + 4 * at + 15 * step for step in range(5)]
        ultrasound(tmp_path / "d" / kind / f"IM{at:04d}", values, f"1.2.3.{at // 4}", f"p{at // 4}")
    found = propose(survey(tmp_path / "d"), Ask("diagnosis", REQUEST))
    assert sufficient(found) == ""
    assert found[0].spec.images.frames == 1
    made = execute(found[0].spec, tmp_path / "d", name="set", work=tmp_path)
    assert len(made.train) + len(made.test) == 16
    assert made.patients
    assert not {r.patient for r in made.train} & {r.patient for r in made.test}


def test_marks_belong_to_a_picture_and_not_to_a_clip() -> None:
    images = {"files": {"pattern": "*.mp4"}, "frames": 1}
    masks = {"files": {"pattern": "*.png"}, "classes": {"a": 1}}
    with pytest.raises(ValidationError, match="belongs to one picture and not to a clip"):
        IndexSpec.model_validate({"task": "segmentation", "images": images, "masks": masks})
    with pytest.raises(ValidationError, match="a clip is a case of its own"):
        IndexSpec.model_validate({**SPEC, "images": {**SPEC["images"], "several": "slices"}})


def test_training_is_shown_the_file_and_a_staged_case_keeps_its_frames(tmp_path: Path) -> None:
    video(tmp_path / "a.mp4", GREYS)
    assert needed_files_of([Record("a.mp4#frames=3")], tmp_path).files == {"a.mp4"}
    (tmp_path / "staged").mkdir()
    staged = stage_cases(["a.mp4#frames=3"], tmp_path / "staged", True, base=tmp_path)
    assert staged.paths == ("case_0001.mp4#frames=3",)
    there = read_image(str(staged.paths[0]), str(tmp_path / "staged"))
    assert there.array.shape == read_image("a.mp4#frames=3", str(tmp_path)).array.shape
