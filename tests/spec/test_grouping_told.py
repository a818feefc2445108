"""What is said of patients: never a number of people where nobody knows them."""

from __future__ import annotations

from m3b.data.spec.grouping import grouped_by, readable
from m3b.data.spec.model import IndexSpec

BASE = {
    "task": "diagnosis",
    "images": {"files": {"pattern": "{cls}/{id}_{copy:number}.png"}},
    "labels": {"sources": ["{cls}"], "classes": {"a": [], "b": []}},
}


def test_what_groups_images_is_told_in_words() -> None:
    path = IndexSpec.model_validate({**BASE, "together": ["{id}"]})
    assert grouped_by(path) == "the part marked {id} in the file names {cls}/{id}_{copy:number}.png"
    regex = {"files": {"pattern": r"re:img\.s/(?P<level0>[^\W\d_]+)/(?P<name0>(?:p|q)\d+)_[)]?(?P<name1>\d{3})\.png"}}
    found = IndexSpec.model_validate({**BASE, "images": regex, "labels": {"sources": ["{level0}"], "classes": {"a": [], "b": []}},
                                      "together": [{"kind": "path", "value": "{name0}", "find": r"p(\d+)"}]})  # fmt: skip
    assert grouped_by(found) == "a piece marked {name0} in the file names img.s/{level0}/{name0}_[)]?{name1}.png"
    table = IndexSpec.model_validate({**BASE, "patient": {"file": "t.csv", "row": "{f}", "column": "who"}})
    assert grouped_by(table) == "the column who of t.csv"
    tag = IndexSpec.model_validate({**BASE, "patient": {"keyword": "PatientID"}})
    assert grouped_by(tag) == "the DICOM header field PatientID"
    assert grouped_by(IndexSpec.model_validate(BASE)) == ""


def test_patterns_of_a_survey_are_shown_without_their_signs() -> None:
    """Users were told of patients by "the part {name0} of scans/{name0}(?i:.png)"."""
    plain = r"re:scans/(?P<level1>\d+)/(?P<name0>\d+)(?P<name1>[^\W\d_]+)(?i:\.nii\.gz|\.nii)"
    assert readable(plain) == "scans/{level1}/{name0}{name1}.nii.gz|.nii"
    inner = r"re:(?:(?=(?:[^/]*/)*[^/]*(?i:isic)[\W_]?(?P<name_isic>\d+)[^/]*$))?skin/(?P<name>[^/]+?)(?i:\.jpg)"
    assert readable(inner) == "skin/{name}.jpg"
