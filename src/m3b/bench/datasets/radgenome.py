"""RadGenome-BrainMRI ("BrainGnome"): findings and impressions of brain MRI, with several sequences per case.

Planted signal: side, lobe and signal of a lesion in the image and in the report; the signal differs by sequence.
Planted faults: sequences of one case that must stay together, `finding` in the singular, sentences that refer to
another sequence, impressions that apply to the whole case, a listed volume without a file.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.bench.datasets.definitions import (
    CARD,
    GeneratedSet,
    GeneratorOptions,
    RawCase,
    RawDataset,
    StandIn,
    make_spec,
    save_json,
    save_nifti,
)
from m3b.bench.datasets.layout_reading import CaseCollector, require_entries, resolve_inside
from m3b.bench.datasets.report_text import bleu_1, compose_text, read_reports
from m3b.bench.datasets.shapes import Blob, Random, noise, texture

from .masks import strip_suffix

SENTENCES = {
    "frontal": (
        "An irregular mass occupies the {0} frontal lobe in front of the central sulcus.",
        "The {0} frontal lobe shows a lesion.",
    ),
    "parietal": (
        "Beside the {0} ventricular body, deep inside parietal white matter, a rounded focus is found.",
        "Parietal focus on the {0}.",
    ),
    "occipital": (
        "Abnormal tissue was identified at the {0} occipital pole, posterior to the splenium.",
        "Occipital abnormality, {0} hemisphere.",
    ),
    "high": (
        "It is strikingly hyperintense on {0} against surrounding parenchyma.",
        "Signal is high on {0}.",
    ),
    "low": (
        "Compared with normal brain, reduced signal intensity was noted using {0} sequence.",
        "Signal is low on {0}.",
    ),
    "again": ("Same location as the aforementioned lesion.", "See the aforementioned lesion."),
    "shift": (
        "Midline structures are displaced contralaterally because of considerable space-occupying effect.",
        "A midline shift is present.",
    ),
    "no shift": ("No midline shift.", "The midline is central."),
}
SUMMARY_SENTENCES = {"is": ("{0} {1} lobe lesion, considered {2}.",)}
LOBES = {"frontal": 15.0, "parietal": 0.0, "occipital": -15.0}
SHAPE = (80, 80, 52)
DISEASES: dict[str, tuple[str, tuple[tuple[str, str, float, float], ...]]] = {
    "BraTS-GLI": ("glioma", (("t1n", "T1WI", 0.45, -0.3), ("t1c", "T1C", 0.5, 0.45), ("t2w", "T2WI", 0.3, 0.5),
                             ("t2f", "T2FLAIR", 0.38, 0.5))),
    "BraTS-MEN": ("meningioma", (("t1n", "T1WI", 0.45, -0.3), ("t1c", "T1C", 0.5, 0.45), ("t2f", "T2FLAIR", 0.38, 0.5))),
    "BraTS-MET": ("metastasis", (("t1c", "T1C", 0.5, 0.45), ("t2f", "T2FLAIR", 0.38, 0.5))),
    "sub-strokecase": ("infarct", (("dwi", "DWI", 0.2, 0.6), ("adc", "ADC", 0.6, -0.4))),
    "Singapore": ("white matter hyperintensity", (("T1", "T1WI", 0.45, -0.3), ("FLAIR", "T2FLAIR", 0.38, 0.5))),
}  # fmt: skip
"""Prefix of the case -> disease, and its sequences: suffix, name in the text, brain level, contrast of the lesion."""
RADII = {"glioma": 12.0, "meningioma": 9.0, "metastasis": 6.0, "infarct": 8.0, "white matter hyperintensity": 4.5}
CASE_NAME = re.compile(r"^(.+?)[-_](t1n|t1c|t1ce|t2w|t2f|T1|T1WI|T2|FLAIR|dwi|adc|DWI|ADC)$")


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: cases of five sources with two to four sequences each; a quarter are the test split."""
    random = np.random.default_rng(options.seed)
    records_by_part: dict[str, list[dict[str, str]]] = {"train": [], "test": []}
    references, usual_texts = [], []
    test_count = max(2, options.patients // 4)
    for number in range(options.patients):
        part = "test" if number >= options.patients - test_count else "train"
        source = list(DISEASES)[number % 5]
        disease, sequences = DISEASES[source]
        side, lobe = str(random.choice(["left", "right"])), str(random.choice(list(LOBES)))
        has_shift = bool(disease in ("glioma", "meningioma") and random.random() < 0.5)
        summary = compose_text(SUMMARY_SENTENCES, [f"is:{side}:{lobe}:{disease}"]).capitalize()
        head_seed = int(random.integers(1 << 31))
        for index, (suffix, sequence_name, level, change) in enumerate(sequences):
            signal = f"{'high' if change > 0 else 'low'}:{sequence_name}"
            facts = [f"{lobe}:{side}", signal, *(["again"] if index else []), "shift" if has_shift else "no shift"]
            image = draw(
                np.random.default_rng(head_seed), random, side, LOBES[lobe], RADII[disease], level, change, has_shift
            )
            path = (
                f"images/{_make_case_name(source, number)}{'-' if source.startswith('BraTS') else '_'}{suffix}.nii.gz"
            )
            save_nifti(options.folder / path, image)
            text = compose_text(SENTENCES, facts, random)
            records_by_part[part].append({"image_path": path, "finding": text, "impression": summary})
            references.append(text)
            usual_texts.append(compose_text(SENTENCES, facts))
    records_by_part["train"].append(
        {"image_path": "images/BraTS-GLI-09999-000-t1n.nii.gz", "finding": "-", "impression": "-"}
    )
    for part, records in records_by_part.items():
        save_json(options.folder / f"reports_{part}.json", records)
    planted_faults = ("sequences of one case", "`finding` in the singular", "sentences that point to another sequence",
           "a listed volume without a file")  # fmt: skip
    return GeneratedSet(len(references), options.patients, bleu_1(references, usual_texts), planted_faults)


def _make_case_name(source: str, number: int) -> str:
    if source.startswith("BraTS"):
        return f"{source}-{number + 11:05d}-000"
    return f"{source}{number + 101:04d}_ses-0001" if source == "sub-strokecase" else f"{source}_{number + 50}"


def draw(
    head: Random,
    scan: Random,
    side: str,
    lobe_offset: float,
    radius: float,
    level: float,
    change: float,
    has_shift: bool,
) -> NDArray[np.float32]:
    """Return a skull-stripped brain `(80, 80, 52)`, float32, background 0; the patient's left is at small x."""
    image = np.zeros(SHAPE, dtype=np.float32)
    centre = np.array([39.5, 39.5, 25.5]) + head.uniform(-1, 1, 3)
    brain = Blob(SHAPE, centre, (31, 36, 22), random=head, rough=0.02)
    brain.fill(image, level)
    brain_mask = image > 0
    image += texture(head, SHAPE, 0.03)
    sign = -1 if side == "left" else 1
    middle = centre[0] - sign * (5 if has_shift else 0)
    for part in (-1, 1):
        Blob(SHAPE, (middle + part * 5, centre[1], centre[2] + 2), (3, 12, 5)).fill(image, 0.9 - level)
    position = centre + np.array([sign * 17, lobe_offset, 2]) + head.uniform(-1.5, 1.5, 3)
    size = radius * head.uniform(0.9, 1.1)
    Blob(SHAPE, position, (size, size, size * 0.8), random=head, rough=0.06).add(image, change, sharp=8)
    image = np.clip(image + noise(scan, SHAPE, 0.03), 0.01, None)
    return np.asarray(np.where(brain_mask, np.rint(image * 1000), 0), dtype=np.float32)


def patient_of(name: str) -> str:
    """Return the patient: the case without sequence and time point, `BraTS-GLI-00291` for `BraTS-GLI-00291-000-t1n`."""
    match = CASE_NAME.match(name)
    case = match[1] if match else name
    return re.sub(r"^(BraTS-[A-Z]+-\d+)-\d{3}$|^(sub-[^_]+)_ses-\d+$", lambda groups: groups[1] or groups[2], case)


def read(folder: Path) -> RawDataset:
    """Read one case per listed volume; all sequences of a case share a patient."""
    require_entries(folder, "images", "reports_train.json", "reports_test.json",
         description="RadGenome-BrainMRI (images, reports_train.json and reports_test.json)")  # fmt: skip
    collector = CaseCollector(folder, "RadGenome-BrainMRI", CARD)
    for part in ("train", "test"):
        file = folder / f"reports_{part}.json"
        for record in read_reports(file):
            path = resolve_inside(folder, record["image_path"], file)
            if not path.startswith("images/"):
                path = f"images/{path}"
            if not (folder / path).is_file():
                collector.exclude("listed volumes without a file", path, missing=True)
                continue
            name = strip_suffix(Path(path))
            text, summary = record["findings"], record["impression"]
            collector.cases.append(RawCase(name, (path,), patient_of(name), part, findings=text, impression=summary))
    return collector.finish()


SPEC = make_spec(
    "radgenome-brainmri",
    stand_in=StandIn(patients=120, acceptable=(0.64, None), baseline=0.58, ceiling=0.83, min_patients=10, minutes=2.75),
    generator=make,
    reader=read,
)
