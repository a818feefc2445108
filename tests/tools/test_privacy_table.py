"""Identity on every way to a language model, in six languages: a cell a way and language, each of which must show nothing.

What a tool answers is pseudonymized, as in a run (`m3b.agents.pseudonymization`); what is searched is what leaves.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pydicom
import pytest
from PIL import Image
from privacy_kit import PEOPLE, Person
from pydicom.data import get_testdata_file

from m3b.agents.briefing import _describe_card
from m3b.agents.pseudonymization import Pseudonyms
from m3b.data.cards import Card, load_cards
from m3b.isolation.sandbox import choose_sandbox
from m3b.messages import ToolCall
from m3b.tools import TOOLS, Roots, Toolbox


def lay_out(data: Path, person: Person) -> None:
    """The person's identity in every kind of file, folder and name."""
    table = dict(zip(person.heads, person.values, strict=True))
    rows = [",".join(['image', *(f'"{head}"' for head in person.heads)]), *[
        ",".join([f"{n}.png", *(f'"{value}"' for value in person.values)]) for n in range(4)]]  # fmt: skip
    (data / "table.csv").write_text("\n".join(rows), encoding="utf-8")
    (data / "table.tsv").write_text("\n".join(rows).replace(",", "\t"), encoding="utf-8")
    (data / "records.json").write_text(json.dumps([table, table], ensure_ascii=False), encoding="utf-8")
    (data / "nested.json").write_text(json.dumps({"study": {"subject": table}}, ensure_ascii=False), encoding="utf-8")
    (data / "lines.jsonl").write_text(json.dumps(table, ensure_ascii=False) + "\n", encoding="utf-8")
    (data / "note.txt").write_text(person.note + "\n", encoding="utf-8")
    (data / "form.txt").write_text("\n".join(f"{head}: {value}" for head, value in table.items()), encoding="utf-8")
    (data / "form.yaml").write_text("\n".join(f"{head}: {value}" for head, value in table.items()), encoding="utf-8")
    tags = "".join(
        f"<field name={json.dumps(head, ensure_ascii=False)}>{value}</field>" for head, value in table.items()
    )
    (data / "form.xml").write_text(f"<record>{tags}</record>", encoding="utf-8")
    (data / "README.md").write_text(f"# Scans\n{person.note}\n", encoding="utf-8")
    (data / person.file).mkdir()
    Image.new("L", (9, 9), 90).save(data / person.file / f"{person.file}.png")
    np.savez(data / "arrays.npz", **{person.file: np.zeros((4, 4))})
    with h5py.File(data / "store.h5", "w") as store:
        store[person.file] = np.zeros((4, 4))
        for head, value in table.items():
            store.attrs[head] = value
    (data / "dict.pkl").write_bytes(pickle.dumps({person.file: np.zeros((4, 4)), **table}))
    with zipfile.ZipFile(data / "pack.zip", "w") as pack:
        pack.writestr(f"{person.file}/scan.txt", "x")
    scan = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
    scan.SpecificCharacterSet = "ISO_IR 192"
    scan.PatientName, scan.PatientID, scan.PatientBirthDate = person.dicom, person.record, "19560312"
    scan.SeriesDescription, scan.PatientComments, scan.PatientAddress = (
        f"{person.dicom.split('=')[0]} chest",
        person.note,
        person.address,
    )
    scan.save_as(data / "scan.dcm")


PRINTS = "import json; d = json.load(open('data/x/records.json', encoding='utf-8'))[0]\nfor k, v in d.items(): print(k + ': ' + v)"
LISTS = "import os; print(os.listdir('data/x'))"
RAISES = "import os; n = [f for f in os.listdir('data/x') if '1956' in f][0]; open('data/x/' + n + '/none.png')"
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "preview of a table": ("preview_files", {"paths": ["data/x/table.csv", "data/x/table.tsv"]}),
    "preview of JSON": ("preview_files", {"paths": ["data/x/records.json", "data/x/nested.json", "data/x/lines.jsonl"]}),
    "preview of texts": ("preview_files", {"paths": ["data/x/note.txt", "data/x/form.txt", "data/x/form.xml", "data/x/form.yaml"]}),
    "preview of NPZ keys": ("preview_files", {"paths": ["data/x/arrays.npz"]}),
    "preview of HDF5 keys": ("preview_files", {"paths": ["data/x/store.h5"]}),
    "preview of pickle keys": ("preview_files", {"paths": ["data/x/dict.pkl"]}),
    "preview of ZIP members": ("preview_files", {"paths": ["data/x/pack.zip"]}),
    "preview of DICOM": ("preview_files", {"paths": ["data/x/scan.dcm"]}),
    "reading a table": ("read_files", {"paths": ["data/x/table.csv"]}),
    "reading JSON": ("read_files", {"paths": ["data/x/records.json", "data/x/nested.json", "data/x/lines.jsonl"]}),
    "reading free text": ("read_files", {"paths": ["data/x/note.txt", "data/x/README.md"]}),
    "reading forms": ("read_files", {"paths": ["data/x/form.txt", "data/x/form.xml", "data/x/form.yaml"]}),
    "listing": ("list_files", {"path": "data/x", "depth": 4}),
    "folder preview": ("preview_dirs", {"path": "data/x"}),
    "output of a script: a form": ("run_script", {"command": "python3 prints.py"}),
    "output of a script: names": ("run_script", {"command": "python3 lists.py"}),
    "error of a script": ("run_script", {"command": "python3 raises.py"}),
    "error of a tool": ("read_files", {"paths": ["data/x/{file}/none.txt"]}),
}  # fmt: skip


@pytest.fixture(scope="module", params=PEOPLE)
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Person, dict[str, str]]:
    """What leaves, by way, for a person."""
    person, top = PEOPLE[request.param], tmp_path_factory.mktemp("privacy")
    data, work = top / "data", top / "work"
    data.mkdir()
    work.mkdir()
    lay_out(data, person)
    (work / "data").mkdir()
    (work / "data/x").symlink_to(data)
    for name, source in (("prints", PRINTS), ("lists", LISTS), ("raises", RAISES)):
        (work / f"{name}.py").write_text(source)
    names, shown_texts = Pseudonyms(), dict[str, str]()
    names.learn_names(data)
    with Toolbox(Roots(work, {"data/x": data}), sandbox=choose_sandbox(), logs=top / "logs") as box:
        for way, (tool, arguments) in WAYS.items():
            filled_arguments = json.loads(json.dumps(arguments).replace("{file}", person.file))
            shown_texts[way] = names.pseudonymize(box.call(ToolCall("1", tool, filled_arguments), tuple(TOOLS)).text)
    shown_texts["briefing: notes and card"] = names.pseudonymize(
        _describe_card(card_of(top, data, person), person.note)
    )
    return person, shown_texts


def card_of(top: Path, data: Path, person: Person) -> Card:
    (top / "card.json").write_text(json.dumps({"name": "x", "path": str(data), "description": f"Scans. {person.note}"}))
    return load_cards(top / "card.json")[0]


@pytest.mark.parametrize("way", [*WAYS, "briefing: notes and card"])
@pytest.mark.confined
def test_nothing_that_identifies_leaves(sent: tuple[Person, dict[str, str]], way: str) -> None:
    person, shown_texts = sent
    assert shown_texts[way].strip()
    assert [secret for secret in person.secret if secret in shown_texts[way]] == [], shown_texts[way][:3000]
