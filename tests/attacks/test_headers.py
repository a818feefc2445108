"""Image files that name another file as theirs: each would show a secret's bytes as voxels."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import SimpleITK as sitk

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.dataset.audit.opening import open_images
from m3b.dataset.audit.probes import is_stored_as_float
from m3b.dataset.reading import geometry, read_image, read_mask
from m3b.errors import DataError, ModelError
from m3b.isolation.sandbox import choose_sandbox
from m3b.messages import ToolCall
from m3b.models import stage_cases
from m3b.tools import Roots, Toolbox

SECRET = b"sk-secret-key-01"
META = "ObjectType = Image\nNDims = 3\nDimSize = 4 2 2\nElementType = MET_UCHAR\n{more}ElementDataFile = {data}\n"
NRRD = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 2 2\nencoding: raw\n{more}data file: {data}\n"


def meta(data: str, extra_lines: str = "") -> bytes:
    return META.format(data=data, more=extra_lines).encode()


def nrrd(data: str, extra_lines: str = "") -> bytes:
    return NRRD.format(data=data, more=extra_lines).encode()


HEADERS: dict[str, Callable[[str], bytes]] = {
    "list.mhd": lambda secret: meta("LIST", "HeaderSize = 0\n") + f"{secret}\n".encode() * 2,
    "list-dims.mhd": lambda secret: meta("LIST 3D") + f"{secret}\n".encode(),
    "absolute.mhd": lambda secret: meta(secret),
    "dots.mhd": lambda secret: meta("../../outside/secret"),
    "pattern.mhd": lambda secret: meta("../../outside/secre%c 116 116 1"),
    "linked.mhd": lambda secret: meta("linked.raw"),
    "pipe.mhd": lambda secret: meta("pipe.raw"),
    "not-local.mha": lambda secret: meta(secret),
    "twice.mha": lambda secret: b"Comment = ElementDataFile = LOCAL\n" + meta(secret),
    "carriage.mha": lambda secret: b"Comment = x\rElementDataFile = " + secret.encode() + b"\r" + meta("LOCAL"),
    "separators.mhd": lambda secret: meta("= linked.raw"),
    "prefix.mhd": lambda secret: meta("LISTED") + f"{secret}\n".encode() * 2,
    "local-link.mha": lambda secret: meta("LoCaL"),
    "control.mhd": lambda secret: meta("\x0blinked.raw"),
    "home.mhd": lambda secret: meta("~linked.raw"),
    "swallowed.mhd": lambda secret: b"no key\nElementDataFile = decoy.raw\n" + meta("linked.raw"),
    "trailing.nhdr": lambda secret: nrrd("linked.raw "),
    "standard-input.nhdr": lambda secret: nrrd("-"),
    "list.nhdr": lambda secret: nrrd("LIST") + f"{secret}\n{secret}\n".encode(),
    "absolute.nhdr": lambda secret: nrrd(secret, "byte skip: 0\n"),
    "pattern.nhdr": lambda secret: nrrd(secret[:-1] + "%c 116 116 1"),
    "linked.nhdr": lambda secret: nrrd("linked.raw"),
    "detached.nrrd": lambda secret: nrrd(secret),
    "spelled.nrrd": lambda secret: nrrd(secret).replace(b"data file:", b"DataFile:"),
    "late.nrrd": lambda secret: nrrd(secret, "# " + "x" * 70_000 + "\n"),
}


class Place:
    """A run's folders with a secret beside them, and the ways in which m3b opens an image."""

    def __init__(self, top: Path) -> None:
        self.work, self.secret = top / "run/work", top / "outside/secret"
        self.images = self.work / "images"
        for folder in (self.images, self.secret.parent):
            folder.mkdir(parents=True)
        self.secret.write_bytes(SECRET)
        for name in ("linked.raw", "LoCaL", "~linked.raw", "linked.raw ", "\x0blinked.raw"):
            (self.images / name).symlink_to(self.secret)
        for name in ("= linked.raw", "LISTED", "decoy.raw", "-", "LoCaL.raw"):
            (self.images / name).write_bytes(bytes(16))
        os.mkfifo(self.images / "pipe.raw")

    def preview(self, name: str) -> str:
        with Toolbox(Roots(self.work, {}), sandbox=choose_sandbox("off")) as box:
            return box.call(ToolCall("1", "preview_files", {"paths": [f"images/{name}"]}), ("preview_files",)).text

    def refused(self, name: str) -> None:
        path = f"images/{name}"
        preview = self.preview(name)
        values = [str(byte) for byte in SECRET]
        assert not all(value in preview for value in values[:3]), preview
        assert "uint8" not in preview, preview
        for reader in (read_image, read_mask, geometry):
            with pytest.raises(DataError):
                reader(path, str(self.work))
        record = Record(path, labels=("a",), patient="p")
        looks = open_images(Index((record,), (), ("a",)), self.work, set(), float("inf"))
        assert all(look.error for look in looks.values())
        with pytest.raises(ModelError):
            stage_cases([path], self.work.parent / "staged", True, base=self.work)
        assert not any(
            SECRET in file.read_bytes() for file in (self.work.parent / "staged").rglob("*") if file.is_file()
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_name_another_file(place: Place, name: str) -> None:
    (place.images / name).write_bytes(HEADERS[name](str(place.secret)))
    place.refused(name)


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_hdf5_with_values_elsewhere(place: Place, kind: str) -> None:
    file = place.images / "a.h5"
    with h5py.File(file, "w") as out:
        if kind == "external":
            out.create_dataset("image", (4, 4), "u1", external=[(str(place.secret), 0, 16)])
        else:
            with h5py.File(place.secret.parent / "other.h5", "w") as source_file:
                source_file["image"] = np.frombuffer(SECRET, "u1").reshape(4, 4)
            layout = h5py.VirtualLayout((4, 4), "u1")
            layout[:] = h5py.VirtualSource(str(place.secret.parent / "other.h5"), "image", (4, 4))
            out.create_virtual_dataset("image", layout)
    assert "115" not in place.preview("a.h5")
    with pytest.raises(DataError, match="other files"):
        read_image("images/a.h5", str(place.work))
    with pytest.raises(ModelError):
        stage_cases(["images/a.h5#image[0]"], place.work.parent / "staged", True, base=place.work)


def test_an_external_link_of_hdf5_is_not_followed(place: Place) -> None:
    with h5py.File(place.secret.parent / "other.h5", "w") as source_file:
        source_file["image"] = np.frombuffer(SECRET, "u1").reshape(4, 4)
    with h5py.File(place.images / "a.h5", "w") as out:
        out["image"] = h5py.ExternalLink(str(place.secret.parent / "other.h5"), "image")
    assert "115" not in place.preview("a.h5")
    with pytest.raises(DataError):
        read_image("images/a.h5#image", str(place.work))


def test_an_analyze_pair_with_linked_voxels(place: Place) -> None:
    import nibabel

    nibabel.save(nibabel.Spm99AnalyzeImage(np.zeros((4, 2, 2), np.uint8), np.eye(4)), place.images / "a.img")
    (place.images / "a.img").unlink()
    (place.images / "a.img").symlink_to(place.secret)
    preview = place.preview("a.hdr")
    assert "link" in preview
    assert "uint8" not in preview


@pytest.mark.parametrize(
    "name", ["a.png", "a.nii", "a.nii.gz", "a.mha", "a.nrrd", "a.npy", "a.npz", "a.h5", "a.dcm", "a.pt"]
)
def test_pipes_and_devices_as_images_do_not_hang(place: Place, name: str) -> None:
    os.mkfifo(place.images / name)
    place.refused(name)
    (place.images / name).unlink()
    (place.images / name).symlink_to("/dev/zero")
    with pytest.raises(DataError):
        read_image(f"images/{name}", str(place.work))
    assert place.preview(name)


def test_postscript_in_a_picture_is_not_run(place: Place) -> None:
    (place.images / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n")
    assert "cannot be read as .png" in place.preview("a.png")
    for reader in (read_image, read_mask, geometry):
        with pytest.raises(DataError):
            reader("images/a.png", str(place.work))


@pytest.mark.parametrize("ending", ["mha", "mhd", "nrrd", "nhdr"])
@pytest.mark.parametrize("packed", [False, True])
def test_honest_headers_still_open(place: Place, ending: str, packed: bool) -> None:
    name, array = f"a.{ending}", np.arange(16, dtype=np.uint8).reshape(2, 2, 4)
    sitk.WriteImage(sitk.GetImageFromArray(array), str(place.images / name), packed)
    assert sorted(read_image(f"images/{name}", str(place.work)).array.ravel()) == list(range(16))
    assert "range 0 to 15" in place.preview(name) or "0 to 15" in place.preview(name)
    assert not is_stored_as_float(f"images/{name}", str(place.work))
    staged = stage_cases([f"images/{name}"], place.work.parent / "staged", True, base=place.work)
    assert sorted(read_image(str(staged.paths[0]), str(staged.folder)).array.ravel()) == list(range(16))
