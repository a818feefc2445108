"""Requests beside what folders hold: what must not be accepted without a question, and what must not be doubted."""

from __future__ import annotations

import pytest

from m3b.dataset.words import FolderWords, contradictions, parse_request

STOPPED = [
    ("Segment the liver on CT", {"is_colour": True, "names": ("tissue images", "masks")}),
    ("Segment the liver on CT", {"is_colour": True, "names": ("images", "masks"), "notes": "H&E stained tissue at 40x"}),
    ("Segment the liver on MRI", {"classes": ("brain tumor",)}),
    ("Segment the spleen on CT", {"classes": ("kidney",)}),
    ("Detect tumours on PET/CT", {"is_colour": True}),
    ("Detect pneumonia on chest X-rays", {"header_modalities": ("MR",)}),
    ("Segment the lungs on X-rays", {"dimension": "3d"}),
    ("Classify moles on dermoscopy", {"dimension": "3d"}),
    ("Segment nodules on 3D CT", {"dimension": "2d"}),
    ("Find malaria parasites in blood smears", {"classes": ("RBC", "WBC", "Platelets"), "is_colour": True}),
    ("Find malaria parasites", {"classes": ("red blood cell",), "is_colour": True}),
    ("Segment surgical instruments", {"classes": ("polyp",)}),
    ("Segment surgical instruments", {"folders": ("colon_polyps",), "names": ("images", "masks")}),
    ("Segment surgical instruments on laparoscopy", {"names": ("images", "masks", "polyps")}),
    ("Segment surgical instruments", {"names": ("images", "masks"), "notes": "Polyps of the colon. Masks of polyps."}),
    ("Segmentiere chirurgische Instrumente", {"classes": ("Polyp",)}),
    ("Classify whether the image is an adversarial attack", {"classes": ("0", "1", "2", "3", "4")}),
    ("Classify whether the image is an adversarial attack", {"notes": "Kellgren-Lawrence grades of knee osteoarthritis"}),
    ("Tell me a joke", {"classes": ("normal", "pneumonia")}),
    ("Raconte une blague", {"classes": ("normal", "pneumonia")}),
    ("What will the weather be tomorrow?", {"classes": ("normal", "pneumonia")}),
    ("Predict the weather in Berlin", {"names": ("images", "age")}),
    ("Write a poem about the sea", {"names": ("images",), "notes": "reports of chest X-rays"}),
    ("Schreibe ein Gedicht über den Herbst", {"names": ("images",)}),
    ("Predict the stock price from chest X-rays", {"names": ("images", "age")}),
    ("Detect cats and dogs on photographs", {"classes": ("nevus", "melanoma"), "is_colour": True}),
    ("Classify cars by brand", {"classes": ("glioma", "meningioma")}),
    ("Tell which football team won", {"classes": ("benign", "malignant")}),
]  # fmt: skip
SERVED = [
    ("Grade knee osteoarthritis on knee X-rays", {"dimension": "2d", "classes": ("0", "1", "2")}),
    ("Grade diabetic retinopathy", {"classes": ("stage_0", "stage_1", "stage_2")}),
    ("Classify lung nodules", {"classes": ("class_0", "class_1")}),
    ("Classify lung nodules", {"classes": ("class0", "class1")}),
    ("Classify lung nodules", {"classes": ("Type1", "Type2")}),
    ("Segment the tumour on CT", {"classes": ("GTV_Mass_CT",), "header_modalities": ("CT",), "dimension": "3d"}),
    ("Segment the tumour on CT", {"classes": ("GTV1", "CTV", "PTV"), "header_modalities": ("CT", "MR"), "dimension": "3d"}),
    ("Tell COVID-19 and pneumonia apart on lung ultrasound clips", {"classes": ("covid", "pneumonia"), "dimension": "2d"}),
    ("Classify lung ultrasound videos", {"classes": ("covid", "pneumonia"), "dimension": "3d"}),
    ("Segment retinal vessels on fundus photographs", {"classes": ("1stHO", "2ndHO"), "is_colour": True}),
    ("Segment retinal vessels on fundus photographs", {"classes": ("observer1", "observer2"), "is_colour": True}),
    ("Segment the optic disc", {"classes": ("annotator_a", "annotator_b"), "is_colour": True}),
    ("Classify melanoma and nevus", {"classes": ("MEL", "NV")}),
    ("Classify skin lesions on dermoscopy", {"classes": ("nv", "mel", "bkl", "bcc", "df", "vasc"), "is_colour": True}),
    ("Tell pneumonia from normal on chest X-rays", {"classes": ("PNEU", "NORM")}),
    ("Unterscheide Lungenentzündung und Normalbefund", {"classes": ("LE", "NB")}),
    ("Unterscheide gutartig und bösartig auf Mammographien", {"classes": ("ga", "ba")}),
    ("Distinguer bénin et malin", {"classes": ("bn", "ml")}),
    ("Clasificar neumonía y normal", {"classes": ("neumo", "norm")}),
    ("Segment the left atrium on MRI", {"classes": ("LA",), "dimension": "3d"}),
    ("Segmenter le foie et la rate", {"classes": ("Leber", "Milz")}),
    ("Segment the kidneys", {"classes": ("renal_cortex", "renal_medulla")}),
    ("Segment lung tumours", {"classes": ("NSCLC",)}),
    ("Segment nuclei", {"classes": ("epithelial", "lymphocyte", "macrophage", "neutrophil")}),
    ("Segment nuclei in fluorescence microscopy", {"dimension": "3d"}),
    ("Segment neurons in electron microscopy", {"dimension": "3d"}),
    ("Detect polyps in colonoscopy", {"classes": ("adenoma", "hyperplastic"), "is_colour": True}),
    ("Classify brain tumors on MRI", {"classes": ("glioma", "meningioma", "pituitary", "notumor")}),
    ("Detect pneumonia on chest X-rays", {"classes": ("Lung Opacity", "Normal")}),
    ("Find out which findings are present on chest X-rays", {"classes": ("Atelectasis", "Cardiomegaly")}),
    ("Classify the images into classes", {"classes": ("benign", "malignant")}),
    ("Classify breast ultrasound", {"classes": ("benign", "malignant", "normal")}),
    ("Classify mammograms", {"dimension": "3d", "header_modalities": ("MG",)}),
    ("Classify breast tomosynthesis", {"dimension": "3d"}),
    ("Segment the annotated structures on abdominal CT", {"classes": ("liver", "spleen")}),
    ("Segmentiere die markierten Strukturen auf CT", {"classes": ("Leber", "Milz")}),
    ("Segmenter les structures annotées sur les images d'IRM", {"classes": ("rein",)}),
    ("Detect the annotated objects with boxes on blood smears", {"classes": ("RBC", "WBC"), "is_colour": True}),
    ("Tell whether contrast was given on CT slices", {"classes": ("True", "False"), "names": ("contrast",)}),
    ("Classify the sex of the patient on hand X-rays", {"classes": ("M", "F"), "names": ("sex",)}),
    ("Predict the tumour volume from X-rays", {"classes": ("volume_ml",), "dimension": "2d"}),
]  # fmt: skip


def find_stops(request_text: str, evidence: dict[str, object]) -> list[str]:
    claims = contradictions(parse_request(request_text), FolderWords(**evidence))  # type: ignore[arg-type]
    return [claim.kind for claim in claims if claim.verdict in ("contradicted", "unknown")]


@pytest.mark.parametrize(("request_text", "evidence"), STOPPED)
def test_a_request_for_something_else_is_stopped(request_text, evidence):
    assert find_stops(request_text, evidence)


@pytest.mark.parametrize(("request_text", "evidence"), SERVED)
def test_a_request_that_the_folder_can_serve_is_not(request_text, evidence):
    assert not find_stops(request_text, evidence)
