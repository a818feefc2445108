"""Layouts of the kits, written as manifests, give the index that is wanted."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from manifest_kit import execute_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "layout_kits"))

import layout_kit
from all_layouts import LAYOUTS


def each_its_own(*names: str) -> dict[str, list[str]]:
    return {name: [name] for name in names}


def table(files: str, key: str, image: str = "{path}", match: str = "basename", **options: object) -> dict[str, object]:
    return {"files": files, "key": key, "image": image, "match": match, **options}


PARTS = {"value": "{part}", "train": ["train"], "val": ["val", "valid"], "test": ["test"]}
BRATS = {
    "files": "{case}/{case}_flair.nii.gz",
    "name": "flair",
    "channels": [
        {"name": name, "files": f"{{case}}/{{case}}_{name}.nii.gz", "key": "{case}", "image": "{case}"}
        for name in ("t1ce", "t1", "t2")
    ],
}
MANIFESTS: dict[str, dict[str, Any]] = {
    "class_folders": {
        "task": "diagnosis", "images": {"files": "{finding}/*.png"},
        "labels": {"value": "{finding}", "classes": each_its_own("Normal", "COVID", "Viral Pneumonia")},
    },
    "restarting": {
        "task": "diagnosis", "images": {"files": "{finding}/{n:number}.png"},
        "labels": {"value": "{parent}", "classes": each_its_own("notumor", "glioma", "meningioma", "pituitary")},
    },
    "own_split": {
        "task": "diagnosis", "images": {"files": "{part}/{finding}/*.png"},
        "labels": {"value": "{finding}", "classes": each_its_own("NORMAL", "PNEUMONIA")}, "split": PARTS,
    },
    "labelled_table": {
        "task": "diagnosis", "images": {"files": "images/*.png"}, "tables": {"cases": table("cases.csv", "{image}")},
        "labels": {"value": "{cases.label}", "classes": each_its_own("benign", "malignant")}, "patient": "{cases.patient}",
    },
    "numbered_labels": {
        "task": "diagnosis", "images": {"files": "images/*.png"},
        "tables": {"grades": table("grades.csv", "{image}", match="stem")},
        "labels": {"value": "{grades.label}", "classes": {"none": ["0"], "mild": ["1"], "severe": ["2"]}},
        "patient": "{grades.patient}",
    },
    "patient_table": {
        "task": "diagnosis", "images": {"files": "images/{patient}/*.png"},
        "tables": {"labels": table("labels.csv", "{patient}", "{patient}", "exact")},
        "labels": {"value": "{labels.label}", "classes": each_its_own("healthy", "ill")}, "patient": "{labels.patient}",
        "attributes": {"age": "{labels.age}"},
    },
    "one_hot": {
        "task": "diagnosis", "images": {"files": "images/*.png"}, "tables": {"t": table("t.csv", "{image}")},
        "labels": {"columns": {name: f"{{t.{name}}}" for name in ("Edema", "Mass", "Effusion")}, "multi_label": True},
        "patient": "{t.patient}",
    },
    "multi_label": {
        "task": "diagnosis", "images": {"files": "images/*.png"}, "tables": {"t": table("t.csv", "{image}")},
        "labels": {"value": "{t.label}", "separator": "|", "classes": each_its_own("Edema", "Mass"),
                   "multi_label": True},
        "patient": "{t.patient}",
    },
    "slices": {
        "task": "diagnosis", "images": {"files": "{finding}/{scan}/{n:number}.png", "unit": "folder"},
        "labels": {"value": "{finding}", "classes": each_its_own("healthy", "covid")}, "together": ["{scan}"],
    },
    "masks_apart": {
        "task": "segmentation", "images": {"files": "images/{case}.png"},
        "masks": {"files": "masks/{case}.png", "key": "{case}", "image": "{case}", "classes": {"polyps": [255]}},
    },
    "masks_in_classes": {
        "task": "diagnosis", "images": {"files": "{finding}/* ({n:number}).png"},
        "labels": {"value": "{finding}", "classes": each_its_own("benign", "normal", "malignant")},
        "exclude": [{"files": "**/*_mask.png", "reason": "masks"}],
    },
    "masks_in_classes_segmented": {
        "task": "segmentation", "images": {"files": "{finding}/{case}.png", "exclude": ["**/*_mask.png"]},
        "masks": {"files": "{finding}/{case}_mask.png", "key": "{case}", "classes": {"lesions": [255]}},
    },
    "hidden_test": {
        "task": "segmentation", "images": {"files": "images{part}/{case}.nii.gz"},
        "masks": {"files": "labelsTr/{case}.nii.gz", "key": "Tr {case}", "image": "{part} {case}",
                  "classes": {"liver": [1], "tumour": [2]}},
    },
    "report_table": {
        "task": "report", "images": {"files": "images/*.png"}, "tables": {"reports": table("reports.csv", "{image}")},
        "report": {"findings": "{reports.findings}", "impression": "{reports.impression}"},
    },
    "report_parts": {
        "task": "report", "images": {"files": "images/*.png"},
        "tables": {"reports": table("reports_{part}.json", "{image_path}")},
        "report": {"findings": "{reports.finding}", "impression": "{reports.impression}"},
        "split": {**PARTS, "value": "{reports.part}"},
    },
    "numbered_parts": {
        "task": "grading", "images": {"files": "1. Original Images/*. {part}ing Set/*.jpg"},
        "tables": {"grades": table("2. Groundtruths/*_{part}ing Labels.csv", "{part} {Image name}", "{part} {stem}", "exact")},
        "labels": {"value": "{grades.Retinopathy grade}", "classes": each_its_own(*"01234"), "ordered": True},
        "split": {"value": "{part}", "train": ["train"], "test": ["test"]},
    },
    "hidden_part": {
        "task": "diagnosis", "images": {"files": "*/*.jpg"},
        "tables": {"train": table("train.csv", "{image_name}", match="stem")},
        "labels": {"value": "{train.benign_malignant}", "classes": each_its_own("benign", "malignant")},
        "patient": "{train.patient_id}",
    },
    "partitions": {
        "task": "diagnosis", "images": {"files": "images/*.jpg"},
        "tables": {"grades": table("partition/Test/{part}.csv", "{image_name}")},
        "labels": {"columns": {name: f"{{grades.{name}}}" for name in ("NC", "G3", "G4")}, "multi_label": True},
        "split": {**PARTS, "value": "{grades.part}"},
    },
    "split_of_folders": {
        "task": "segmentation", "images": {"files": "{case}/ct.nii.gz"},
        "tables": {"meta": table("meta.csv", "{image_id}", "{case}", "exact")},
        "masks": {"files": "{case}/segmentations/{organ}.nii.gz", "key": "{case}", "classes": {"liver": [1], "spleen": [1]},
                  "per_file": each_its_own("liver", "spleen"), "class_key": "{organ}", "overlapping": True},
        "attributes": {"age": "{meta.age}"}, "split": {**PARTS, "value": "{meta.split}"},
    },
    "told_flag": {
        "task": "diagnosis", "images": {"files": "CXR_png/CHNCXR_{n:number}_{flag:number}.png"},
        "labels": {"value": "{flag}", "classes": {"normal": ["0"], "tuberculosis": ["1"]}},
    },
    "crossed_words": {
        "task": "segmentation",
        "images": {"files": "imagesTr/{case}__CT.nii.gz", "name": "ct",
                   "channels": [{"name": "pt", "files": "imagesTr/{case}__PT.nii.gz", "key": "{case}", "image": "{case}"}]},
        "masks": {"files": "labelsTr/{case}.nii.gz", "key": "{case}", "classes": {"primary tumour": [1], "lymph nodes": [2]}},
    },
    "age_beside_weight": {
        "task": "regression", "images": {"files": "T1/IXI{id:number}-{n:number}-T1.nii.gz"},
        "tables": {"people": table("IXI.csv", "{IXI_ID}", "{id}", "number")},
        "value": {"value": "{people.AGE}", "title": "AGE", "unit": "years"},
    },
    "lists_of_classes": {
        "task": "diagnosis", "images": {"files": "Images-processed/{finding}/*.png"},
        "tables": {"lists": table("Data-split/*/{part}CT_{kind}.txt", "CT_{kind}/{line}", "{finding}/{name}", "exact", form="lines")},
        "labels": {"value": "{finding}", "classes": {"NonCOVID": ["CT_NonCOVID"], "COVID": ["CT_COVID"]}},
        "split": {**PARTS, "value": "{lists.part}"},
    },
    "thumbnails": {
        "task": "diagnosis", "images": {"files": "*/*.png"}, "tables": {"t": table("train.csv", "{image_id}", match="stem")},
        "labels": {"value": "{t.label}", "classes": each_its_own("EC", "HGSC", "LGSC")},
    },
    "packed_in_parts": {
        "task": "diagnosis", "images": {"files": "*/ISIC_*.jpg"},
        "tables": {"meta": table("HAM10000_metadata.csv", "{image_id}", match="stem")},
        "labels": {"value": "{meta.dx}", "classes": each_its_own("bcc", "mel", "nv")}, "together": ["{meta.lesion_id}"],
    },
    "more_in_masks": {
        "task": "segmentation", "images": {"files": "Seg_20cases/{case}.nii.gz"},
        "masks": {"files": "Infection_Mask/{case}.nii.gz", "key": "{case}", "classes": {"COVID-19 infection": [1]}},
    },
    "values_in_mat7": {
        "task": "diagnosis", "images": {"files": "*.mat", "member": "cjdata/images"}, "patient": "{member.cjdata/patient}",
        "labels": {"value": "{member.cjdata/label}", "classes": {"meningioma": ["1"], "glioma": ["2"], "pituitary tumor": ["3"]}},
    },
    "values_in_npz": {
        "task": "diagnosis", "images": {"files": "*.npz", "member": "images"}, "patient": "{member.patient}",
        "labels": {"value": "{member.label}", "classes": {"meningioma": ["1"], "glioma": ["2"], "pituitary tumor": ["3"]}},
    },
    "masks_in_mat7": {
        "task": "segmentation", "images": {"files": "*.mat", "member": "cjdata/images"}, "patient": "{member.cjdata/patient}",
        "masks": {"files": "*.mat", "member": "cjdata/masks", "key": "{path}", "classes": {"brain tumors": [1]}},
    },
    "patch_parts": {
        "task": "diagnosis", "images": {"files": "camelyonpatch_level_2_split_{part}_x.h5", "member": "x[#]"},
        "tables": {
            "labels": table("camelyonpatch_level_2_split_{part}_y.h5", "{part} {(row)}", "{part} {index}", "exact"),
            "slides": table("camelyonpatch_level_2_split_{part}_meta.csv", "{part} {(row)}", "{part} {index}", "exact"),
        },
        "labels": {"value": "{labels.y}", "classes": each_its_own("0", "1")}, "together": ["{slides.wsi}"], "split": PARTS,
    },
    "fold_arrays": {
        "task": "diagnosis", "images": {"files": "Fold {fold}/images/fold{fold}/images.npy", "member": "[#]"},
        "tables": {"types": table("Fold {fold}/images/fold{fold}/types.npy", "{fold} {(row)}", "{fold} {index}", "exact")},
        "labels": {"value": "{types.value}", "classes": each_its_own("Breast", "Colon", "Lung")},
    },
    "layered_masks": {
        "task": "segmentation", "images": {"files": "Fold {fold}/images/fold{fold}/images.npy", "member": "[#]"},
        "masks": {"files": "Fold {fold}/masks/fold{fold}/masks.npy", "member": "[#]", "key": "{fold} {index}",
                  "classes": {"neoplastic cells": [], "inflammatory cells": []},
                  "layers": {"neoplastic cells": [0], "inflammatory cells": [1]}},
    },
    "course_arrays": {
        "task": "diagnosis", "images": {"files": "X_{part}.npy", "member": "[#]"},
        "tables": {"y": table("y_{part}.npy", "{part} {(row)}", "{part} {index}", "exact")},
        "labels": {"value": "{y.value}", "classes": {"normal": ["0"], "covid": ["1"], "pneumonia": ["2"]}}, "split": PARTS,
    },
    "rows_of_items": {
        "task": "diagnosis", "images": {"files": "images.npy", "member": "[#]"},
        "tables": {"meta": table("metadata.csv", "{(row)}", "{index}", "exact")},
        "labels": {"value": "{meta.label}", "classes": each_its_own("benign", "malignant")}, "patient": "{meta.patient}",
    },
    "mask_parts": {
        "task": "segmentation", "images": {"files": "images_{part}.npy", "member": "[#]"},
        "masks": {"files": "masks_{part}.npy", "member": "[#]", "key": "{part} {index}", "classes": {"polyps": [255]}},
        "split": PARTS,
    },
    "balls_in_mm": {
        "task": "detection", "images": {"files": "*/*.mhd"}, "tables": {"a": table("annotations.csv", "{seriesuid}", match="stem")},
        "boxes": {"format": "table", "table": "a", "classes": {"lung nodules": ["*"]}, "space": "lps", "empty": "leave_out",
                  "columns": {"x": "coordX", "y": "coordY", "z": "coordZ", "diameter": "diameter_mm"}},
    },
    "boxes_of_volumes": {
        "task": "detection", "images": {"files": "images/*.nii.gz"}, "tables": {"b": table("boxes.csv", "{case_id}", match="stem")},
        "boxes": {"format": "table", "table": "b", "classes": {"aneurysms": ["*"]}, "empty": "leave_out",
                  "columns": {f"{axis}{end}": f"{axis}_{end}" for axis in "xyz" for end in ("min", "max")}},
    },
    "one_column": {
        "task": "detection", "images": {"files": "images/{patient:number}_01_01_*.png"},
        "tables": {"b": table("DL_info.csv", "{File_name}")}, "together": ["{patient}"],
        "boxes": {"format": "table", "table": "b", "classes": {"lesions": ["*"]}, "empty": "leave_out",
                  "columns": {"corners": "Bounding_boxes"}},
    },
    "sides_in_brackets": {
        "task": "detection", "images": {"files": "train/*.png"}, "tables": {"b": table("train.csv", "{image_id}", match="stem")},
        "boxes": {"format": "table", "table": "b", "classes": {"cells": ["*"]}, "empty": "leave_out", "columns": {"sides": "bbox"}},
    },
    "fractions": {
        "task": "detection", "images": {"files": "images/*.png"}, "tables": {"b": table("boxes.csv", "{ImageID}", match="stem")},
        "boxes": {"format": "table", "table": "b", "classes": each_its_own("Mass", "Nodule"), "space": "shares", "empty": "leave_out",
                  "columns": {"class": "LabelName", "xmin": "XMin", "xmax": "XMax", "ymin": "YMin", "ymax": "YMax"}},
    },
    "bids": {
        "task": "diagnosis", "images": {"files": "{sub}/anat/*_T1w.nii.gz"},
        "tables": {"people": table("participants.tsv", "{participant_id}", "{sub}", "exact")},
        "labels": {"value": "{people.group}", "classes": each_its_own("control", "patient")}, "patient": "{sub}",
        "attributes": {"age": "{people.age}", "sex": "{people.sex}"},
    },
    "sequences": {
        "task": "segmentation", "images": BRATS,
        "masks": {"files": "{case}/{case}_seg.nii.gz", "key": "{case}", "classes": {"label_1": [1], "label_2": [2], "label_4": [4]}},
    },
    "musculoskeletal": {
        "task": "diagnosis", "images": {"files": "{part}/XR_WRIST/{patient}/study1_{state}/image*.png"}, "patient": "{patient}",
        "labels": {"value": "{state}", "classes": each_its_own("negative", "positive")},
        "split": {"value": "{part}", "train": ["train"], "test": ["valid"]},
    },
    "series_table": {
        "task": "diagnosis", "images": {"files": "dicom/*/*.dcm", "unit": "folder"}, "patient": "{tag.PatientID}",
        "tables": {"series": table("series.csv", "{SeriesInstanceUID}", "{tag.SeriesInstanceUID}", "exact")},
        "labels": {"value": "{series.Diagnosis}", "classes": each_its_own("normal", "stroke")},
    },
    "windows_paths": {
        "task": "diagnosis", "images": {"files": "images/*.png"}, "tables": {"t": table("list.csv", "{image}", match="path_tail")},
        "labels": {"value": "{t.label}", "classes": each_its_own("cyst", "stone")}, "patient": "{t.patient}",
    },
    "unpadded": {
        "task": "diagnosis", "images": {"files": "images/*.png"}, "tables": {"t": table("list.csv", "{image}", match="normalized")},
        "labels": {"value": "{t.label}", "classes": each_its_own("cyst", "stone")}, "attributes": {"age": "{t.age}"},
    },
    "records": {
        "task": "diagnosis", "images": {"files": "images/*.png"}, "tables": {"t": table("t.json", "{image}")},
        "labels": {"value": "{t.label}", "classes": each_its_own("ill", "well")}, "patient": "{t.patient}",
    },
    "masks_by_table": {
        "task": "segmentation", "images": {"files": "images/*.png"},
        "tables": {"pairs": table("pairs.json", "{image}", match="path_tail")},
        "masks": {"files": "masks/*.png", "key": "{path}", "image": "{pairs.mask}", "match": "path_tail",
                  "classes": {"polyps": [255]}},
    },
    "dicom_table": {
        "task": "diagnosis", "images": {"files": "images/*/*.dcm"}, "patient": "{tag.PatientID}",
        "tables": {"t": table("labels.csv", "{patient}", "{parent}", "exact")},
        "labels": {"value": "{t.label}", "classes": each_its_own("healthy", "ill")}, "attributes": {"age": "{t.age}"},
    },
    "per_class": {
        "task": "segmentation", "images": {"files": "images/{case}.png"},
        "masks": {"files": "masks/c_{n:number}_{kind}.png", "key": "c_{n}", "image": "{case}", "classes": {"cup": [1], "disc": [1]},
                  "per_file": each_its_own("cup", "disc"), "class_key": "{kind}", "overlapping": True},
    },
    "split_tables": {
        "task": "diagnosis", "images": {"files": "images/*.png"}, "tables": {"t": table("{part}.csv", "{image}")},
        "labels": {"value": "{t.label}", "classes": each_its_own("none", "mass")}, "split": {**PARTS, "value": "{t.part}"},
    },
    "lesion_folders": {
        "task": "segmentation", "images": {"files": "1. Original Images/{part}/{case}.jpg"},
        "masks": {"files": "2. Groundtruths/{part}/{kind}/{case}_{short:word}.tif", "key": "{part}/{case}", "image": "{part}/{case}",
                  "classes": {"haemorrhages": [1], "hard exudates": [1]}, "class_key": "{kind}", "overlapping": True,
                  "per_file": {"haemorrhages": ["2. Haemorrhages"], "hard exudates": ["3. Hard Exudates"]}},
        "split": {"value": "{part}", "train": ["a. Training Set"], "test": ["b. Testing Set"]},
    },
    "two_phases": {
        "task": "segmentation", "images": {"files": "{patient}/{case}.mhd", "exclude": ["**/*_gt.mhd"]}, "patient": "{patient}",
        "masks": {"files": "{patient}/{case}_gt.mhd", "key": "{case}",
                  "classes": {"left ventricle": [1], "myocardium": [2], "left atrium": [3]}},
    },
    "coco_parts": {
        "task": "detection", "images": {"files": "{part}/*.png"}, "split": PARTS,
        "boxes": {"format": "coco", "files": "*.json", "classes": each_its_own("mass", "nodule"), "empty": "leave_out"},
    },
    "coco_three": {
        "task": "detection", "images": {"files": "{part}2017/*.png"}, "split": PARTS,
        "boxes": {"format": "coco", "files": "annotations/*.json", "classes": each_its_own("mass", "nodule"), "empty": "leave_out"},
    },
    "yolo": {
        "task": "detection", "images": {"files": "images/*.png"},
        "boxes": {"format": "yolo", "files": "labels/*.txt", "classes": {"crack": ["0"], "metal": ["1"]}},
    },
    "yolo_yaml": {
        "task": "detection", "images": {"files": "{part}/images/*.png"}, "split": PARTS,
        "boxes": {"format": "yolo", "files": "*/labels/*.txt", "classes": each_its_own("crack", "metal")},
    },
    "yolo_parts": {
        "task": "detection", "images": {"files": "{part}/images/*.png"}, "split": PARTS,
        "boxes": {"format": "yolo", "files": "*/labels/*.txt", "classes": each_its_own("Platelets", "RBC", "WBC")},
    },
    "yolo_outlines": {
        "task": "detection", "images": {"files": "images/{part}/*.png"},
        "split": {"value": "{part}", "train": ["train"], "test": ["val"]},
        "boxes": {"format": "yolo", "files": "labels/*/*.txt", "classes": each_its_own("polyp", "tool")},
    },
    "region_lists": {
        "task": "detection", "images": {"files": "images/*.png"},
        "boxes": {"format": "via", "files": "*.json", "classes": each_its_own("apoptosis", "mitosis"), "empty": "leave_out"},
    },
    "region_rows": {
        "task": "detection", "images": {"files": "images/*.png"},
        "boxes": {"format": "via", "files": "*.csv", "classes": each_its_own("apoptosis", "mitosis"), "empty": "leave_out"},
    },
    "one_document": {
        "task": "detection", "images": {"files": "images/*.png"},
        "boxes": {"format": "cvat", "files": "*.xml", "classes": each_its_own("Cyst", "Stone"), "empty": "leave_out"},
    },
    "relative_runs": {
        "task": "segmentation", "images": {"files": "images/*.png"},
        "tables": {"t": table("train-rle.csv", "{ImageId}", match="stem")},
        "masks": {"format": "table", "table": "t", "columns": {"runs": "EncodedPixels"}, "classes": {"pneumothorax": ["*"]},
                  "first": 0, "relative": True},
    },
    "instance_runs": {
        "task": "segmentation", "images": {"files": "images/*.png"}, "tables": {"t": table("labels.csv", "{ImageId}", match="stem")},
        "masks": {"format": "table", "table": "t", "columns": {"runs": "EncodedPixels"}, "classes": {"nuclei": ["*"]}},
    },
    "organ_runs": {
        "task": "segmentation", "images": {"files": "images/*.png"}, "tables": {"t": table("train.csv", "{id}", match="stem")},
        "masks": {"format": "table", "table": "t", "columns": {"runs": "segmentation", "class": "class"}, "order": "rows",
                  "classes": each_its_own("small_bowel", "stomach"), "overlapping": True},
    },
    "slide_outlines": {
        "task": "segmentation", "images": {"files": "Tissue Images/*.tif"},
        "masks": {"format": "aperio", "files": "Annotations/*.xml", "classes": {"nuclei": ["*"]}},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_index_is_as_wanted_and_every_file_is_accounted_for(name: str, tmp_path: Path) -> None:
    root, work = tmp_path / "raw", tmp_path / "work"
    (work / "data").mkdir(parents=True)
    root.mkdir()
    want = LAYOUTS[name].make(root, layout_kit.Names(), random.Random(0))
    executed = execute_folder(root, work, **MANIFESTS[name])
    assert layout_kit.differs(executed, want) == ""
    uses = executed.resolved.uses
    assert uses["use"].is_not_null().sum() + sum(item.count for item in executed.exclusions) == len(uses)
