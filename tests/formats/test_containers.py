"""Files that hold many images: arrays, archives, Parquet, Zarr and clips; and limits by what must be held in memory."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import av
import h5py
import nibabel as nib
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.io
import zarr
from PIL import Image as Pillow

from formats.store_kit import film, photograph, volume, write_series
from m3b.dataset.formats import DataError, base, describe_file, get_format, probe_image, read_image, read_labels
from m3b.dataset.formats import arrays as array_formats
from m3b.dataset.formats.arrays import Hdf5
from m3b.dataset.reading import open_arrays, read_array, read_values


def png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Pillow.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


def items() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (6, 30, 40)).astype(np.uint8)


def save_items(folder: Path, ending: str) -> str:
    """One file for all cases; the path without the item."""
    file = folder / f"cases.{ending}"
    if ending == "npy":
        np.save(file, items())
        return f"{file}#"
    if ending == "npz":
        np.savez_compressed(file, images=items(), labels=np.arange(6))
    elif ending == "h5":
        with h5py.File(file, "w") as container:
            container.create_dataset("images", data=items())
            container.create_dataset("labels", data=np.arange(6))
    elif ending == "mat":
        with h5py.File(file, "w", userblock_size=512) as container:  # as MATLAB 7.3 does: axes in reverse
            container.create_dataset("images", data=items().transpose(0, 2, 1))
    else:
        file.write_bytes(pickle.dumps({"images": items(), "labels": [1, 2]}))
    return f"{file}#images"


@pytest.mark.parametrize("ending", ["npy", "npz", "h5", "mat", "pkl"])
def test_items_of_one_file(tmp_path: Path, ending: str) -> None:
    path = save_items(tmp_path, ending)
    image = read_image(f"{path}[3]")
    assert np.array_equal(image.array[0], items()[3])
    assert probe_image(f"{path}[3]").shape == (30, 40)
    with pytest.raises(DataError, match="6 items"):
        read_image(f"{path}[6]")
    with pytest.raises(DataError, match="#"):
        read_image(f"{path}[x]")


def test_numbers_of_structures(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"case": {"image": film(), "label": "x"}})
    assert np.array_equal(read_image("a.mat#case/image", tmp_path).array[0], film())


def test_an_array_that_compresses_extremely_is_read(tmp_path: Path) -> None:
    shapes = np.zeros((33, 64, 64, 64), np.uint8)
    shapes[:, 20:40] = 1
    np.savez_compressed(tmp_path / "a.npz", shapes=shapes)
    assert (tmp_path / "a.npz").stat().st_size < 100_000
    assert read_image("a.npz#shapes[2]", tmp_path).array.shape == (1, 64, 64, 64)


@pytest.mark.parametrize("ending", ["npz", "npy", "png", "nii", "mha", "zip"])
def test_what_does_not_fit_into_memory_is_refused_with_both_numbers(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.zeros((100, 100, 100), np.uint8)
    file = tmp_path / f"a.{ending}"
    if ending == "npz":
        np.savez_compressed(file, array)
    elif ending == "npy":
        np.save(file, array)
    elif ending == "png":
        Pillow.fromarray(array.reshape(1000, 1000)).save(file)
    elif ending == "nii":
        nib.save(nib.Nifti1Image(array, np.eye(4)), file)
    elif ending == "mha":
        import SimpleITK as sitk

        sitk.WriteImage(sitk.GetImageFromArray(array), str(file), True)
    else:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
            bundle.writestr("a.png", bytes(1_000_000))
    from m3b.dataset.formats import archives

    for module in (base, archives):
        monkeypatch.setattr(module, "MAX_DECODED_BYTES", 500_000)
    with pytest.raises(DataError, match=r"1,000,000 bytes.*500,000"):
        read_image(str(file))


def test_pickles_run_nothing(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "touched",))

    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"images": items(), "x": Attack()}))
    with pytest.raises(DataError, match="only NumPy arrays"):
        read_image("a.pkl#images[0]", tmp_path)
    np.save(tmp_path / "a.npy", np.array([Attack()], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"a\.npy"):
        read_image("a.npy", tmp_path)
    assert not (tmp_path / "touched").exists()


def test_hdf5_opens_no_other_file(tmp_path: Path) -> None:
    film().tofile(tmp_path / "secret.raw")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", film().shape, "u1", external=[(str(tmp_path / "secret.raw"), 0, film().size)])
    with pytest.raises(DataError, match="other files"):
        read_image("a.h5#x", tmp_path)


# --- archives -----------------------------------------------------------------------------------------------------


def write_archive(file: Path, members: dict[str, bytes]) -> None:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, content in members.items():
                bundle.writestr(name, content)
        return
    with tarfile.open(file, "w:gz" if file.suffix == ".gz" else "w") as bundle:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            bundle.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_archives_as_folders(tmp_path: Path, name: str) -> None:
    values, _, affine = volume()
    nib.save(nib.Nifti1Pair(values, affine), tmp_path / "v.img")
    write_series(tmp_path / "series", values, affine)
    np.savez(tmp_path / "n.npz", images=items())
    members = {
        "photos/a.png": png(film()),
        "photos/b.png": png(photograph()[0]),
        "000.jpg": png(film()),
        "000.cls": b"3",
        "v/v.hdr": (tmp_path / "v.hdr").read_bytes(),
        "v/v.img": (tmp_path / "v.img").read_bytes(),
        "n.npz": (tmp_path / "n.npz").read_bytes(),
        **{f"ct/{file.name}": file.read_bytes() for file in (tmp_path / "series").iterdir()},
    }
    write_archive(tmp_path / name, members)
    assert np.array_equal(read_image(f"{name}#photos/a.png", tmp_path).array[0], film())
    assert probe_image(f"{name}#photos/b.png", tmp_path).channels == 3
    assert np.array_equal(read_image(f"{name}#000.jpg", tmp_path).array[0], film())
    assert np.array_equal(read_image(f"{name}#n.npz#images[2]", tmp_path).array[0], items()[2])
    series, pair = read_image(f"{name}#ct", tmp_path), read_image(f"{name}#v/v.img", tmp_path)
    assert np.array_equal(series.array, pair.array)
    assert get_format(tmp_path / name).items(tmp_path / name)[:2] == ("000.jpg", "n.npz")
    assert "archive, 16 files" in describe_file(tmp_path / name)
    with pytest.raises(DataError, match=r"there is photos/a\.png"):
        read_image(f"{name}#a.png", tmp_path)


@pytest.mark.parametrize("name", ["../out.png", "/etc/out.png", "a/../../out.png", "C:\\out.png", "..\\out.png"])
@pytest.mark.parametrize("ending", ["zip", "tar"])
def test_members_stay_inside(tmp_path: Path, name: str, ending: str) -> None:
    write_archive(tmp_path / f"a.{ending}", {name: png(film()), "b.png": png(film())})
    archive: Any = get_format(tmp_path / f"a.{ending}")
    assert [member.name for member in archive.members(tmp_path / f"a.{ending}")] == ["b.png"]
    with pytest.raises(DataError, match="no such file"):
        read_image(f"a.{ending}#{name}", tmp_path)


def test_links_are_no_members(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as bundle:
        info = tarfile.TarInfo("a.png")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        bundle.addfile(info)
    with pytest.raises(DataError):
        read_image("a.tar#a.png", tmp_path)


def test_a_member_that_is_cut_off(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.tar", {"a.png": png(items()[0])})
    content = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(content[:1500])
    with pytest.raises(DataError, match=r"a\.tar"):
        read_image("a.tar#a.png", tmp_path)


# --- Parquet, Zarr, clips -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["structure", "bytes"])
def test_images_in_parquet(tmp_path: Path, form: str) -> None:
    contents = [png(film() // (number + 1)) for number in range(5)]
    images = (
        [{"bytes": encoded, "path": f"{n}.png"} for n, encoded in enumerate(contents)]
        if form == "structure"
        else contents
    )
    table = pa.table({"image": images, "label": [0, 1, 0, 1, 0], "note": ["x"] * 5, "code": [b"12"] * 5})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    assert get_format(tmp_path / "a.parquet").items(tmp_path / "a.parquet") == tuple(f"image[{n}]" for n in range(5))
    for number in (0, 3, 4):
        assert np.array_equal(read_image(f"a.parquet#image[{number}]", tmp_path).array[0], film() // (number + 1))
    assert read_labels("a.parquet#[2]", tmp_path).array.shape == (40, 56)
    assert "label: int64" in describe_file(tmp_path / "a.parquet")
    for item in ("image[5]", "label[0]", ""):
        with pytest.raises(DataError, match=r"a\.parquet"):
            read_image(f"a.parquet#{item}", tmp_path)


@pytest.mark.parametrize("version", [2, 3])
def test_zarr(tmp_path: Path, version: Any) -> None:
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=version)
    group.create_array("images", data=items())
    assert np.array_equal(read_image("a.zarr#images[4]", tmp_path).array[0], items()[4])
    zarr.save_array(str(tmp_path / "b"), volume()[0], zarr_format=version)
    assert np.array_equal(read_image("b", tmp_path).array[0], volume()[0])
    assert "images: 6 x 30 x 40" in get_format(tmp_path / "a.zarr").describe(tmp_path / "a.zarr")


def test_ome_zarr(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 9, (2, 6, 20, 30)).astype(np.uint8)
    group = zarr.open_group(str(tmp_path / "a.ome.zarr"), mode="w", zarr_format=2)
    for level, step in enumerate((1, 2)):
        group.create_array(str(level), data=array[..., ::step, ::step])
    axes = [
        {"name": "c", "type": "channel"},
        *({"name": encoded, "type": "space", "unit": "micrometer"} for encoded in "zyx"),
    ]
    group.attrs["multiscales"] = [
        {
            "axes": axes,
            "datasets": [
                {
                    "path": str(n),
                    "coordinateTransformations": [{"type": "scale", "scale": [1, 2.0, 0.5 * 2**n, 0.4 * 2**n]}],
                }
                for n in range(2)
            ],
        }
    ]
    image, info = read_image("a.ome.zarr", tmp_path), probe_image("a.ome.zarr", tmp_path)
    assert np.array_equal(image.array, np.moveaxis(array, 1, -1))
    assert info.spacing == image.spacing == pytest.approx((0.0005, 0.0004, 0.002))
    assert (info.shape, info.channels) == ((20, 30, 6), 2)
    assert read_image("a.ome.zarr#level=1", tmp_path).array.shape == (2, 10, 15, 6)
    assert list(get_format(tmp_path / "a.ome.zarr").arrays(tmp_path / "a.ome.zarr")) == ["0"]  # type: ignore[attr-defined]
    assert read_image("a.ome.zarr#0", tmp_path).spacing == image.spacing
    with pytest.raises(DataError, match="2 levels"):
        read_image("a.ome.zarr#level=2", tmp_path)


def test_zarr_runs_no_codec_that_does_more_than_compute(tmp_path: Path) -> None:
    zarr.save_array(str(tmp_path / "a.zarr"), film(), zarr_format=2)
    metadata = json.loads((tmp_path / "a.zarr/.zarray").read_text())
    metadata["filters"] = [{"id": "pickle"}]
    (tmp_path / "a.zarr/.zarray").write_text(json.dumps(metadata))
    with pytest.raises(DataError, match="pickle"):
        read_image("a.zarr", tmp_path)


def test_clips(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(10):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 20 * number, np.uint8), format="rgb24")
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    assert read_image("a.mp4", tmp_path).array.shape[1:] == (48, 64)
    clip = read_image("a.mp4#frames=5", tmp_path)
    assert clip.array.shape[1:] == (48, 64, 5)
    assert np.allclose(clip.array.mean(axis=(0, 1, 2)), [20, 60, 100, 140, 180], atol=6)
    assert probe_image("a.mp4", tmp_path).frames == 10


def test_texts_of_a_matlab_file_are_read(tmp_path):
    names = np.array(["P01", "P01", "P02"], dtype=object)
    scipy.io.savemat(tmp_path / "set.mat", {"images": np.stack([film()] * 3), "patients": names})
    assert read_array(tmp_path / "set.mat", "patients").tolist() == ["P01", "P01", "P02"]


def test_datasets_of_one_file_are_opened_when_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as store:
        for number in range(300):
            store[f"case {number}/image"] = np.full((4, 5), number % 200, np.uint8)
            store[f"case {number}/label"] = f"c{number % 2}"
            store[f"case {number}"].attrs["names"] = ["plain", "spot"]
    arrays = open_arrays(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r") as store:
        assert h5py.h5f.get_obj_count(store.id, h5py.h5f.OBJ_DATASET) == 0
    assert (len(arrays), arrays["case 7/image"].shape, arrays["case 7/image"][3].tolist()) == (300, (4, 5), [7] * 5)
    values = read_values(tmp_path / "a.h5")
    assert (str(values["case 7/label"]), values["case 7@names"].tolist()) == ("c1", ["plain", "spot"])
    monkeypatch.setattr(array_formats, "MAX_HDF5_OBJECTS", 899)
    for read in (Hdf5().read_values, Hdf5().open_arrays):
        with pytest.raises(DataError):
            read(tmp_path / "a.h5")


def test_values_of_a_file_are_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[Path] = []
    read = Hdf5.read_values
    monkeypatch.setattr(Hdf5, "read_values", lambda self, path: (readings.append(path), read(self, path))[1])
    for label, number in (("plain", 1), ("spot with a border", 2)):
        with h5py.File(tmp_path / "a.h5", "w") as store:
            store["label"] = label
        assert [str(read_values(tmp_path / "a.h5")["label"]) for _ in range(2)] == [label, label]
        assert len(readings) == number
