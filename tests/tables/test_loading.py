"""Tables of every form become frames of texts."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import polars as pl
import pytest

from m3b.dataset.tables import TableError, TableLimits, load_table, workbooks

ROWS = [["img_001.png", "normal", "61"], ["img_002.png", "pneumonia", "47"], ["img_003.png", "normal", "55"]]
COLUMNS = ["image", "diagnosis", "age"]


def write(folder: Path, name: str, content: str | bytes, encoding: str = "utf-8") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return name


def load_rows(folder: Path, *names: str, **options: object) -> list[tuple[str | None, ...]]:
    table = load_table(folder, list(names), **options)  # type: ignore[arg-type]
    return table.frame.drop("(row)").rows()


def expected() -> list[tuple[str, ...]]:
    return [tuple(row) for row in ROWS]


def delimit(separator: str, *, end: str = "\n", header: bool = True) -> str:
    lines = ([COLUMNS] if header else []) + ROWS
    return "".join(separator.join(row) + end for row in lines)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_separators_and_line_ends(tmp_path, separator, end):
    table = load_table(tmp_path, [write(tmp_path, "t.csv", delimit(separator, end=end))])
    assert table.frame.columns == [*COLUMNS, "(row)"]
    assert table.frame.drop("(row)").rows() == expected()
    assert table.info.separator == separator
    assert table.frame["(row)"].to_list() == ["0", "1", "2"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
def test_without_header(tmp_path, separator):
    table = load_table(tmp_path, [write(tmp_path, "t.csv", delimit(separator, header=False))])
    assert table.info.header_row == -1
    assert table.frame.drop("(row)").rows() == expected()
    assert table.frame.columns[:3] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("encoding", "expected_encoding"),
    [("utf-8", "utf-8"), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("utf-16-le", "utf-16-le"), ("utf-16-be", "utf-16-be"),
     ("latin-1", "cp1252"), ("cp1252", "cp1252")],
)  # fmt: skip
def test_encodings_of_latin_letters(tmp_path, encoding, expected_encoding):
    text = "Fall;Befund;Größe\n001;Ödem;1,5\n002;unauffällig;2,5\n003;Naevus über;3,0\n"
    table = load_table(tmp_path, [write(tmp_path, "t.csv", text, encoding)])
    assert table.info.encoding == expected_encoding
    assert table.frame.columns == ["Fall", "Befund", "Größe", "(row)"]
    assert table.frame["Befund"].to_list() == ["Ödem", "unauffällig", "Naevus über"]


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "utf-16"])
def test_encodings_of_chinese(tmp_path, encoding):
    text = "编号,诊断,年龄\n001,肺炎,61\n002,正常,47\n003,肺炎,55\n"
    table = load_table(tmp_path, [write(tmp_path, "t.csv", text, encoding)])
    assert table.frame["诊断"].to_list() == ["肺炎", "正常", "肺炎"]
    assert table.frame["编号"].to_list() == ["001", "002", "003"]


def test_two_letters_within_words_are_no_chinese(tmp_path):
    table = load_table(tmp_path, [write(tmp_path, "t.csv", "größe,befund\n1,auffällig\n2,normal\n", "cp1252")])
    assert table.info.encoding == "cp1252"
    assert "größe" in table.frame.columns


def test_quoted_separators_and_newlines(tmp_path):
    text = 'id,report,label\n1,"Heart, enlarged.\nNo effusion.",1\n2,"He said ""clear""",0\n'
    assert load_rows(tmp_path, write(tmp_path, "t.csv", text)) == [
        ("1", "Heart, enlarged.\nNo effusion.", "1"), ("2", 'He said "clear"', "0"),
    ]  # fmt: skip


def test_title_rows_comments_and_footers(tmp_path):
    text = (
        "Auswertung der Studie;;\nStand 2021;;\n;;\nBild;Befund;Alter\nimg_001.png;normal;61\nimg_002.png;Naevus;47\n"
        "img_003.png;normal;55\nimg_004.png;Naevus;50\nAlle Angaben ohne Gewähr;;\n"
    )
    table = load_table(tmp_path, [write(tmp_path, "t.csv", text)])
    assert table.frame.columns == ["Bild", "Befund", "Alter", "(row)"]
    assert table.frame.height == 4
    assert table.info.title_rows == ("Auswertung der Studie", "Stand 2021", "Alle Angaben ohne Gewähr")
    commented = "# made by a script\n# image,diagnosis,age\n" + delimit(",", header=False)
    table = load_table(tmp_path, [write(tmp_path, "c.csv", commented)])
    assert table.frame.columns == [*COLUMNS, "(row)"]
    assert table.info.title_rows == ("made by a script",)


@pytest.mark.parametrize(("first", "header_row"), [("images/297a", -1), ("Image/Path", 0)])
def test_a_path_in_the_folder_of_those_below_is_no_header(tmp_path, first, header_row):
    lines = [first, "images/be1bf", "images/519a7", "images/bd0a3"]
    table = load_table(tmp_path, [write(tmp_path, "testing.txt", "\n".join(lines))])
    assert table.info.header_row == header_row


def test_units_below_the_header(tmp_path):
    text = "id,volume,age\n,ml,years\na1,12.5,60\na2,13.5,61\na3,11.0,62\n"
    table = load_table(tmp_path, [write(tmp_path, "t.csv", text)])
    assert table.info.units == {"volume": "ml", "age": "years"}
    assert table.frame["volume"].to_list() == ["12.5", "13.5", "11.0"]


def test_trailing_cells_blank_rows_and_columns(tmp_path):
    text = (
        "image,,diagnosis,age,\nimg_001.png,,normal,61,\n\n,,,,\nimg_002.png,,pneumonia,47,\nimg_003.png,,normal,55,\n"
    )
    table = load_table(tmp_path, [write(tmp_path, "t.csv", text)])
    assert table.frame.columns == [*COLUMNS, "(row)"]
    assert table.frame.drop("(row)").rows() == expected()


def test_repeated_and_empty_header_names(tmp_path):
    table = load_table(tmp_path, [write(tmp_path, "t.csv", "id,score,score,\na1,1,2,x\na2,3,4,y\na3,5,6,x\n")])
    assert table.frame.columns == ["id", "score", "score (2)", "(column 3)", "(row)"]


def test_row_names_without_a_column_name(tmp_path):
    table = load_table(
        tmp_path,
        [write(tmp_path, "t.csv", "diagnosis,age\nimg_001.png,normal,61\nimg_002.png,ill,47\nimg_003.png,ill,50\n")],
    )
    assert table.frame.columns == ["(column 0)", "diagnosis", "age", "(row)"]


def test_class_numbers_as_column_names(tmp_path):
    table = load_table(tmp_path, [write(tmp_path, "t.csv", "image,0,1,2\na.png,1,0,0\nb.png,0,1,0\nc.png,0,0,1\n")])
    assert table.frame.columns == ["image", "0", "1", "2", "(row)"]
    assert table.frame.height == 3


@pytest.mark.parametrize("order", ["2,1,0", "1,0,2", "3,1,2"])
def test_class_numbers_as_column_names_in_any_order(tmp_path, order):
    text = f"{order},filename\n0,1,0,91490721b9.nrrd\n0,1,1,be8661132a.nrrd\n1,0,0,b969f0a0d9.nrrd\n0,0,1,c4b5419b7f.nrrd\n"
    table = load_table(tmp_path, [write(tmp_path, "t.csv", text)])
    assert table.frame.columns[:4] == [*order.split(","), "filename"]
    assert len(table.frame) == 4


@pytest.mark.parametrize("first", ["0,1,1", "1,1,0", "0,1,0"])
def test_rows_of_yes_and_no_are_no_names(tmp_path, first):
    text = f"{first},91490721b9.nrrd\n0,1,1,be8661132a.nrrd\n1,0,0,b969f0a0d9.nrrd\n0,0,1,c4b5419b7f.nrrd\n"
    assert load_table(tmp_path, [write(tmp_path, "t.csv", text)]).info.header_row == -1


def test_declared_separator(tmp_path):
    table = load_table(tmp_path, [write(tmp_path, "t.csv", "sep=;\n" + delimit(";"))])
    assert table.frame.columns == [*COLUMNS, "(row)"]


def test_decimal_commas_between_semicolons(tmp_path):
    table = load_table(tmp_path, [write(tmp_path, "t.csv", "1,5;2,5\n2,5;3,5\n3,0;4,0\n")])
    assert table.info.separator == ";"
    assert table.frame.drop("(row)").rows() == [("1,5", "2,5"), ("2,5", "3,5"), ("3,0", "4,0")]


def test_list_of_names_has_one_column(tmp_path):
    names = [f"case_{number:03}" for number in range(20)]
    table = load_table(tmp_path, [write(tmp_path, "train.txt", "\n".join(names))])
    assert table.frame.drop("(row)").columns == ["0"]
    assert table.frame["0"].to_list() == names
    lines = load_table(tmp_path, ["train.txt"], form="lines")
    assert lines.frame["line"].to_list() == names


def test_header_can_be_set(tmp_path):
    name = write(tmp_path, "t.csv", "a,b\nc,d\ne,f\n")
    assert load_rows(tmp_path, name, header=-1) == [("a", "b"), ("c", "d"), ("e", "f")]
    assert load_table(tmp_path, [name], header=1).frame.columns == ["c", "d", "(row)"]
    with pytest.raises(ValueError):
        load_table(tmp_path, [name], header=7)


def write_workbook(path: Path, sheets: dict[str, list[list[object]]]) -> str:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path.name


def test_workbook_with_titles_and_sheets(tmp_path):
    records = [
        ["Studie X"],
        [],
        ["Fall-Nr", "Befund", "Größe"],
        ["007", "Ödem", "1,5"],
        ["008", "normal", 2.25],
        ["009", "normal", 3],
    ]
    name = write_workbook(tmp_path / "t.xlsx", {"Deckblatt": [["Studie X", "2020"]], "Daten": records})
    table = load_table(tmp_path, [name])
    assert (table.info.sheet, table.info.sheets) == ("Daten", ("Deckblatt", "Daten"))
    assert table.frame.columns == ["Fall-Nr", "Befund", "Größe", "(row)"]
    assert table.frame.drop("(row)").rows() == [
        ("007", "Ödem", "1,5"),
        ("008", "normal", "2.25"),
        ("009", "normal", "3"),
    ]


@pytest.mark.parametrize(
    ("note", "valid"),
    [
        ("Gültig ist nur das Blatt Neu. Das Blatt Alt ist veraltet.", "Neu"),
        ("Sheet Alt is obsolete, do not use it.", "Neu"),
        ("Please use sheet Neu.", "Neu"),
        ("La feuille Alt est périmée.", "Neu"),
        ("La hoja válida es Neu.", "Neu"),
        ("请勿使用 Alt", "Neu"),
    ],
)
def test_a_note_decides_between_sheets(tmp_path, note, valid):
    old = [["id", "label"], *[[f"p{number}", number % 2] for number in range(30)]]
    new = [["id", "label"], *[[f"p{number}", number % 3] for number in range(20)]]
    name = write_workbook(tmp_path / "t.xlsx", {"Hinweise": [["Hinweise"], [note]], "Alt": old, "Neu": new})
    table = load_table(tmp_path, [name])
    assert table.info.sheet == valid
    assert any(note in text for text in table.info.notes)
    assert load_table(tmp_path, [name], sheet="Alt").frame.height == 30
    with pytest.raises(TableError, match="Hinweise, Alt, Neu"):
        load_table(tmp_path, [name], sheet="Nothing")


def test_open_document_spreadsheets(tmp_path):
    rows = [["id", "value"], ["a1", "1,5"], ["a2", "2,5"]]
    cells = "".join(
        "<table:table-row>"
        + "".join(
            f'<table:table-cell office:value-type="string"><text:p>{cell}</text:p></table:table-cell>' for cell in row
        )
        + "</table:table-row>"
        for row in rows
    )
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    content = (
        f'<?xml version="1.0"?><office:document-content {names} office:version="1.2"><office:body><office:spreadsheet>'
        f'<table:table table:name="S1">{cells}</table:table></office:spreadsheet></office:body></office:document-content>'
    )
    with zipfile.ZipFile(tmp_path / "t.ods", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", '<?xml version="1.0"?><manifest/>')
        archive.writestr("content.xml", content)
    assert load_rows(tmp_path, "t.ods") == [("a1", "1,5"), ("a2", "2,5")]


def test_many_sidecars_are_quick(tmp_path):
    for number in range(3000):
        (tmp_path / f"{number:05}.json").write_text(json.dumps({"label": number % 3, "site": "A"}))
    names = {f"{number:05}.json": {"case": f"{number:05}"} for number in range(3000)}
    start = time.process_time()
    table = load_table(tmp_path, names)
    assert time.process_time() - start < 5
    assert table.frame.height == 3000
    assert table.frame["case"].to_list() == list(names[name]["case"] for name in names)


def test_json_joins_lists_and_keeps_numbers_as_written(tmp_path):
    name = write(tmp_path, "t.json", '{"crops": {"a.png": [10, 2.50], "b.png": [3, 4]}}')
    assert load_rows(tmp_path, name) == [("a.png", "10|2.50"), ("b.png", "3|4")]


def test_json_records_at_a_place(tmp_path):
    document = {"info": {"year": 2020}, "images": [{"id": 1, "file": "a.png"}, {"id": 2, "file": "b.png"}],
                "annotations": [{"id": 7, "image_id": 1, "bbox": [1, 2, 3, 4], "meta": {"side": "L"}}] * 3}  # fmt: skip
    name = write(tmp_path, "t.json", json.dumps(document))
    table = load_table(tmp_path, [name])
    assert (table.info.records, table.info.places) == ("annotations", {"annotations": 3, "images": 2})
    assert table.frame.row(0) == ("7", "1", "1|2|3|4", "L", "0")
    assert table.frame.columns == ["id", "image_id", "bbox", "meta.side", "(row)"]
    assert load_rows(tmp_path, name, records="images") == [("1", "a.png"), ("2", "b.png")]
    with pytest.raises(TableError, match="images"):
        load_table(tmp_path, [name], records="cases")


@pytest.mark.parametrize(
    "document",
    [
        [{"image": "a.png", "label": 0}, {"image": "b.png", "label": 1}],
        {"image": ["a.png", "b.png"], "label": [0, 1]},
        [["image", "label"], ["a.png", 0], ["b.png", 1]],
        {"data": {"cases": [{"image": "a.png", "label": 0}, {"image": "b.png", "label": 1}]}},
    ],
)
def test_forms_of_json_records(tmp_path, document):
    table = load_table(tmp_path, [write(tmp_path, "t.json", json.dumps(document))])
    assert table.frame.select("image", "label").rows() == [("a.png", "0"), ("b.png", "1")]


def test_lists_of_the_same_records_are_one_table(tmp_path):
    document = {"labels": {"0": "normal"}, "training": [{"image": "a.png", "label": 0}, {"image": "b.png", "label": 1}],
                "validation": [{"image": "c.png", "label": 0}], "test": ["d.png"], "authors": [{"name": "x"}]}  # fmt: skip
    name = write(tmp_path, "t.json", json.dumps(document))
    assert load_rows(tmp_path, name) == [
        ("training", "a.png", "0"),
        ("training", "b.png", "1"),
        ("validation", "c.png", "0"),
    ]
    assert load_rows(tmp_path, name, records="training") == [("a.png", "0"), ("b.png", "1")]


def test_objects_in_a_list_are_columns_of_their_keys(tmp_path):
    records = [
        {"image": "a.png", "marks": [{"label": "cyst", "reader": {"id": 1}}, {"label": "stone", "reader": {"id": 2}}]},
        {"image": "b.png", "marks": [{"label": "cyst", "reader": {"id": 1}, "box": [3, 4]}]},
    ]
    table = load_table(tmp_path, [write(tmp_path, "t.json", json.dumps(records))])
    assert table.frame.select("image", "marks.label", "marks.reader.id").rows() == [
        ("a.png", "cyst|stone", "1|2"),
        ("b.png", "cyst", "1"),
    ]
    assert table.frame["marks.box"].to_list() == [None, '["3", "4"]']


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        (["['cyst', 'stone']", '["cyst"]', "[]"], ["cyst|stone", "cyst", "[]"]),
        (["['it\\'s']", "['b']"], ["it's", "b"]),
        (["['1', '2']", "['cyst']"], ["['1', '2']", "['cyst']"]),
        (["['cyst' 'stone']", "['cyst']"], ["['cyst' 'stone']", "['cyst']"]),
        (["['cyst']", "stone"], ["['cyst']", "stone"]),
        (["[1, 2]", "[3]"], ["[1, 2]", "[3]"]),
    ],
)
def test_written_lists_of_texts_are_read(tmp_path, cells, texts):
    table = load_table(
        tmp_path, [write(tmp_path, "t.jsonl", "\n".join(json.dumps({"image": "a", "labels": cell}) for cell in cells))]
    )
    assert table.frame["labels"].to_list() == texts


@pytest.mark.parametrize("document", [{"a.png": 0, "b.png": 1}, {"a.png": {"label": 0}, "b.png": {"label": 1}}])
def test_json_objects_keyed_by_image(tmp_path, document):
    table = load_table(tmp_path, [write(tmp_path, "t.json", json.dumps(document))])
    assert table.frame["(key)"].to_list() == ["a.png", "b.png"]
    assert table.frame[:, 1].to_list() == ["0", "1"]


def test_json_lines_yaml_and_xml(tmp_path):
    lines = write(
        tmp_path, "t.jsonl", '{"image": "a.png", "label": 0.50}\n{"image": "b.png", "label": 1, "note": null}\n'
    )
    assert load_rows(tmp_path, lines)[0][:2] == ("a.png", "0.50")
    yaml = write(tmp_path, "t.yaml", "cases:\n  - image: a.png\n    label: no\n  - image: b.png\n    label: yes\n")
    assert load_rows(tmp_path, yaml) == [("a.png", "no"), ("b.png", "yes")]
    xml = write(
        tmp_path,
        "t.xml",
        '<?xml version="1.0"?><study><p id="1"><age>60</age></p><p id="2"><age>61</age><sex>F</sex></p></study>',
    )
    table = load_table(tmp_path, [xml])
    assert table.info.records == "p"
    assert table.frame.drop("(row)").rows() == [("1", "60", None), ("2", "61", "F")]


def test_xml_entities_are_refused(tmp_path):
    name = write(tmp_path, "t.xml", '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><a><r x="1"/><r x="&b;"/></a>')
    with pytest.raises(TableError, match="entities"):
        load_table(tmp_path, [name])


def test_small_files_are_a_row_each(tmp_path):
    texts = {"notes/p1.txt": "age: 60\nsex: F\n", "notes/p2.txt": "age: 61\nsex: M\n"}
    for name, text in texts.items():
        write(tmp_path, name, text)
    table = load_table(tmp_path, {name: {"patient": name[6:8]} for name in texts})
    assert table.frame.drop("(row)").rows() == [("notes/p1.txt", "p1", "60", "F"), ("notes/p2.txt", "p2", "61", "M")]
    for patient, record in {"p1": {"age": 60, "scan": {"kvp": 120}}, "p2": {"age": 61}}.items():
        write(tmp_path, f"{patient}.json", json.dumps(record))
    table = load_table(tmp_path, {"p1.json": {"patient": "p1"}, "p2.json": {"patient": "p2"}})
    assert table.frame.select("patient", "age", "scan.kvp").rows() == [("p1", "60", "120"), ("p2", "61", None)]


def test_text_sidecars(tmp_path):
    for number in range(3):
        write(
            tmp_path,
            f"reports/r{number}.txt",
            f"The heart is of normal size in study {number}, and\nthe lungs are clear.\n",
        )
    files = {f"reports/r{number}.txt": {"case": f"r{number}"} for number in range(3)}
    for form in ("text", "auto"):
        table = load_table(tmp_path, files, form=form)
        assert table.frame["text"].str.contains("lungs are clear").all()
        assert table.frame["case"].to_list() == ["r0", "r1", "r2"]


def test_stacked_tables_keep_slots_and_order(tmp_path):
    write(tmp_path, "train.csv", delimit(","))
    write(
        tmp_path,
        "test.csv",
        "image,diagnosis,site\nimg_009.png,normal,A\nimg_010.png,pneumonia,B\nimg_011.png,normal,A\n",
    )
    table = load_table(tmp_path, {"train.csv": {"split": "train"}, "test.csv": {"split": "test"}})
    assert table.frame["split"].to_list() == ["train"] * 3 + ["test"] * 3
    assert table.frame["age"].to_list() == ["61", "47", "55", None, None, None]
    assert table.frame["(row)"].to_list() == [str(number) for number in range(6)]
    write(tmp_path, "bad.json", "{")
    table = load_table(tmp_path, ["train.csv", "bad.json"])
    assert table.frame.height == 3
    assert "bad.json" in table.info.notes[0]


def test_arrays(tmp_path):
    labels = np.array([0, 2, 1], dtype=np.uint8)
    np.save(tmp_path / "labels.npy", labels)
    assert load_rows(tmp_path, "labels.npy") == [("0",), ("2",), ("1",)]
    np.savez(
        tmp_path / "set.npz",
        images=np.zeros((3, 8, 8)),
        labels=labels,
        onehot=np.eye(3)[:, :2],
        names=np.array(["a", "b", "c"]),
        classes=np.array(["x", "y"]),
    )
    table = load_table(tmp_path, ["set.npz"])
    assert table.frame.columns == ["labels", "onehot.0", "onehot.1", "names", "(row)"]
    assert table.frame.row(2) == ("1", "0", "0", "c", "2")
    assert load_rows(tmp_path, "set.npz", records="classes") == [("x",), ("y",)]


def test_objects_in_arrays_are_refused(tmp_path):
    np.save(tmp_path / "labels.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(TableError, match=r"labels\.npy"):
        load_table(tmp_path, ["labels.npy"])


def test_hdf5_and_matlab(tmp_path):
    import h5py
    from scipy.io import savemat

    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["train/images"] = np.zeros((4, 8, 8))
        file["train/labels"] = np.array([[1.0], [0.0], [1.0], [0.0]])
        file["train/patient"] = np.array(["p1", "p2", "p3", "p4"], dtype=h5py.string_dtype())
        file["test/labels"] = np.array([1, 0])
    table = load_table(tmp_path, ["set.h5"], records="/train")
    assert table.frame.columns == ["labels", "patient", "(row)"]
    assert table.frame["labels"].to_list() == ["1", "0", "1", "0"]
    cases = np.array([(1, "x"), (2, "y"), (3, "z")], dtype=[("grade", object), ("site", object)])
    names = np.array(["ab", "c", "d"], dtype=object)
    label = np.array([[1], [2], [3]])
    savemat(tmp_path / "set.mat", {"scans": np.zeros((3, 5, 5)), "label": label, "name": names, "cases": cases})
    table = load_table(tmp_path, ["set.mat"])
    assert table.frame.select("label", "name", "cases.site").rows() == [
        ("1", "ab", "x"),
        ("2", "c", "y"),
        ("3", "d", "z"),
    ]


def test_parquet(tmp_path):
    frame = pl.DataFrame(
        {
            "image": [{"bytes": b"x", "path": "a.png"}, {"bytes": b"y", "path": "b.png"}],
            "label": [0, 1],
            "tags": [["u", "v"], ["w"]],
        }
    )
    frame.write_parquet(
        tmp_path / "t.parquet",
        metadata={"huggingface": json.dumps({"info": {"features": {"label": {"names": ["no", "yes"]}}}})},
    )
    table = load_table(tmp_path, ["t.parquet"])
    assert table.frame.drop("(row)").rows() == [("a.png", "0", "u|v"), ("b.png", "1", "w")]
    assert table.info.code_names == {"label": {"0": "no", "1": "yes"}}


def test_large_tables_are_quick_and_bounded(tmp_path):
    lines = "".join(f"img_{number:07}.png,{number % 7},{number % 90}\n" for number in range(1_000_000))
    name = write(tmp_path, "t.csv", "image,label,age\n" + lines)
    start = time.monotonic()
    table = load_table(tmp_path, [name])
    assert time.monotonic() - start < 20
    assert table.frame.height == 1_000_000
    assert table.frame.row(999_999) == ("img_0999999.png", str(999_999 % 7), str(999_999 % 90), "999999")
    part = load_table(tmp_path, [name], limits=TableLimits(megabytes=1))
    assert part.info.partial
    assert part.frame["image"].str.ends_with(".png").all()
    assert load_table(tmp_path, [name], limits=TableLimits(rows=100)).frame.height == 100


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_wide_table_is_read_in_part(tmp_path: Path, quote: str) -> None:
    rows = [["name", "label", "x", "y"], ["a", "0", "3", "4"], ["b", "1", "5", "6"]]
    (tmp_path / "t.csv").write_text("".join(",".join(f"{quote}{cell}{quote}" for cell in row) + "\n" for row in rows))
    table = load_table(tmp_path, ["t.csv"], limits=TableLimits(columns=2))
    assert table.frame.columns == ["name", "label", "(row)"]
    assert table.frame["label"].to_list() == ["0", "1"]
    assert table.info.partial


def test_a_workbook_that_unpacks_to_more_than_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(workbooks, "_MAX_UNPACKED_BYTES", 3 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(4 << 20))
    with pytest.raises(TableError, match="4 MB"):
        load_table(tmp_path, ["bomb.xlsx"])


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x89PNG\r\n\x1a\n" + bytes(500), b"PK\x03\x04broken", b"{broken"])
def test_what_is_no_table_is_said(tmp_path, content):
    name = write(tmp_path, "t.json" if content.startswith(b"{") else "t.csv", content)
    with pytest.raises(TableError, match=r"^t\."):
        load_table(tmp_path, [name])


def test_a_title_with_a_separator_in_it_is_no_header(tmp_path):
    rows = "\n".join(f"im_{number:03d}.png,p{number // 2}" for number in range(12))
    (tmp_path / "t.csv").write_text(
        f"CT, abdomen: images of two hospitals\n\nExport 2021-03-04\nfilename,patient_id\n{rows}\n"
    )
    table = load_table(tmp_path, ["t.csv"])
    assert {"filename", "patient_id"} <= set(table.frame.columns)
    assert len(table.frame) == 12


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["ID,grade,,age", ",left,right,"], ["ID", "grade left", "grade right", "age"]),
        (["Clinic of radiology", "ID,grade,,age", ",left,right,"], ["ID", "grade left", "grade right", "age"]),
        (["ID,grade,,age"], ["ID", "grade", "(column 2)", "age"]),
        (["ID,grade,second grade,age"], ["ID", "grade", "second grade", "age"]),
    ],
)
def test_two_rows_of_names(tmp_path, lines, columns):
    rows = [f"P{number},{number % 3},{number % 4},{50 + number}" for number in range(12)]
    table = load_table(tmp_path, [write(tmp_path, "t.csv", "\n".join([*lines, *rows]))])
    assert table.frame.columns == [*columns, "(row)"]
    assert len(table.frame) == 12
