"""Files that a script writes for m3b's own eyes: headers, links, pipes, markup and archives that point at a secret."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from attacks.conftest import KEY
from attacks.test_headers import HEADERS, meta

Run = tuple[Any, Path]
SECRET = b"outside-secret!!"  # as many bytes as the headers below have voxels


def hdf5(make: Callable[[h5py.File, str], None]) -> Callable[[str], bytes]:
    def build_file(secret: str) -> bytes:
        out = io.BytesIO()
        with h5py.File(out, "w") as file:
            make(file, secret)
        return out.getvalue()

    return build_file


def _virtual(file: h5py.File, secret: str) -> None:
    layout = h5py.VirtualLayout((16,), "u1")
    layout[:] = h5py.VirtualSource(secret, "image", (16,))
    file.create_group("a/b").create_virtual_dataset("image", layout)


def _external(file: h5py.File, secret: str) -> None:
    file.create_group("a/b").create_dataset("image", (16,), "u1", external=[(secret, 0, 16)])


def _link(file: h5py.File, secret: str) -> None:
    file.create_group("a/b")["image"] = h5py.ExternalLink(secret, "image")


def _soft(file: h5py.File, secret: str) -> None:
    _external(file, secret)
    file["image"] = h5py.SoftLink("/a/b/image")


def ome(secret: str) -> bytes:
    out = io.BytesIO()
    xml = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0"><Pixels '
        'ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" SizeX="7" SizeY="2" SizeZ="2" SizeC="1" SizeT="1">'
        f'<BinData/><TiffData IFD="0" FirstZ="1"><UUID FileName="{secret}">urn:uuid:1</UUID></TiffData></Pixels></Image></OME>'
    )
    Image.fromarray(np.zeros((2, 7), np.uint8)).save(out, "TIFF", description=xml)
    return out.getvalue()


def svg(secret: str) -> bytes:
    return (
        f'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY x SYSTEM "file://{secret}">]>'
        f'<svg xmlns="http://www.w3.org/2000/svg"><text>&x;</text><image href="file://{secret}"/></svg>'
    ).encode()


def laughs(secret: str) -> bytes:
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    return f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">{levels}]><x>&l11;</x>'.encode()


def dicomdir(secret: str) -> bytes:
    import pydicom
    from pydicom.dataset import Dataset, FileMetaDataset

    entry = Dataset()
    entry.DirectoryRecordType = "IMAGE"
    entry.ReferencedFileID = ["..", "..", "..", "SECRET"]
    directory = Dataset()
    directory.file_meta = FileMetaDataset()
    directory.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.1.3.10"
    directory.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    directory.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    directory.FileSetID = "X"
    directory.DirectoryRecordSequence = [entry]
    out = io.BytesIO()
    directory.save_as(out, enforce_file_format=True)
    return out.getvalue()


FILES: dict[str, Callable[[str], bytes]] = {
    **{name: make for name, make in HEADERS.items() if "linked" not in name and "pipe" not in name},
    "external.h5": hdf5(_external),
    "virtual.h5": hdf5(_virtual),
    "outside.h5": hdf5(_link),
    "soft.h5": hdf5(_soft),
    "stack.ome.tif": ome,
    "drawing.svg": svg,
    "drawing.png": svg,
    "drawing.xml": svg,
    "laughs.xml": laughs,
    "laughs.svg": laughs,
    "set/DICOMDIR": dicomdir,
}


def shows_nothing(output: str) -> None:
    assert SECRET.decode() not in output
    assert KEY not in output
    assert ", ".join(str(byte) for byte in SECRET[:3]) not in output
    assert "33 to 117" not in output, "the least and largest byte of the secret, as a range of voxels"


def test_these_bytes_are_shown_where_they_may_be(victim: Run) -> None:
    """What the next test looks for is what it would see."""
    box, top = victim
    (top / "run/work/plain.raw").write_bytes(SECRET)
    (top / "run/work/plain.mhd").write_bytes(meta("plain.raw"))
    assert "33 to 117" in box.use("preview_files", paths=["plain.mhd"])["text"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_points_at_a_secret(victim: Run, name: str) -> None:
    box, top = victim
    (top / "secret").write_bytes(SECRET)
    content = base64.b64encode(FILES[name](f"{top}/secret")).decode()
    done = box.script(
        "import base64, os\n"
        f"os.makedirs('images/set', exist_ok=True)\nopen('images/{name}', 'wb').write(base64.b64decode({content!r}))"
    )
    assert done["data"]["exit_code"] == 0, done
    for paths in ([f"images/{name}"], ["images"], ["images/set"]):
        shows_nothing(box.use("preview_files", paths=paths)["text"])
    shows_nothing(box.use("read_files", paths=[f"images/{name}"])["text"].replace(f"{top}/secret", ""))


SPECIAL_FILES = {
    "link": "os.symlink({secret!r}, {name!r})",
    "chain of links": "os.symlink({secret!r}, 'way'); os.symlink('way', {name!r})",
    "link through a folder": "os.symlink({top!r}, 'folder'); os.symlink('folder/secret.txt', {name!r})",
    "link to memory": "os.symlink('/proc/self/mem', {name!r})",
    "link to the environment": "os.symlink('/proc/{pid}/environ', {name!r})",
    "link to an endless device": "os.symlink('/dev/zero', {name!r})",
    "link to a descriptor": "os.symlink('/proc/self/fd/0', {name!r})",
    "pipe": "os.mkfifo({name!r})",
    "socket": "import socket; socket.socket(socket.AF_UNIX).bind({name!r})",
    "sparse terabyte": "open({name!r}, 'wb').truncate(2**36)",
    "link to itself": "os.symlink({name!r}, {name!r})",
}
NAMES = ("image.png", "image.nii.gz", "image.npy", "table.csv", "data.json", "weights.pt", "scan.dcm", "volume.mha")


@pytest.mark.parametrize("kind", SPECIAL_FILES)
def test_something_else_than_a_file(victim: Run, kind: str) -> None:
    box, top = victim
    (top / "secret.txt").write_bytes(SECRET)
    lines = "".join(
        f"def make():\n    {SPECIAL_FILES[kind].format(secret=f'{top}/secret.txt', top=str(top), pid=box.pid, name=name)}\n"
        "try: make()\nexcept OSError as error: print(error)\n"
        "for left in ('way', 'folder'):\n    if os.path.islink(left): os.unlink(left)\n"
        for name in NAMES
    )
    if kind in ("chain of links", "link through a folder"):
        lines = lines.replace("os.unlink(left)", "pass")
    box.script("import os\n" + lines)
    for name in NAMES:
        for tool, arguments in (
            ("preview_files", {"paths": [name]}),
            ("read_files", {"paths": [name]}),
            ("copy_files", {"source": name, "destination": f"copies/{name}"}),
        ):
            if kind != "sparse terabyte" or tool != "copy_files":
                shows_nothing(box.use(tool, **arguments)["text"])
    copies = [file for file in (top / "run/work/copies").rglob("*") if file.is_file()]
    assert not any(SECRET in file.read_bytes()[:4096] for file in copies)
    listing = box.use("list_files")["text"]
    shows_nothing(listing)
