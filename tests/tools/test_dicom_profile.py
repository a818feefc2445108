"""Every text of a DICOM header: what is shown of it is a short list, and of the basic confidentiality profile (PS3.15, table
E.1-1) only what its options for patient characteristics and cleaned descriptions keep."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.datadict import DicomDictionary

from m3b.dataset.survey.render import render, summarize
from m3b.dataset.survey.survey import survey
from m3b.isolation.sandbox import choose_sandbox
from m3b.messages import ToolCall
from m3b.tools import TOOLS, Roots, Toolbox

TEXTS = ("PN", "LO", "SH", "LT", "ST", "UT", "UC", "AE", "DA", "DT", "TM", "UI", "AS")
"""Value representations in which a header says who, where and when."""
SHOWN_KEYWORDS = {
    "SOPClassUID", "StudyDescription", "SeriesDescription", "ProtocolName", "Manufacturer", "ManufacturerModelName", "PatientAge",
}  # fmt: skip
"""Of the texts, what may be shown: no person's, kept by "Clean Descriptors" and "Retain Patient Characteristics"."""
PROFILE = (
    "PatientID", "PatientName", "PatientBirthDate", "PatientBirthTime", "PatientAddress", "PatientTelephoneNumbers",
    "OtherPatientIDs", "OtherPatientNames", "PatientMotherBirthName", "MilitaryRank", "Occupation", "EthnicGroup",
    "PatientComments", "AdditionalPatientHistory", "MedicalAlerts", "Allergies", "PatientReligiousPreference",
    "CountryOfResidence", "RegionOfResidence", "InsurancePlanIdentification", "IssuerOfPatientID", "AccessionNumber", "AdmissionID",
    "StudyID", "StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "FrameOfReferenceUID", "StudyDate", "SeriesDate",
    "AcquisitionDate", "ContentDate", "StudyTime", "SeriesTime", "AcquisitionTime", "ContentTime", "AcquisitionDateTime",
    "ReferringPhysicianName", "ReferringPhysicianAddress", "ReferringPhysicianTelephoneNumbers", "PerformingPhysicianName",
    "OperatorsName", "PhysiciansOfRecord", "NameOfPhysiciansReadingStudy", "RequestingPhysician", "RequestingService",
    "InstitutionName", "InstitutionAddress", "InstitutionalDepartmentName", "StationName", "DeviceSerialNumber", "DetectorID",
    "ImageComments", "AcquisitionComments", "AcquisitionDeviceProcessingDescription", "ContributionDescription", "VisitComments",
    "CurrentPatientLocation", "PerformedStationAETitle", "PerformedProcedureStepID", "RequestedProcedureDescription",
    "ReasonForStudy", "PersonName", "PersonAddress", "VerifyingObserverName", "ContentCreatorName", "ReviewerName",
    "ResponsiblePerson", "ResponsibleOrganization", "DischargeDiagnosisDescription", "InterpretationText",
)  # fmt: skip
"""Attributes of the profile that images have, by what they name: persons, places, devices, times, visits, free text."""


def planted(number: int, kind: str) -> str:
    """A text of its own for each tag, of the tag's form."""
    match kind:
        case "DA":
            return f"{1901 + number % 90}{1 + number % 12:02}{1 + number % 28:02}"
        case "DT":
            return f"{1901 + number % 90}{1 + number % 12:02}{1 + number % 28:02}101112"
        case "TM":
            return f"{number % 24:02}{number % 60:02}{number * 7 % 60:02}.{number:06}"
        case "UI":
            return f"1.2.826.{700_000 + number}"
        case "PN":
            return f"Zq{number}x^Xw{number}x"
        case "AS":
            return f"{number % 80:03}Y"
        case _:
            return f"Qt{number}x"


def scan(file: Path, first: int) -> dict[str, str]:
    """An image with a text in every text of the dictionary, and in a private one; gives the text of each keyword."""
    data: Any = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
    texts: dict[str, str] = {}
    for tag, (kind, _, _, _, keyword) in DicomDictionary.items():
        if kind not in TEXTS or not keyword or keyword == "SOPClassUID" or not 0x0008 <= tag >> 16 < 0x5000:
            continue
        texts[keyword] = planted(first + len(texts), kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data.add_new(tag, kind, texts[keyword])
    data.private_block(0x0099, "SOMEBODY", create=True).add_new(1, "LO", f"Qprivate{first}x")
    data.save_as(file)
    return texts | {"a private tag": f"Qprivate{first}x"}


@pytest.fixture(scope="module")
def dicom_previews(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, str]], dict[str, str]]:
    """The texts of some scans, and by way what is shown of them."""
    top = tmp_path_factory.mktemp("profile")
    data, work = top / "data", top / "work"
    data.mkdir()
    work.mkdir()
    texts = [scan(data / f"s{at}.dcm", 10_000 * (at + 1)) for at in range(4)]
    previews = {}
    with Toolbox(Roots(work, {"data/x": data}), sandbox=choose_sandbox(), logs=top / "logs") as box:
        for way, tool, arguments in (
            ("a file", "preview_files", {"paths": ["data/x/s0.dcm"]}),
            ("a series", "preview_files", {"paths": ["data/x"]}),
            ("a folder", "preview_dirs", {"path": "data/x"}),
            ("a listing", "list_files", {"path": "data/x"}),
            ("reading", "read_files", {"paths": ["data/x/s0.dcm"]}),
        ):
            previews[way] = box.call(ToolCall("1", tool, arguments), tuple(TOOLS)).text
    read = survey(data)
    return texts, previews | {"the survey": render(read), "ten lines": "\n".join(summarize(read))}


@pytest.mark.parametrize("way", ["a file", "a series", "a folder", "a listing", "reading", "the survey", "ten lines"])
def test_of_all_texts_in_a_header_a_short_list_is_shown(
    dicom_previews: tuple[list[dict[str, str]], dict[str, str]], way: str
) -> None:
    texts, previews = dicom_previews
    assert previews[way].strip()
    assert set(PROFILE) <= set(texts[0]), "keywords that the dictionary knows"
    leaked = {
        key
        for scan_texts in texts
        for key, text in scan_texts.items()
        if key not in SHOWN_KEYWORDS and text in previews[way]
    }
    assert not leaked, previews[way][:3000]


def test_the_list_is_shown_and_tags_that_identify_are_named(
    dicom_previews: tuple[list[dict[str, str]], dict[str, str]],
) -> None:
    texts, previews = dicom_previews
    for keyword in SHOWN_KEYWORDS - {"SOPClassUID"}:
        assert texts[0][keyword] in previews["a file"], keyword
    assert "InstitutionName" in previews["a file"].split("masked:")[1]


@pytest.mark.parametrize(
    ("age", "expected"), [("089Y", "089Y"), ("090Y", "over 89 years"), ("103Y", "over 89 years"), ("012M", "012M")]
)
def test_a_very_high_age_is_rare_enough_to_identify(tmp_path: Path, age: str, expected: str) -> None:
    from m3b.tools.previews.dicom import preview

    data = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
    data.PatientAge = age
    data.save_as(tmp_path / "a.dcm")
    assert f"PatientAge={expected}" in "\n".join(preview(tmp_path / "a.dcm", "mask"))
    assert f"PatientAge={age}" in "\n".join(preview(tmp_path / "a.dcm", "allow"))
