"""Identity in files of many kinds, none of which has a header that says so: what any tool or the survey shows of them.

Names go out under invented ones, as in a run (`m3b.agents.pseudonymization`); what is looked for is what leaves.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import nibabel as nib
import numpy as np
import openpyxl
import pytest
import scipy.io
from PIL import Image, PngImagePlugin
from privacy_kit import PEOPLE, Person

from m3b.agents.pseudonymization import Pseudonyms
from m3b.dataset.survey.render import render, summarize
from m3b.dataset.survey.survey import survey
from m3b.isolation.sandbox import choose_sandbox
from m3b.messages import ToolCall
from m3b.tools import TOOLS, Roots, Toolbox


def table(file: Path, header: str, cells: list[str]) -> None:
    rows = [",".join([f"{at}.png", *(f'"{cell}"' for cell in cells), "ab"[at % 2]]) for at in range(6)]
    file.write_text("\n".join([*([header] if header else []), *rows]), encoding="utf-8")


def as_json(file: Path, value: Any, indent: int | None = None) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False, indent=indent), encoding="utf-8")


def workbook(file: Path, person: Person) -> None:
    book = openpyxl.Workbook()
    sheet: Any = book.active
    sheet.append(["image", *person.heads])
    for at in range(4):
        sheet.append([f"{at}.png", *person.values])
    book.save(file)


def picture(file: Path, person: Person) -> None:
    if file.suffix == ".tif":
        Image.new("L", (9, 9)).save(file, tiffinfo={270: person.note, 315: person.name})
        return
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", person.note)
    Image.new("L", (9, 9)).save(file, pnginfo=info)


def volume(file: Path, person: Person) -> None:
    image = nib.Nifti1Image(np.zeros((4, 4, 4), np.uint8), np.eye(4))
    image.header["descrip"], image.header["db_name"] = person.name.encode()[:79], person.dicom.encode()[:17]
    nib.save(image, file)


def store(file: Path, person: Person) -> None:
    with h5py.File(file, "w") as h5_file:
        h5_file.create_dataset("names", data=[person.name] * 3, dtype=h5py.string_dtype())
        h5_file["x"] = np.zeros(3)
        h5_file["x"].attrs["comment"] = person.note


def fhir(person: Person) -> dict[str, Any]:
    parts = person.name.replace(",", "").split()
    return {
        "resourceType": "Patient", "name": [{"family": parts[0], "given": parts[1:]}], "telecom": [{"value": person.phone}],
        "birthDate": person.born, "identifier": [{"system": "urn:x", "value": person.record}], "address": [{"text": person.address}],
    }  # fmt: skip


def nrrd(file: Path, person: Person) -> None:
    head = (
        f"NRRD0004\n# {person.note}\ntype: uchar\ndimension: 2\nsizes: 3 3\nencoding: raw\npatient:={person.name}\n\n"
    )
    file.write_bytes(head.encode() + bytes(9))


def meta_image(file: Path, person: Person) -> None:
    head = f"ObjectType = Image\nComment = {person.note}\nName = {person.name}\nNDims = 2\nDimSize = 3 3\nElementType = MET_UCHAR\n"
    file.write_bytes(f"{head}ElementDataFile = LOCAL\n".encode() + bytes(9))


def coco(person: Person) -> dict[str, Any]:
    return {
        "info": {"contributor": person.name, "description": person.note},
        "images": [{"id": 1, "file_name": f"{person.file}.png", "width": 9, "height": 9}],
        "annotations": [], "categories": [{"id": 1, "name": "cell", "supercategory": "x"}],
    }  # fmt: skip


def labelme(person: Person) -> dict[str, Any]:
    shape = {"label": "cell", "points": [[0, 0], [1, 1], [2, 2]], "shape_type": "polygon", "description": person.note}
    return {"imagePath": f"{person.file}.png", "shapes": [shape], "version": "5"}


FILES: dict[str, Callable[[Path, Person], object]] = {
    "bare.csv": lambda file, person: table(file, "", list(person.values)),
    "remarks.csv": lambda file, person: table(file, "image,remark,label", [person.note]),
    "person.csv": lambda file, person: table(file, "image,person,label", [person.name]),
    "places.csv": lambda file, person: table(file, "image,site,label", [person.address]),
    "list.txt": lambda file, person: file.write_text("\n".join([person.name] * 3), encoding="utf-8"),
    "book.xlsx": workbook,
    "keys.json": lambda file, person: as_json(file, {person.name: {"finding": "x"}, "other": 1}),
    "fhir.json": lambda file, person: as_json(file, fhir(person)),
    "fhir_lines.json": lambda file, person: as_json(file, [fhir(person)], indent=1),
    "coco.json": lambda file, person: as_json(file, coco(person)),
    "labelme.json": lambda file, person: as_json(file, labelme(person)),
    "voc.xml": lambda file, person: file.write_text(
        f"<annotation><filename>{person.file}.png</filename><owner><name>{person.name}</name></owner></annotation>",
        encoding="utf-8",
    ),
    "picture.png": picture,
    "picture.tif": picture,
    "volume.nii.gz": volume,
    "slice.nrrd": nrrd,
    "slice.mha": meta_image,
    "arrays.mat": lambda file, person: scipy.io.savemat(
        file, {"x": np.zeros(3), "patient": person.name, "note": person.note}
    ),
    "names.npy": lambda file, person: np.save(file, np.array([person.name] * 3)),
    "names.npz": lambda file, person: np.savez(file, names=np.array([person.name] * 3), x=np.zeros(3)),
    "store.h5": store,
    "list.pkl": lambda file, person: file.write_bytes(
        pickle.dumps([{"name": person.name, "born": person.born, "phone": person.phone}])
    ),
}


@pytest.fixture(scope="module", params=PEOPLE)
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Person, dict[str, str]]:
    """What leaves of each file and of the survey, for a person."""
    person, top = PEOPLE[request.param], tmp_path_factory.mktemp("files")
    data, work, shown_texts = top / "data", top / "work", dict[str, str]()
    data.mkdir()
    work.mkdir()
    for name, make in FILES.items():
        make(data / name, person)
    names = Pseudonyms()
    names.learn_names(data)
    with Toolbox(Roots(work, {"data/x": data}), sandbox=choose_sandbox(), logs=top / "logs") as box:
        for name in FILES:
            for tool in ("preview_files", "read_files"):
                result = box.call(ToolCall("1", tool, {"paths": [f"data/x/{name}"]}), tuple(TOOLS))
                shown_texts[f"{tool} {name}"] = names.pseudonymize(result.text)
    read = survey(data)
    return person, shown_texts | {
        "survey": names.pseudonymize(render(read)),
        "ten lines": names.pseudonymize("\n".join(summarize(read))),
    }


def test_no_file_shows_who_somebody_is(sent: tuple[Person, dict[str, str]]) -> None:
    person, shown_texts = sent
    assert all(text.strip() for text in shown_texts.values())
    leaked = {way: [secret for secret in person.secret if secret in text] for way, text in shown_texts.items()}
    assert {way: secrets for way, secrets in leaked.items() if secrets} == {}


def test_what_is_no_identity_is_still_shown(sent: tuple[Person, dict[str, str]]) -> None:
    _, shown_texts = sent
    assert "a x 3, b x 3" in shown_texts["preview_files bare.csv"]
    assert "0.png" in shown_texts["read_files bare.csv"]
    assert "Patient" in shown_texts["preview_files fhir.json"]
    assert "cell" in shown_texts["preview_files coco.json"]
