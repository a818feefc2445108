from __future__ import annotations

import json
from collections import Counter

import pytest

from m3b.data import phi
from m3b.tools.phi import cell, is_personal, mask, masked_json, personal_columns, scrub


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
    counted = Counter[str]()
    plain = phi.normal
    monkeypatch.setattr(phi, "normal", lambda header: counted.update([header]) or plain(header))
    columns = [f"{'name':_>{width + 4}}" for width in range(100)]
    assert personal_columns(columns, [["Jane Doe"] * 100]) == set(range(len(columns)))
    assert max(counted.values()) <= 2
    counted.clear()
    assert "Jane" not in json.dumps(masked_json(dict.fromkeys(columns, "Jane Doe")))
    assert max(counted.values()) <= 2


def test_json_keeps_coco_categories() -> None:
    value = {
        "categories": [{"id": 1, "name": "Jane Doe", "supercategory": "x"}],
        "patients": [{"name": "Jane Doe", "age": 3, "contact": {"phone": "1", "email": "a@b.de"}}],
    }
    found = masked_json(value)
    assert found["categories"] == value["categories"]
    text = json.dumps(found["patients"])
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
    assert scrub(note) == note, "a README is prose, and may be read"


def test_a_table_with_notes_shows_their_length_only(tmp_path) -> None:
    from m3b.tools.previews.tables import preview

    note = "Jane Doe came back with a cough that has lasted for three weeks and does not get any better now"
    file = tmp_path / "cases.csv"
    file.write_text("image,notes\n" + "".join(f'{n}.png,"{note} {n}"\n' for n in range(30)), encoding="utf-8")
    shown = "\n".join(preview(file, "mask"))
    assert "Jane" not in shown
    assert "[prose of 21 words, not shown]" in shown
    assert "notes: text, up to 98 characters, 30 distinct" in shown
