from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from m3b.data import phi, phi_words
from m3b.data.phi import cell, is_personal, mask, masked_json, personal_columns, record_numbers, scrub
from m3b.isolation.sandbox import choose_sandbox
from m3b.messages import ToolCall
from m3b.tools import Roots, Toolbox


@pytest.mark.parametrize(
    "header",
    [
        "PatientName",
        "patient_name",
        "First Name",
        "surname",
        "DOB",
        "birth_date",
        "PatientBirthDate",
        "Geburtsdatum",
        "Nachname",
        "date de naissance",
        "Adresse",
        "E-Mail",
        "phone_number",
        "MRN",
        "Medical Record Number",
        "SSN",
        "insurance_id",
        "姓名",
        "出生日期",
        "Straße",
        "apellidos",
        "fecha_nacimiento",
        "Prénom",
        "zip code",
        "病历号",
    ],
)
def test_headers_that_name_a_person(header: str) -> None:
    assert is_personal(header)


@pytest.mark.parametrize(
    "header",
    [
        "patient",
        "PatientID",
        "patient_id",
        "subject",
        "filename",
        "class_name",
        "image_name",
        "file name",
        "label",
        "age",
        "sex",
        "StudyDate",
        "dataset name",
        "organ_name",
        "Image Index",
        "cell",
        "birads",
        "name_of_finding",
        "report",
    ],
)
def test_headers_that_do_not(header: str) -> None:
    assert not is_personal(header, ["a", "b"])


def test_a_bare_name_depends_on_its_company() -> None:
    assert is_personal("name", ["x1", "x2"], ["age", "sex"])
    assert is_personal("name", ["Jane Doe", "John Q. Public"], ["file"])
    assert not is_personal("name", ["Jane Doe"], ["id", "supercategory"])
    assert not is_personal("name", ["Pleural Effusion", "Lung Opacity"], ["id"])
    assert not is_personal("name", ["cat", "dog"], ["id"])


def test_values_that_name_a_person() -> None:
    assert is_personal("a", ["DOE^JANE", "ROE^RICHARD"])
    assert is_personal("b", ["jane@x.org", "joe@y.com", ""])
    assert is_personal("c", ["123-45-6789", "987-65-4321"])
    assert is_personal("d", ["+1 555 123 4567", "(555) 123-4567"])
    assert not is_personal("date", ["2020-01-02", "2021-11-12"])
    assert not is_personal("uid", ["1.2.840.113619.2.55", "case-0001-0002"])
    assert not is_personal("box", ["10 20 30 40", "100 200 300 400"])


def test_masks_are_stable_and_tell_values_apart() -> None:
    assert mask("Jane") == mask(" Jane ")
    assert mask("Jane") != mask("Joe")
    assert "Jane" not in mask("Jane")
    assert mask("") == ""


def test_scrub_and_columns() -> None:
    assert scrub("write to jane@x.org, SSN 123-45-6789, 2020-01-02") == "write to [masked], SSN [masked], 2020-01-02"
    assert scrub("SSN 123-45-6789. Call 555-867-5309.") == "SSN [masked]. Call [masked].", (
        "at the end of a sentence too"
    )
    assert scrub("12 345 678.5 and 123-45-6789.5") == "12 345 678.5 and 123-45-6789.5", "decimals are figures"
    assert personal_columns(["id", "name", "sex"], [["1", "Jane Doe", "f"]]) == {1}


def test_the_work_grows_with_the_columns_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns called `name` ask what stands beside them: in a table of nothing else each asked all others anew."""
    header_counts = Counter[str]()
    original = phi.normal
    monkeypatch.setattr(phi, "normal", lambda header: header_counts.update([header]) or original(header))
    columns = [f"{'name':_>{width + 4}}" for width in range(100)]
    assert personal_columns(columns, [["Jane Doe"] * 100]) == set(range(len(columns)))
    assert max(header_counts.values()) <= 2
    header_counts.clear()
    assert "Jane" not in json.dumps(masked_json(dict.fromkeys(columns, "Jane Doe")))
    assert max(header_counts.values()) <= 2


def test_json_keeps_coco_categories() -> None:
    value = {
        "categories": [{"id": 1, "name": "Jane Doe", "supercategory": "x"}],
        "patients": [{"name": "Jane Doe", "age": 3, "contact": {"phone": "1", "email": "a@b.de"}}],
    }
    masked = masked_json(value)
    assert masked["categories"] == value["categories"]
    text = json.dumps(masked["patients"])
    assert "Jane" not in text
    assert "a@b" not in text
    assert '"age": 3' in text


def test_prose_in_cells_and_records_is_withheld_and_labels_are_not() -> None:
    note = "Mr Smith was seen by Dr Jones in May and complained of chest pain since the party at his sister's house."
    assert cell(note) == "[prose of 21 words, not shown]"
    assert masked_json({"notes": [note], "dx": "left lower lobe pneumonia"}) == {
        "notes": ["[prose of 21 words, not shown]"],
        "dx": "left lower lobe pneumonia",
    }
    assert scrub(note) == note.replace("Smith", "[masked]").replace("Jones", "[masked]"), (
        "a README is prose, and may be read"
    )


def test_a_table_with_notes_shows_their_length_only(tmp_path) -> None:
    from m3b.tools.previews.tables import preview

    note = "Jane Doe came back with a cough that has lasted for three weeks and does not get any better now"
    file = tmp_path / "cases.csv"
    file.write_text("image,notes\n" + "".join(f'{n}.png,"{note} {n}"\n' for n in range(30)), encoding="utf-8")
    preview_text = "\n".join(preview(file, "mask"))
    assert "Jane" not in preview_text
    assert "[prose of 21 words, not shown]" in preview_text
    assert "notes: text, up to 98 characters, 30 distinct" in preview_text


@pytest.mark.parametrize("header", sorted({*phi_words.WORDS}))
def test_headers_of_many_languages(header: str) -> None:
    assert is_personal(header), "in the form in which hospitals write them"
    assert "ı" in header or is_personal(header.upper())


@pytest.mark.parametrize(
    "header",
    ["portable", "CNS", "患者", "性别", "年龄", "诊断", "診断", "Befund", "diagnóstico", "lésion", "nom_fichier"],
)
def test_headers_of_many_languages_that_do_not(header: str) -> None:
    assert not is_personal(header, ["a", "b"])


@pytest.mark.parametrize(
    ("text", "hidden_words"),
    [
        ("Call 0171-9876543 or +49 171 9876543.", ["9876543"]),
        ("Tél. 06 12 34 56 78, merci", ["12 34 56"]),
        ("手机 13812345678", ["13812345678"]),
        ("電話 03-1234-5678", ["1234-5678"]),
        ("Patient geb. 12.03.1956, Husten", ["12.03.1956"]),
        ("née le 12/03/1956 à Lyon", ["12/03/1956"]),
        ("born on 12 March 1956", ["1956"]),
        ("F. nac. 12-03-1956", ["1956"]),
        ("出生日期：1956年3月12日", ["1956"]),
        ("生年月日: 1956/03/12", ["1956"]),
        ("seen by Dr. Jones and Mrs Jane Smith", ["Jones", "Jane", "Smith"]),
        ("Überwiesen von Herrn Müller, Frau Prof. Weiß", ["Müller"]),
        ("Mme Dupont, Sra. García Lorca", ["Dupont", "García", "Lorca"]),
        ("患者姓名：王小明，咳嗽", ["王小明"]),
        ("氏名: 山田 太郎", ["山田", "太郎"]),
        ("lives at 12 Baker Street, London", ["Baker"]),
        ("wohnt Lindenallee 7, Kassel; vorher Lange Straße 12a", ["Lindenallee", "Lange"]),
        ("habite 7 rue des Tilleuls, puis 12 bis, avenue de la République", ["Tilleuls", "République"]),
        ("vive en Calle del Olmo 7 y Avda. de los Reyes Católicos, 12", ["Olmo", "Reyes"]),
        ("住在北京市海淀区7号", ["海淀区7"]),
        ("住所 東京都港区7番", ["港区7"]),
    ],
)
def test_free_text_of_many_languages(text: str, hidden_words: list[str]) -> None:
    scrubbed = scrub(text)
    assert "[masked]" in scrubbed
    assert not [word for word in hidden_words if word in scrubbed], scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "acquired 2020-01-02, slice 12.5 mm, 512 x 512 px, 0.45 0.67 0.89",
        "uid 1.2.840.113619.2.55.3.1234567890, case-0001-0002",
        "CT Chest W/O Contrast; Right Upper Lobe; Left Lung",
        "see images/IM-0001-0002.dcm and 1234567890123",
        "Grade 2 Right Upper Lobe; 3 Left; Spring 2019; Monitoring 2; via Port 3; Place 7 markers",
        "病变位于左肺上叶区3处",
    ],
)
def test_what_is_no_identity_stays(text: str) -> None:
    assert scrub(text) == text


def test_texts_of_the_raw_data_are_masked_where_they_are_read(tmp_path) -> None:
    """As previews do: XML, YAML and plain texts too, and copies of them; code is shown as it is."""
    work, data = tmp_path / "work", tmp_path / "data"
    work.mkdir()
    data.mkdir()
    texts = {
        "a.xml": "<r><PatientName>Jane Doe</PatientName><finding>effusion</finding></r>",
        "b.yaml": "patient_name: Jane Doe\nfinding: effusion",
        "c.txt": "Patient Name: Jane Doe\nNachname: Doe\nfinding: effusion, call 0171-9876543",
        "e.json": '{"patient_name": "Jane Doe", "birthDate": "12.03.1956", "label": "effusion"}',
        "d.md": "- **Geburtsdatum**: 12.03.1956\n- finding: effusion",
    }
    for name, text in texts.items():
        (data / name).write_text(text, encoding="utf-8")
    (work / "own.py").write_text(texts["c.txt"], encoding="utf-8")
    with Toolbox(Roots(work, {"data/x": data}), sandbox=choose_sandbox()) as box:

        def read(*paths: str) -> str:
            return box.call(ToolCall("1", "read_files", {"paths": list(paths)}), ("read_files",)).text

        box.call(ToolCall("2", "copy_files", {"source": "data/x", "destination": "copy"}), ("copy_files",))
        for folder in ("data/x", "copy"):
            output = read(*(f"{folder}/{name}" for name in texts))
            assert output.count("effusion") == len(texts)
            for word in ("Jane", "Doe", "9876543", "12.03.1956"):
                assert word not in output, output
        assert "Jane Doe" in read("own.py")


def test_dicom_descriptions_do_not_repeat_the_name_and_burnt_in_text_is_warned_of(tmp_path) -> None:
    import pydicom
    from pydicom.data import get_testdata_file

    from m3b.tools.previews.dicom import preview, preview_series

    data = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
    data.PatientName, data.PatientID = "Miller^Jane", "K4711"
    data.SeriesDescription, data.ProtocolName = "MILLER abdomen k4711", "for Dr. Jones"
    data.add_new(0x00091001, "LO", "Miller private")
    data.BurnedInAnnotation = "YES"
    data.save_as(tmp_path / "a.dcm")
    preview_text = "\n".join([*preview(tmp_path / "a.dcm", "mask"), *preview_series([tmp_path / "a.dcm"], "mask")])
    assert "abdomen" in preview_text
    assert "burnt into the pixels; it may name the patient" in preview_text
    for word in ("iller", "ILLER", "4711", "Jones", "Jane"):
        assert word not in preview_text, preview_text
    del data.BurnedInAnnotation
    data.Modality = "US"
    data.save_as(tmp_path / "b.dcm")
    assert "often have text burnt" in "\n".join(preview(tmp_path / "b.dcm", "mask"))
    data.BurnedInAnnotation = "NO"
    data.save_as(tmp_path / "b.dcm")
    assert "burnt" not in "\n".join(preview(tmp_path / "b.dcm", "mask"))


@pytest.mark.parametrize(
    "text",
    [
        "区" * 40_000,
        "東京都" * 13_000,
        "12 " + "Aa " * 13_000,
        "Aastr" * 8_000,
        "7 rue de la " * 4_000,
        ("一" * 12 + "1") * 3_000,
    ],
)
def test_addresses_are_looked_for_in_linear_time(text: str) -> None:
    began = time.process_time()
    scrub(text)
    assert time.process_time() - began < 5, "half a second of this machine's; a quadratic search would take minutes"


def test_a_bare_table_of_persons_shows_neither_dates_nor_record_numbers() -> None:
    names = [str(at) for at in range(5)]
    persons = [
        ["1.png", "Emily Thornton", "12/03/1956", "P4471923", "spot"],
        ["2.png", "Maria Schmidt", "1961-05-04", "P4471924", "plain"],
    ]
    assert personal_columns(names, persons) == {1, 2, 3}
    plain_rows = [
        ["1.png", "Right Lung", "12/03/2019", "4471923", "spot"],
        ["2.png", "Left Lung", "2019-05-04", "4471924", "plain"],
    ]
    assert personal_columns(names, plain_rows) == set(), "without persons dates and numbers are what joins tables"


def test_record_numbers_as_fhir_writes_them() -> None:
    value = {"identifier": [{"system": "urn:x", "value": "4471923"}], "label": [{"value": "spot"}]}
    assert record_numbers([{"entry": value}]) == {"4471923"}
    masked = json.dumps(masked_json(value))
    assert "4471923" not in masked
    assert "spot" in masked
    assert masked_json({"identifier": "https://doi.org/10.1/x"}) == {"identifier": "https://doi.org/10.1/x"}
