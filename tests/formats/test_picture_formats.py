"""Pictures and TIFF: EXIF, bits, palettes, pages, pyramids, and files that are cut off."""

from __future__ import annotations

from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image as Pillow
from PIL import ImageOps

from formats.store_kit import film, photograph
from m3b.dataset.formats import DataError, probe_image, read_image, read_labels


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
def test_exif_turns_as_pillow_does(tmp_path: Path, orientation: int, ending: str) -> None:
    picture = Pillow.fromarray(photograph()[0])
    exif = picture.getexif()
    exif[0x0112] = orientation
    file = tmp_path / f"a.{ending}"
    if ending == "tif":
        tifffile.imwrite(file, photograph()[0], photometric="rgb", extratags=[(274, 3, 1, orientation, True)])
        expected = np.asarray(Pillow.open(file).convert("RGB"))
    else:
        picture.save(file, exif=exif, **({"lossless": True} if ending == "webp" else {}))
        expected = np.asarray(ImageOps.exif_transpose(Pillow.open(file)))
    image, info = read_image(str(file)), probe_image(str(file))
    assert np.array_equal(np.moveaxis(image.array, 0, -1), expected)
    assert info.shape == image.array.shape[1:]
    assert info.orientation == image.orientation == orientation


@pytest.mark.parametrize("value", [0, 9])
def test_a_damaged_orientation_turns_nothing(tmp_path: Path, value: int) -> None:
    picture = Pillow.fromarray(photograph()[0])
    exif = picture.getexif()
    exif[0x0112] = value
    picture.save(tmp_path / "a.png", exif=exif)
    assert read_image("a.png", tmp_path).array.shape == (3, 48, 64)


def test_png_colours_keep_16_bits(tmp_path: Path) -> None:
    values = photograph()[0].astype(np.uint16) * 201
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(values))
    image = read_image("a.png", tmp_path)
    assert np.array_equal(image.array, np.moveaxis(values, -1, 0))
    assert probe_image("a.png", tmp_path).dtype == "uint16"


@pytest.mark.parametrize("highest", [3, 255, 4095, 65535])
@pytest.mark.parametrize("as_text", [False, True])
def test_pgm_values_stay_as_they_are(tmp_path: Path, highest: int, as_text: bool) -> None:
    values = (film().astype(int) * highest // 255).astype(np.uint16)
    head = f"P{2 if as_text else 5}\n# a comment\n56 40\n{highest}\n".encode()
    body = (
        " ".join(map(str, values.ravel())).encode()
        if as_text
        else values.astype("u1" if highest < 256 else ">u2").tobytes()
    )
    (tmp_path / "a.pgm").write_bytes(head + body)
    assert np.array_equal(read_image("a.pgm", tmp_path).array[0], values)
    assert np.array_equal(read_labels("a.pgm", tmp_path).array, values)


def test_jpeg2000_with_12_bits(tmp_path: Path) -> None:
    values = film().astype(np.uint16) * 16
    content = imagecodecs.jpeg2k_encode(values, level=0, codecformat="jp2", reversible=True, bitspersample=12)
    (tmp_path / "a.jp2").write_bytes(content)
    assert np.array_equal(read_image("a.jp2", tmp_path).array[0], values)


def test_pages_and_frames(tmp_path: Path) -> None:
    frames = [Pillow.fromarray(film() // (number + 1)) for number in range(4)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    image = read_image("a.gif", tmp_path)
    assert image.array.shape == (1, 40, 56, 4)
    assert read_image("a.gif#frames=2", tmp_path).array.shape == (1, 40, 56, 2)
    assert np.array_equal(read_image("a.gif#frame=1", tmp_path).array[0], image.array[0, ..., 1])
    for item in ("frame=4", "page", "level=1"):
        with pytest.raises(DataError, match="#"):
            read_image(f"a.gif#{item}", tmp_path)


def test_levels_of_a_pyramid(tmp_path: Path) -> None:
    full_size = np.kron(photograph()[0], np.ones((4, 4, 1), np.uint8))
    with tifffile.TiffWriter(tmp_path / "a.ome.tif") as writer:
        options = {"photometric": "rgb", "tile": (32, 32)}
        writer.write(full_size, subifds=2, metadata={"axes": "YXS"}, **options)
        for step in (2, 4):
            writer.write(full_size[::step, ::step], subfiletype=1, **options)
    assert read_image("a.ome.tif", tmp_path).array.shape == (3, 192, 256)
    assert np.array_equal(read_image("a.ome.tif#level=2", tmp_path).array, np.moveaxis(photograph()[0], -1, 0))
    info = probe_image("a.ome.tif#level=1", tmp_path)
    assert info.shape == (96, 128)
    assert probe_image("a.ome.tif", tmp_path).notes[0].values == {"levels": 3}
    with pytest.raises(DataError, match="3 levels"):
        read_image("a.ome.tif#level=3", tmp_path)


def test_channels_times_and_series_of_ome_tiff(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 9, (3, 2, 5, 30, 40)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "a.ome.tif", array, metadata={"axes": "TCZYX"}, photometric="minisblack")
    with pytest.raises(DataError, match="3 points in time with 5 slices"):
        read_image("a.ome.tif", tmp_path)
    image = read_image("a.ome.tif#time=1", tmp_path)
    assert np.array_equal(image.array, np.moveaxis(array[1], 1, -1))
    assert probe_image("a.ome.tif#time=1", tmp_path).shape == (30, 40, 5)


def test_min_is_white_and_one_bit(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", 255 - film(), photometric="miniswhite")
    assert np.array_equal(read_image("a.tif", tmp_path).array[0], film())
    mask = photograph()[1] > 0
    tifffile.imwrite(tmp_path / "b.tif", mask, photometric="minisblack")
    assert np.array_equal(read_image("b.tif", tmp_path).array[0], mask * np.uint8(255))


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.bmp", "a.gif", "a.webp", "a.pgm", "a.jp2"])
def test_a_file_that_is_cut_off(tmp_path: Path, name: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (200, 200)).astype(np.uint8)
    if name == "a.tif":
        tifffile.imwrite(tmp_path / name, noise)
    else:
        Pillow.fromarray(noise).save(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(DataError, match=name):
        read_image(name, tmp_path)
    if name in ("a.png", "a.jpg"):
        assert [note.code for note in probe_image(name, tmp_path).notes] == ["truncated"]


def test_content_decides_where_the_name_is_wrong(tmp_path: Path) -> None:
    Pillow.fromarray(film()).save(tmp_path / "a.bmp")
    for name in ("b.png", "c.tif", "d", "e.dcm"):
        (tmp_path / name).write_bytes((tmp_path / "a.bmp").read_bytes())
        assert np.array_equal(read_image(name, tmp_path).array[0], film())


def test_an_ome_file_opens_no_other_file(tmp_path: Path) -> None:
    """Names of further files in the metadata are ignored."""
    (tmp_path / "data").mkdir()
    tifffile.imwrite(tmp_path / "secret.ome.tif", film() * 0 + 77, metadata={"axes": "YX"})
    xml = f"""<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0">
    <Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="56" SizeY="40" SizeC="1" SizeZ="2" SizeT="1">
    <Channel ID="Channel:0:0" SamplesPerPixel="1"/>
    <TiffData IFD="0" FirstZ="0"><UUID FileName="a.ome.tif">urn:uuid:1</UUID></TiffData>
    <TiffData IFD="0" FirstZ="1"><UUID FileName="{tmp_path}/secret.ome.tif">urn:uuid:2</UUID></TiffData>
    </Pixels></Image></OME>"""
    tifffile.imwrite(tmp_path / "data/a.ome.tif", film(), description=xml, metadata=None)
    try:
        assert 77 not in np.unique(read_image("data/a.ome.tif", tmp_path).array[..., -1]) or film().max() > 77
        assert not (read_image("data/a.ome.tif", tmp_path).array == 77).all(axis=(0, 1, 2)).any()
    except DataError:
        pass


@pytest.mark.parametrize("share", [0.3, 0.4, 0.6])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_a_stack_without_its_last_pages_is_cut_off(tmp_path: Path, byteorder: str, share: float) -> None:
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path, byteorder=byteorder) as writer:
        for number in range(8):
            writer.write(np.full((30, 40), number, np.uint8), contiguous=False, metadata=None)
    assert probe_image(str(path)).shape == (30, 40, 8)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(DataError, match="cut off"):
        probe_image(str(path))
