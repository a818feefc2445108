"""One small set in the stores of other programs: each is decided alike, and gives every case its own image and target."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import nibabel as nib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import tifffile
import zarr
from PIL import Image
from proposals_kit import write_rows

from m3b.data.records import Record
from m3b.dataset.manifest.execute import Executed, execute
from m3b.dataset.proposals.decide import decide
from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.proposals.request import parse
from m3b.dataset.reading import read_image, read_masks
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk

COUNT = 16
Writer = Callable[[Path], None]


def read_store(folder: Path, request: str) -> tuple[Outcome, Executed]:
    """Decide on a folder, and execute the best proposal; images of its records are read below `folder.parent / "work"`."""
    inventory = walk(folder)
    survey = survey_inventory(inventory, SurveyLimits())
    outcome = decide(survey, inventory, parse(request, "\n".join(document.text for document in survey.documents)))
    assert outcome.kind == "proposed"
    work = folder.parent / "work"
    (work / "data").mkdir(parents=True)
    (work / "data" / "set").symlink_to(folder)
    return outcome, execute(outcome.proposals[0].manifest, inventory, name="set", work=work)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


# --- volumes with labels --------------------------------------------------------------------------------------------------


def make_volume(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return slices of noise, brighter where the labels 1 and 2 are; no two volumes have the same shape."""
    rng = np.random.default_rng(number)
    labels = np.zeros((20, 24 + number, 12), np.uint8)
    labels[4:9, 4:10, 3:8], labels[11:16, 8 : 12 + number % 4, 4:9] = 1, 2
    return (rng.integers(0, 90, labels.shape) + 200 * labels.astype(int)).astype(np.int16), labels


VOLUMES = [(f"{name}{number}", *make_volume(number)) for number, name in enumerate("qwertyuiopasdfgh")]


def write_hdf5(folder: Path, keys: str) -> None:
    with h5py.File(folder / "data.h5", "w") as file:
        for number, (name, volume, labels) in enumerate(VOLUMES):
            part = "train" if number < 12 else "test"
            for kind, array in (("image", volume), ("label", labels)):
                file[keys.format(name=name, kind=kind, part=part, number=number)] = array


def write_pickle(folder: Path) -> None:
    records = [{"id": name, "image": volume, "mask": labels} for name, volume, labels in VOLUMES]
    (folder / "set.pkl").write_bytes(pickle.dumps(records))


def write_npz(folder: Path) -> None:
    arrays = {f"case{number:02d}_{kind}": array for number, (_, *pair) in enumerate(VOLUMES)
              for kind, array in zip(("img", "seg"), pair, strict=True)}  # fmt: skip
    np.savez(folder / "set.npz", **arrays)  # type: ignore[arg-type]


def write_zarr(folder: Path, version: Any, *, is_one_store: bool) -> None:
    for name, volume, labels in VOLUMES:
        store = folder / "all.zarr" / name if is_one_store else folder / f"{name}.zarr"
        if is_one_store:
            zarr.open_group(str(store.parent), mode="a", zarr_format=version)
        group = zarr.open_group(str(store), mode="w", zarr_format=version)
        group.create_array("image", data=volume)
        group.create_array("label", data=labels)


def write_ome_zarr(folder: Path) -> None:
    """Two levels of the image and one of the labels, each with its axes."""

    def write(group: Any, levels: list[np.ndarray]) -> None:
        axes = [{"name": name, "type": "space", "unit": "millimeter"} for name in "zyx"]
        scales = [{"type": "scale", "scale": [2.0 * (level + 1)] * 3} for level in range(len(levels))]
        for level, array in enumerate(levels):
            group.create_array(str(level), data=np.ascontiguousarray(array.transpose(2, 0, 1)))
        datasets = [{"path": str(level), "coordinateTransformations": [scale]} for level, scale in enumerate(scales)]
        group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": datasets}]

    for name, volume, labels in VOLUMES:
        group = zarr.open_group(str(folder / f"{name}.ome.zarr"), mode="w", zarr_format=2)
        write(group, [volume, volume[::2, ::2, ::2]])
        write(group.create_group("labels").create_group("organs"), [labels])


def write_tiff(folder: Path) -> None:
    """The first and last slices show nothing."""
    for name, volume, labels in VOLUMES:
        (folder / name).mkdir()
        for stem, array in (("volume", volume.astype(np.float32)), ("labels", labels)):
            tifffile.imwrite(folder / name / f"{stem}.tif", np.moveaxis(array, -1, 0), photometric="minisblack")


def write_scaled(folder: Path) -> None:
    """nibabel stores fractions as 16 bit numbers with a slope: label 1 as 32768."""
    for part in ("images", "labels"):
        (folder / part).mkdir()
    for name, *pair in VOLUMES:
        for part, array in zip(("images", "labels"), pair, strict=True):
            image: Any = nib.Nifti1Image(array.astype(np.float32), np.eye(4))
            image.set_data_dtype(np.uint16)
            nib.save(image, folder / part / f"{name}.nii")


VOLUME_STORES: dict[str, Writer] = {
    "hdf5 groups": lambda folder: write_hdf5(folder, "{name}/{kind}"),
    "hdf5 kinds": lambda folder: write_hdf5(folder, "{kind}/{name}"),
    "hdf5 parts": lambda folder: write_hdf5(folder, "{part}/case{number}/{kind}"),
    "npz of all": write_npz,
    "pickled records": write_pickle,
    "zarr 2 each": lambda folder: write_zarr(folder, 2, is_one_store=False),
    "zarr 3 of all": lambda folder: write_zarr(folder, 3, is_one_store=True),
    "ome zarr": write_ome_zarr,
    "tiff stacks": write_tiff,
    "nifti with slope": write_scaled,
}


@pytest.mark.parametrize("name", VOLUME_STORES)
def test_volumes(folder: Path, name: str) -> None:
    VOLUME_STORES[name](folder)
    _, index = read_store(folder, "Segment liver (1) and spleen (2) on CT")
    records, base = [*index.train, *index.test], str(folder.parent / "work")
    assert len(records) == COUNT
    assert list(index.values) == ["liver", "spleen"]
    for record in records:
        image = read_image(record.reference, base).array
        masks = read_masks(record.mask, index.values, base, image.shape[1:], record.reference)
        number = max(image.shape[1:]) - 24
        volume, labels = make_volume(number)
        assert [int(mask.sum()) for mask in masks] == [int((labels == value).sum()) for value in (1, 2)]
        means = [float(image[0][mask].mean()) for mask in masks]
        assert means == pytest.approx([volume[labels == value].mean() for value in (1, 2)], abs=0.1)
    assert name != "hdf5 parts" or len(index.test) == 4
    assert name != "ome zarr" or read_image(records[0].reference, base).spacing == (2.0, 2.0, 2.0)


# --- photographs with masks -------------------------------------------------------------------------------------------------


def make_photograph(number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    mask = np.zeros((40, 48), np.uint8)
    mask[5 + number : 12 + number, 6:20] = 1
    colours = rng.integers(0, 80, (40, 48, 3)).astype(np.uint8)
    colours[mask > 0] += 120
    return colours, mask


PHOTOGRAPHS = [make_photograph(number) for number in range(COUNT)]


def to_png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


def write_parquet(folder: Path) -> None:
    columns = [[{"bytes": to_png(array), "path": f"{number}.png"} for number, array in enumerate(arrays)]
               for arrays in zip(*((colours, mask * 255) for colours, mask in PHOTOGRAPHS), strict=True)]  # fmt: skip
    table = pa.table({"image": columns[0], "annotation": columns[1]})
    pq.write_table(table.slice(0, 12), folder / "train-00000-of-00001.parquet")
    pq.write_table(table.slice(12), folder / "test-00000-of-00001.parquet")


def write_matlab(folder: Path) -> None:
    images, masks = (np.stack(arrays, axis=-1) for arrays in zip(*PHOTOGRAPHS, strict=True))
    scipy.io.savemat(folder / "set.mat", {"images": images, "masks": masks})


def write_pairs(folder: Path) -> None:
    rows: list[list[object]] = [["img", "msk"]]
    (folder / "files").mkdir()
    for number, (colours, mask) in enumerate(PHOTOGRAPHS):
        names = f"files/a{number * 37 % 101}.png", f"files/b{number * 53 % 101 + 7}.png"
        (folder / names[0]).write_bytes(to_png(colours))
        (folder / names[1]).write_bytes(to_png(mask * 255))
        rows.append([*names])
    write_rows(folder / "train.csv", rows)


def write_with_overlays(folder: Path) -> None:
    for kind in ("images", "masks", "overlays"):
        (folder / kind).mkdir()
    for number, (colours, mask) in enumerate(PHOTOGRAPHS):
        overlay = colours.copy()
        overlay[mask > 0] = overlay[mask > 0] // 2 + np.array([0, 100, 0], np.uint8)
        for kind, array in (("images", colours), ("masks", mask * 255), ("overlays", overlay)):
            (folder / kind / f"{number:02d}.png").write_bytes(to_png(array))


def write_tar(folder: Path, mode: Any) -> None:
    """Write the pairs into an archive, whose suffix is that of its compression."""
    with tarfile.open(folder / f"set.tar.{mode[2:]}", mode) as archive:
        for number, (colours, mask) in enumerate(PHOTOGRAPHS):
            for kind, array in (("images", colours), ("masks", mask * 255)):
                content = to_png(array)
                entry = tarfile.TarInfo(f"polyps/{kind}/{number:02d}.png")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


PHOTOGRAPH_STORES: dict[str, Writer] = {
    "parquet columns": write_parquet,
    "matlab, items last": write_matlab,
    "pairs of a table": write_pairs,
    "overlays beside": write_with_overlays,
    "tar, bzip2": lambda folder: write_tar(folder, "w:bz2"),
    "tar, xz": lambda folder: write_tar(folder, "w:xz"),
}


@pytest.mark.parametrize("name", PHOTOGRAPH_STORES)
def test_photographs(folder: Path, name: str) -> None:
    PHOTOGRAPH_STORES[name](folder)
    _, index = read_store(folder, "Segment polyps in colonoscopy images")
    records, base = [*index.train, *index.test], str(folder.parent / "work")
    places = []
    for record in records:
        image = read_image(record.reference, base).array
        assert image.shape == (3, 40, 48)
        (mask,) = read_masks(record.mask, index.values, base, image.shape[1:], record.reference)
        places.append(int(np.flatnonzero(mask.any(axis=1))[0]) - 5)
        assert np.array_equal(image, np.moveaxis(PHOTOGRAPHS[places[-1]][0], -1, 0))
        assert np.array_equal(mask, PHOTOGRAPHS[places[-1]][1] > 0)
    assert sorted(places) == list(range(COUNT))


# --- classes and boxes ------------------------------------------------------------------------------------------------------


def grey(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 90, (40, 48)).astype(np.uint8)


@pytest.mark.parametrize("is_coded", [True, False])
def test_lists_of_a_document_are_parts_of_one_table(folder: Path, *, is_coded: bool) -> None:
    (folder / "images").mkdir()
    names = ["normal", "pneumonia"]
    records = []
    for number in range(40):
        Image.fromarray(grey(number)).save(folder / f"images/x{number:03d}.png")
        label = number * number % 7 % 2
        records.append({"image": f"images/x{number:03d}.png", "label": label if is_coded else names[label]})
    parts: dict[str, Any] = {"training": records[:24], "validation": records[24:32], "testing": records[32:]}
    legend = {"labels": {"0": "normal", "1": "pneumonia"}} if is_coded else {}
    (folder / "dataset.json").write_text(json.dumps({"name": "chest", **legend, **parts}))
    outcome, index = read_store(folder, "Classify chest X-rays as normal or pneumonia")
    assert outcome.proposals[0].cases == 40
    assert sum(outcome.proposals[0].classes.values()) == 40
    assert len(index.test) == 8


def make_boxes(number: int) -> list[tuple[str, int, int, int, int]]:
    """Return class, left, top, width and height of boxes that only this picture has."""
    first = ("RBC", 2 + number, 3, 10, 8)
    return [first, ("WBC", 20, 15 + number % 9, 9, 12)] if number % 3 else [first]


BOXED = {number: make_boxes(number) for number in range(24)}
CLASSES = ["RBC", "WBC"]


def list_objects(number: int) -> dict[str, Any]:
    return {
        "bbox": [[*box] for _, *box in BOXED[number]],
        "category": [CLASSES.index(name) for name, *_ in BOXED[number]],
    }


def write_box_parquet(folder: Path) -> None:
    feature = {
        "bbox": {"feature": {"dtype": "float32"}},
        "category": {"feature": {"names": CLASSES, "_type": "ClassLabel"}},
    }
    metadata = {b"huggingface": json.dumps({"info": {"features": {"objects": {"feature": feature}}}}).encode()}
    columns = {
        "image_id": list(BOXED),
        "image": [{"bytes": to_png(grey(number)), "path": None} for number in BOXED],
        "objects": [list_objects(number) for number in BOXED],
    }
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), folder / "train.parquet")


def write_metadata_lines(folder: Path) -> None:
    for number in BOXED:
        Image.fromarray(grey(number)).save(folder / f"{number:03d}.png")
    lines = [json.dumps({"file_name": f"{number:03d}.png", "objects": list_objects(number)}) for number in BOXED]
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    (folder / "README.md").write_text("Classes: 0 = RBC, 1 = WBC\n")


def write_keyed_boxes(folder: Path) -> None:
    for number in BOXED:
        Image.fromarray(grey(number)).save(folder / f"{number:03d}.png")
    document = {
        f"{number:03d}.png": [{"class": name, "bbox": [x, y, x + w, y + h]} for name, x, y, w, h in boxes]
        for number, boxes in BOXED.items()
    }
    (folder / "annotations.json").write_text(json.dumps(document))


def write_createml(folder: Path) -> None:
    for number in BOXED:
        Image.fromarray(grey(number)).save(folder / f"{number:03d}.png")
    document = [
        {"image": f"{number:03d}.png", "annotations": [
            {"label": name, "coordinates": {"x": x + w / 2, "y": y + h / 2, "width": w, "height": h}}
            for name, x, y, w, h in boxes]}
        for number, boxes in BOXED.items()
    ]  # fmt: skip
    (folder / "_annotations.createml.json").write_text(json.dumps(document))


BOX_STORES: dict[str, Writer] = {
    "parquet": write_box_parquet,
    "metadata lines": write_metadata_lines,
    "keyed lists": write_keyed_boxes,
    "createml": write_createml,
}


def find_number(record: Record, base: str) -> int:
    image = read_image(record.reference, base).array[0]
    return next(number for number in BOXED if np.array_equal(grey(number), image))


@pytest.mark.parametrize("name", BOX_STORES)
def test_boxes(folder: Path, name: str) -> None:
    BOX_STORES[name](folder)
    _, index = read_store(folder, "Draw bounding boxes around RBC and WBC in blood smears")
    records = [*index.train, *index.test]
    assert len(records) == len(BOXED)
    for record in records:
        expected = BOXED[find_number(record, str(folder.parent / "work"))]
        corners = [(label, (x, y, x + width, y + height)) for label, x, y, width, height in expected]
        assert sorted((box.label, box.box) for box in record.boxes or ()) == sorted(corners)
