"""Legends in notes, documents and tables."""

from __future__ import annotations

import json

import polars as pl
import pytest

from m3b.dataset.tables import find_legend_in_frame, find_legends


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("Labels: 0: normal, 1: pneumonia and 2: covid.", {"0": "normal", "1": "pneumonia", "2": "covid"}),
        ("The grade (0=none, 1=mild, 2=severe) was set by two readers.", {"0": "none", "1": "mild", "2": "severe"}),
        ("Classes\n0 background\n1 liver\n2 spleen\n", {"0": "background", "1": "liver", "2": "spleen"}),
        ("- 1 = left atrium\n- 2 = right atrium\n", {"1": "left atrium", "2": "right atrium"}),
        ("| 0 | void |\n| 1 | kidney |\n", {"0": "void", "1": "kidney"}),
        ("normal: 0, pneumonia: 1", {"0": "normal", "1": "pneumonia"}),
        ("Masks hold edema (2) and enhancing tumor (4).", {"2": "edema", "4": "enhancing tumor"}),
        ("Befund: 0 = unauffällig, 1 = auffällig", {"0": "unauffällig", "1": "auffällig"}),
        ("Retina images. Labels: 0 none, 1 mild, 2 severe.", {"0": "none", "1": "mild", "2": "severe"}),
        ("masks.png (0 bg, 1 necrosis, 2 non-enhancing), 12 cases", {"0": "bg", "1": "necrosis", "2": "non-enhancing"}),
        ("0：正常，1：肺炎", {"0": "正常", "1": "肺炎"}),
        ("1-3 are C1-C3, 4-5 T1-T2, and 6 is L1", {"1": "C1", "2": "C2", "3": "C3", "4": "T1", "5": "T2", "6": "L1"}),
    ],
)
def test_codes_in_prose(text, codes):
    assert codes in [legend.codes for legend in find_legends({"README.md": text})]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("RBC: red blood cells\nWBC: white blood cells\n", {"RBC": "red blood cells", "WBC": "white blood cells"}),
        ("We use melanoma (mel) and basal cell carcinoma (BCC).", {"mel": "melanoma", "BCC": "basal cell carcinoma"}),
        (
            "nv - melanocytic nevi\nbkl - benign keratosis-like lesions\n",
            {"nv": "melanocytic nevi", "bkl": "benign keratosis-like lesions"},
        ),
        (
            "CP (common pneumonia) and NCP (novel coronavirus pneumonia)",
            {"CP": "common pneumonia", "NCP": "novel coronavirus pneumonia"},
        ),
        ("The column dx is P for pneumonia and N for normal.", {"P": "pneumonia", "N": "normal"}),
        (
            "HE haemorrhages, EX hard exudates, OD optic disc. No mask file = not present.",
            {"HE": "haemorrhages", "EX": "hard exudates", "OD": "optic disc"},
        ),
    ],
)
def test_abbreviations(text, codes):
    (legend,) = find_legends({"notes.txt": text})
    assert (legend.codes, legend.kind) == (codes, "abbreviations")


@pytest.mark.parametrize(
    ("name", "text", "codes", "kind"),
    [
        ("dataset.json", '{"labels": {"background": 0, "lesion": 1}}', {"0": "background", "1": "lesion"}, "codes"),
        ("classes.json", '{"0": "lesion"}', {"0": "lesion"}, "codes"),
        ("d.json", '{"labels": {"0": "background", "1": "lesion"}}', {"0": "background", "1": "lesion"}, "codes"),
        (
            "coco.json",
            '{"categories": [{"id": 3, "name": "rbc"}, {"id": 7, "name": "wbc"}]}',
            {"3": "rbc", "7": "wbc"},
            "codes",
        ),
        ("data.yaml", "names: [rbc, wbc]\nnc: 2\n", {"0": "rbc", "1": "wbc"}, "list"),
        ("data.yaml", "names:\n  0: rbc\n  1: wbc\n", {"0": "rbc", "1": "wbc"}, "codes"),
        ("labels.txt", "background\nnuclei\nborder\n", {"0": "background", "1": "nuclei", "2": "border"}, "list"),
        ("classes.txt", "1 liver\n2 spleen\n", {"1": "liver", "2": "spleen"}, "codes"),
    ],
)
def test_documents_and_lists(name, text, codes, kind):
    (legend,) = find_legends({name: text})
    assert (legend.codes, legend.kind) == (codes, kind)
    assert legend.source.startswith(name)


def test_the_word_before_a_legend_is_kept():
    legends = find_legends({"README.md": "The grade (0=none, 1=mild) is of two readers.\nLabels: 0: left, 1: right"})
    assert [legend.column for legend in legends] == ["grade", "Labels"]


@pytest.mark.parametrize(
    "text",
    [
        "Version 2.0, January 2004. 1. Definitions. You may use 3 copies: one for each. Section 2: Grant of rights.",
        "The set has 100 images (3 sites) of 20 patients, and 12 test images.",
        "Images are 512 x 512 pixels: 8 bit. See Figure 1: overview.",
        "Time 10:30, ratio 3:1, doi:10.1000/182 (2019)",
    ],
)
def test_other_numbers_are_no_legend(text):
    assert [legend for legend in find_legends({"README.md": text}) if legend.kind == "codes"] == []


def test_tables_of_codes():
    frame = pl.DataFrame({"code": ["0", "1", "2"], "meaning": ["normal", "mild", "severe"], "(row)": ["0", "1", "2"]})
    legend = find_legend_in_frame(frame, "legend.csv")
    assert legend is not None
    assert (legend.codes, legend.column) == ({"0": "normal", "1": "mild", "2": "severe"}, "code")
    cases = pl.DataFrame({"image": ["a.png", "b.png"], "label": ["1", "0"]})
    assert find_legend_in_frame(cases, "labels.csv") is None


def test_aliases_of_yaml_are_not_followed():
    assert find_legends({"bomb.yaml": "a: &a [x, x]\nb: &b [*a, *a]\nnames: [*b, *b]\n"}) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.txt", "220,40,40 lesion\n40,200,60 fluid\n"),
        ("README.txt", "Masks of ultrasound.\n\n220,40,40 = lesion\n40,200,60 = fluid\n"),
        ("notes.md", "- lesion: #DC2828\n- fluid: #28c83c\n"),
        ("notes.md", "| lesion | (220, 40, 40) |\n| fluid | (40, 200, 60) |\n"),
        ("classes.json", '{"220,40,40": "lesion", "40,200,60": "fluid"}'),
    ],
)
def test_colours_are_codes(name, text):
    assert {"#dc2828": "lesion", "#28c83c": "fluid"} in [legend.codes for legend in find_legends({name: text})]


@pytest.mark.parametrize(
    "columns",
    [
        {"code": ["220,40,40", "40,200,60"], "name": ["lesion", "fluid"]},
        {"name": ["lesion", "fluid"], "r": ["220", "40"], "g": ["40", "200"], "b": ["40", "60"]},
    ],
)
def test_tables_of_colours(columns):
    legend = find_legend_in_frame(pl.DataFrame(columns), "colours.csv")
    assert legend is not None
    assert legend.codes == {"#dc2828": "lesion", "#28c83c": "fluid"}


@pytest.mark.parametrize("prefix", ["Color_", ""])
def test_colour_tables_of_3d_slicer_name_the_numbers(prefix):
    columns = {
        "LabelValue": ["1", "2", "7"],
        "Name": ["liver", "spleen", "left kidney"],
        f"{prefix}R": ["221", "157", "185"],
        f"{prefix}G": ["130", "108", "102"],
        f"{prefix}B": ["101", "162", "83"],
        f"{prefix}A": ["255", "255", "255"],
        "Type_CodingSchemeDesignator": ["SCT", "SCT", "SCT"],
        "Type_CodeValue": ["10200004", "78961009", "64033007"],
        "Type_CodeMeaning": ["Liver", "Spleen", "Kidney"],
    }
    legend = find_legend_in_frame(pl.DataFrame(columns), "organs.csv")
    assert legend is not None
    assert (legend.codes, legend.column) == ({"1": "liver", "2": "spleen", "7": "left kidney"}, "LabelValue")


ORGANS = {"0": "background", "2": "pancreas", "5": "left adrenal gland"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("structures.txt", '# IDX R G B A VIS MSH LABEL\n  0 0 0 0 0 0 0 "background"\n'
         ' 2 9 0 0 1 1 1 "pancreas"\n 5 0 0 9 0.5 1 0 "left adrenal gland"\n'),
        ("colours.ctbl", "# Color table file a.ctbl\n# 3 values\n0 background 0 0 0 0\n"
         "2 pancreas 221 130 101 255\n5 left adrenal gland 1 2 3 255\n"),
        ("lut.txt", "#No. Label Name: R G B A\n0 background 0 0 0 0\n\n2  pancreas  70 130 180 0\n5  left adrenal gland 1 2 3 0\n"),
        ("key.txt", "0;0;0;0;background\n2;255;0;0;pancreas\n5;0;0;255;left adrenal gland\n"),
        ("mask_values.txt", "0 background\n2 pancreas\n5 left adrenal gland\n"),
        ("werte.txt", "background = 0\npancreas = 2\nleft adrenal gland = 5\n"),
        ("organs.lsetp", '<LabelSet><Label id="0" name="background"/><Label id="2" name="pancreas"/>'
         '<Label id="5" name="left adrenal gland"/></LabelSet>'),
        ("organs.lsetp", "<LabelSet>" + "".join(
            f'<Label><PropertyList><property key="name" type="string"><string value="{organ}"/></property>'
            f'<property key="value" type="int"><int value="{code}"/></property></PropertyList></Label>'
            for code, organ in ORGANS.items()) + "</LabelSet>"),
        ("mitk.json", json.dumps({"groups": [{"labels": [{"name": name, "value": int(code)} for code, name in ORGANS.items()]}]})),
        ("dataset.json", json.dumps({"labels": {name: int(code) for code, name in ORGANS.items()}})),
        ("metadata.json", json.dumps({"network_data_format": {"outputs": {"pred": {"channel_def": ORGANS}}}})),
    ],
)  # fmt: skip
def test_label_files_of_segmentation_tools(name, text):
    assert ORGANS in [legend.codes for legend in find_legends({name: text})]


@pytest.mark.parametrize(
    "text",
    [
        "3 anna\n3 berta\n",
        "Scanner 3\nPatients of 2019\n",
        "1 yes\nAll cases were read twice.\n",
        "7 slices\n7 slices\n",
    ],
)
def test_other_lines_are_no_label_file(text):
    assert not find_legends({"info.txt": text})


def test_a_document_of_labels_that_is_a_list() -> None:
    legends = find_legends({"labels.json": json.dumps(["left lung", "right lung", "infection"])})
    assert [(legend.kind, list(legend.codes.values())) for legend in legends] == [
        ("list", ["left lung", "right lung", "infection"])
    ]
    assert find_legends({"remarks.json": json.dumps(["left lung", "right lung", "infection"])}) == []
