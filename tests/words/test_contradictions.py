"""What a folder's words, headers and pixels say of a request."""

from __future__ import annotations

import pytest

from m3b.dataset.words import FolderWords, contradictions, parse_request


def judge(request_text: str, **evidence: object) -> dict[str, str]:
    folder = FolderWords(**evidence)  # type: ignore[arg-type]
    return {claim.kind: claim.verdict for claim in contradictions(parse_request(request_text), folder)}


@pytest.mark.parametrize(
    ("request_text", "evidence", "kind", "verdict"),
    [
        # modality
        ("Segment the liver on CT", {"header_modalities": ("CT",)}, "modality", "supported"),
        ("Segment the liver on CT", {"header_modalities": ("MR",)}, "modality", "contradicted"),
        ("Segment lesions on FLAIR", {"header_modalities": ("MR",)}, "modality", "supported"),
        ("Detect pneumonia on chest X-rays", {"names": ("chest_xray",)}, "modality", "supported"),
        ("Detect pneumonia on chest X-rays", {"names": ("ultrasound",)}, "modality", "contradicted"),
        ("Detect pneumonia on chest X-rays", {"names": ("train", "images")}, "modality", "silent"),
        ("Detect pneumonia on chest X-rays", {"names": ("archive/fotos",)}, "modality", "silent"),
        ("Detect melanoma on dermoscopy", {"notes": "Clinical and dermatoscopic images of nevi."}, "modality", "supported"),
        ("Detect melanoma on dermoscopy", {"notes": "MRI scans. The MRI was made at 3 T."}, "modality", "contradicted"),
        ("Detect melanoma on dermoscopy", {"notes": "Cite the CT paper."}, "modality", "silent"),
        ("Detect lesions on colon ultrasound", {"notes": "échographie, sein : deux hôpitaux"}, "anatomy", "contradicted"),
        ("Detect lesions on colon ultrasound", {"notes": "Es kann Ultraschall sein."}, "anatomy", "silent"),
        ("Detect pneumothorax on chest X-rays", {"classes": ("normal", "effusion")}, "target", "contradicted"),
        ("Detect pneumonia on chest X-rays", {"classes": ("normal", "COVID-19")}, "target", "supported"),
        ("Write a report of a chest CT", {"notes": "# CT-RATE: scans with texts"}, "anatomy", "silent"),
        ("Detect pneumonia on chest X-rays", {"notes": "blood smear microscopy: images of two sites"}, "modality", "contradicted"),
        ("Segment bleedings on fundus photographs", {"notes": "HE haemorrhages, OD optic disc."}, "modality", "silent"),
        ("Predict survival from CT", {"notes": "time from radiotherapy to death"}, "modality", "silent"),
        ("Find signs on OCT of the teeth", {"classes": ("drusen", "edema")}, "anatomy", "contradicted"),
        ("Grade the severity on OCT of the eye", {"classes": ("drusen", "edema")}, "anatomy", "supported"),
        ("Grade the severity on skin microscopy", {"notes": "microscopía, sangre: imágenes de dos hospitales"}, "anatomy",
         "contradicted"),
        ("Predict the age from wrist X-rays", {"notes": "X-ray, chest: images of two hospitals"}, "anatomy", "contradicted"),
        # targets
        ("Segment the nuclei on microscopy slides", {"names": ("slides",)}, "target", "silent"),
        ("Segment the nuclei on microscopy images", {"names": ("plate_01",)}, "target", "silent"),
        ("Segment tumours on histology", {"folders": ("needle_biopsies",)}, "target", "silent"),
        ("Segment the nuclei on microscopy images", {"names": ("instruments",)}, "target", "contradicted"),
        ("Detect plates and screws on X-rays", {"names": ("plates",)}, "classes", "supported"),
        # colour and dimension
        ("Segment the liver on CT", {"is_colour": True}, "colour", "contradicted"),
        ("Detect melanoma on dermoscopy", {"is_colour": True}, "colour", ""),
        ("Classify nodules on 3D CT", {"dimension": "2d"}, "dimension", "contradicted"),
        ("Classify nodules on 3D CT", {"dimension": "3d"}, "dimension", "supported"),
        ("Classify nodules on CT", {"dimension": "2d"}, "dimension", ""),
        ("Detect fractures on X-rays", {"dimension": "3d"}, "dimension", "contradicted"),
        # anatomy
        ("Segment the liver on CT", {"names": ("abdomen_ct",)}, "anatomy", "supported"),
        ("Segment the liver on CT", {"names": ("brain_tumor",)}, "anatomy", "contradicted"),
        ("Segment the optic disc", {"folders": ("optic_nerve",)}, "anatomy", "supported"),
        ("Predict the age from brain MRI", {"notes": "Quality of T1w MRI was rated by eye."}, "anatomy", "silent"),
        (
            "Segment white matter lesions on MRI",
            {"notes": "Lesions were drawn by a radiologist. Brain masks from a program."}, "target", "silent",
        ),
        ("Segment white matter lesions on MRI", {"notes": "Brain masks from a program."}, "target", "contradicted"),
        ("Segment the liver on CT", {"names": ("imagesTr", "labelsTr")}, "anatomy", "silent"),
        ("Segment the left atrium on MRI", {"names": ("cardiac",)}, "anatomy", "supported"),
        ("Predict age from dental ultrasound", {"notes": "Ultraschall, Brust: Aufnahmen"}, "anatomy", "contradicted"),
        ("Tell cysts from tumours on breast ultrasound", {"notes": "Ultraschall, Brust"}, "anatomy", "supported"),
        ("Predict age from kidney microscopy", {"notes": "Mikroskopie, Blut: Aufnahmen"}, "anatomy", "contradicted"),
        # targets
        ("Graf-Typ der Säuglingshüfte bestimmen", {"notes": "Konsens Graf-Typ: 1 = Typ I"}, "target", "supported"),
        ("Graf-Typ der Säuglingshüfte bestimmen", {"notes": "Konsens: 1 = Typ I"}, "target", "unknown"),
        ("Predict the eight labels from photographs", {"notes": ""}, "target", ""),
        ("Find malaria parasites in blood smears", {"classes": ("rbc", "wbc")}, "target", "contradicted"),
        ("Segment surgical instruments", {"classes": ("polyp",)}, "target", "contradicted"),
        ("Find red blood cells", {"classes": ("rbc", "wbc")}, "target", "supported"),
        ("Segment polyps", {"classes": ("1", "2")}, "target", "silent"),
        ("Segment polyps", {"classes": ("mask",), "names": ("polyps",)}, "target", "supported"),
        ("Tell pneumonia from normal", {"classes": ("0", "1"), "legend": {"0": "normal", "1": "pneumonia"}}, "classes", "supported"),
        ("Tell adversarial attacks from clean images", {"classes": ("grade 0", "osteophytes")}, "classes", "unknown"),
        ("Classify melanoma, nevus and other", {"classes": ("mel", "nv", "bkl")}, "classes", "supported"),
        ("Segment polyps", {"names": ("images", "masks")}, "target", "silent"),
        ("Segment polyps", {"notes": "Masks of polyps, drawn by two readers."}, "target", "supported"),
        ("Segment surgical instruments", {"folders": ("polyps",)}, "target", "contradicted"),
        ("Segment infected regions in the lungs", {"notes": "Chest films with their lung masks."}, "target", "contradicted"),
        ("Segment infected regions in the lungs", {"notes": "Masks of the lungs. Infection masks."}, "target", "supported"),
        ("Segment the lungs", {"notes": "Chest films with their lung masks."}, "target", "supported"),
        ("Segment liver tumours", {"notes": "Liver tumour masks by two readers."}, "target", "silent"),
        ("Segment edema", {"folders": ("polyps",)}, "target", "silent"),
        ("Detect glaucoma", {"folders": ("skin_cancer",)}, "target", "contradicted"),
        ("Segment nuclei", {"folders": ("breast_cancer",)}, "target", "silent"),
        ("Segment brain tumour sub-regions", {"classes": ("necrosis", "edema", "enhancing")}, "target", "silent"),
        ("Classify skin lesions", {"classes": ("melanoma", "psoriasis")}, "target", "supported"),
        ("Segment the anterior and posterior hippocampus", {"classes": ("Anterior", "Posterior")}, "classes", "supported"),
        ("Classify cervical cells", {"classes": ("carcinoma_in_situ", "severe_dysplastic")}, "target", "silent"),
        ("Classify the tissue types", {"classes": ("stroma", "mucus")}, "target", "supported"),
        ("Segmentiere Nierensteine", {"classes": ("kidney stone",)}, "target", "supported"),
    ],
)  # fmt: skip
def test_verdicts(request_text, evidence, kind, verdict):
    assert judge(request_text, **evidence).get(kind, "") == verdict


def test_a_claim_says_where_its_evidence_stands():
    claims = contradictions(
        parse_request("Segment the liver on CT"), FolderWords(header_modalities=("MR",), names=("brain_scans",))
    )
    assert {claim.kind: claim.evidence for claim in claims} == {
        "modality": "header: magnetic resonance imaging",
        "anatomy": "names: brain_scans (brain)",
        "target": "",
    }
    assert [claim.asked for claim in claims] == ["computed tomography", "liver", "liver"]


def test_notes_that_are_about_something_else_are_quoted_in_one_line():
    notes = "# Set\nFirst release.\nEach picture  has gauze. The gauze is white; made in 2020."
    claims = contradictions(
        parse_request("Tell normal adrenal glands from adrenal mass on 3D CT shapes"), FolderWords(notes=notes)
    )
    assert {claim.kind: claim.evidence for claim in claims}["classes"] == "notes: Each picture has gauze"


def test_a_sentence_that_stands_twice_is_one_mention():
    request_text = "Tell normal adrenal glands from adrenal mass on 3D CT shapes"
    notes = "Values 0 and 255 compress well.\nValues 0 and 255 compress well."
    assert judge(request_text, notes=notes)["classes"] == "silent"
