"""Files that hold one record each (`Info.cfg` of a patient's folder, the XML document of a study) are a table with a row a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture

from m3b.dataset.manifest.execute import execute
from m3b.dataset.survey.survey import survey
from m3b.dataset.survey.walk import walk

N_PATIENTS = 16
REQUEST = "Classify lesions as benign or malignant"
GROUPS = ("benign", "malignant")


def write_patients(folder: Path, name: str, text: str) -> None:
    for patient in range(N_PATIENTS):
        place = folder / f"patient{patient:02d}"
        write_picture(place / f"patient{patient:02d}.png", patient)
        content = text.format(group=GROUPS[patient % 3 % 2], height=150 + patient, patient=patient)
        (place / name).write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Info.cfg", "ED: 1\nGroup: {group}\nHeight: {height}.5\n"),
        ("info.ini", "[patient]\nheight = {height}\n[diagnosis]\ngroup = {group}\n"),
        ("info.yaml", "group: {group}\nheight: {height}\n"),
    ],
)
def test_settings_of_each_patient_are_one_table(tmp_path: Path, name: str, text: str) -> None:
    write_patients(tmp_path, name, text)
    facts = survey(tmp_path)
    assert [(table.rows, table.file_count) for table in facts.tables] == [(N_PATIENTS, N_PATIENTS)]
    outcome = decide_folder(tmp_path, REQUEST)
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", N_PATIENTS)
    assert outcome.proposals[0].classes == {"benign": 11, "malignant": 5}


def test_one_file_of_settings_is_no_table(tmp_path: Path) -> None:
    for patient in range(N_PATIENTS):
        write_picture(tmp_path / GROUPS[patient % 2] / f"{patient:02d}.png", patient)
    (tmp_path / "export.cfg").write_text("site: north\nscanner: B\nversion: 2\n", encoding="utf-8")
    assert survey(tmp_path).tables == ()
    outcome = decide_folder(tmp_path, REQUEST)
    assert (outcome.kind, outcome.proposals[0].classes) == ("proposed", {"benign": 8, "malignant": 8})


FINDINGS = ("The lungs are clear without effusion of study {}.", "There is an opacity in the lower lobe of study {}.")


def write_studies(folder: Path, *, has_id: bool = True, empty: tuple[int, ...] = ()) -> int:
    """Write an XML document a study with the sections of its report and the names of one or two images, and return how many
    images have findings."""
    n_images = 0
    for study in range(1, 21):
        names = [f"CXR{study}_IM-{7 * study:04d}-{view}001" for view in (3, 4)[: 1 + study % 2]]
        for view, name in enumerate(names):
            write_picture(folder / "png" / f"{name}.png", 10 * study + view)
        n_images += len(names) * (study not in empty)
        findings = "" if study in empty else FINDINGS[study % 3 % 2].format(study)
        text = "".join(
            f'<AbstractText Label="{label}">{section}</AbstractText>'
            for label, section in (("INDICATION", "Chest pain"), ("FINDINGS", findings))
        )
        images = "".join(
            f'<parentImage id="{name}"><caption>PA</caption><url>/a/{name}.jpg</url></parentImage>' for name in names
        )
        id = f'<uId id="CXR{study}"/>' if has_id else ""
        path = folder / "reports" / f"{study if has_id else 900 - 7 * study}.xml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"<eCitation>{id}<Abstract>{text}</Abstract>{images}</eCitation>", encoding="utf-8")
    return n_images


@pytest.mark.parametrize("has_id", [True, False])
@pytest.mark.parametrize("empty", [(), (1,)])
def test_a_document_a_study_with_named_sections_is_a_row(tmp_path: Path, empty: tuple[int, ...], has_id: bool) -> None:
    n_images = write_studies(tmp_path, has_id=has_id, empty=empty)
    outcome = decide_folder(tmp_path, "Write the findings of the report of chest X-rays")
    assert outcome.kind == "proposed", outcome.question or outcome.refusal
    index = execute(outcome.proposals[0].manifest, walk(tmp_path), name="cxr", work=tmp_path / "work")
    n_read = 0
    for case in (*index.train, *index.test):
        paths = [case.image] if isinstance(case.image, str) else list(case.image)
        n_read += len(paths)
        assert case.report is not None
        studies = {path.rpartition("/CXR")[2].partition("_")[0] for path in paths}
        assert {case.report.findings.rstrip(".").rpartition(" ")[2]} == studies
    assert n_read == n_images
