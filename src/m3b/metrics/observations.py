"""Words that state the usual observations on chest images, for the label F1 of reports.

The observations are those of CheXpert (Irvin et al., AAAI 2019) but for "no finding", with the commonest of NIH's
ChestX-ray14 (Wang et al., CVPR 2017) beside them. The phrases are m3b's own list of what reports call them; a word that
ends in * matches longer ones. They are matched as `findings.stated` does, in English.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .findings import Findings, extract_findings

OBSERVATIONS: Findings = {
    "enlarged cardiomediastinum": (
        "enlarged cardiomediastinum", "widened mediastinum", "mediastinal widening", "wide mediastinum",
        "enlargement of the cardiomediastinal", "enlarged cardiomediastinal", "prominent mediastinum", "widening of the mediastinum",
    ),
    "cardiomegaly": (
        "cardiomegaly", "enlarged heart", "heart is enlarged", "heart size is enlarged", "cardiac enlargement",
        "enlarged cardiac silhouette", "cardiac silhouette is enlarged", "enlargement of the cardiac silhouette",
        "enlargement of the heart", "heart is mildly enlarged", "heart is moderately enlarged", "heart size is increased",
        "increased heart size",
    ),
    "lung lesion": (
        "lung lesion*", "pulmonary lesion*", "nodule*", "mass", "masses", "nodular densit*", "nodular opacit*", "tumor*",
        "tumour*", "neoplasm*", "metasta*",
    ),
    "lung opacity": (
        "opacit*", "opacification*", "infiltrate*", "airspace disease", "air space disease", "airspace process",
        "interstitial marking*", "reticular*", "haziness", "hazy densit*", "patchy densit*",
    ),
    "edema": (
        "edema", "oedema", "vascular congestion", "pulmonary congestion", "heart failure", "chf", "cephalization",
        "fluid overload", "interstitial fluid",
    ),
    "consolidation": ("consolidat*",),
    "pneumonia": ("pneumonia*", "bronchopneumonia*", "infectious process", "infectious infiltrate*"),
    "atelectasis": (
        "atelecta*", "volume loss", "loss of volume", "collapsed lobe", "lobar collapse", "collapse of the", "subsegmental collapse",
    ),
    "pneumothorax": ("pneumothora*", "hydropneumothora*"),
    "pleural effusion": (
        "effusion*", "pleural fluid", "hydrothorax", "hemothorax", "haemothorax", "blunting of the costophrenic",
        "costophrenic angle blunting", "blunted costophrenic",
    ),
    "pleural other": ("pleural thickening", "thickening of the pleura", "pleural scar*", "pleural plaque*", "fibrothorax"),
    "fracture": ("fracture*", "fractured", "broken rib*"),
    "support devices": (
        "catheter*", "tube", "tubes", "pacemaker*", "pacer*", "picc", "port a cath", "portacath", "central line*", "sternotomy wire*",
        "sternal wire*", "surgical clip*", "endotracheal", "nasogastric", "defibrillator*", "icd", "stent*", "valve replacement",
        "prosthetic valve*", "hardware", "chest drain*",
    ),
    "emphysema": ("emphysem*", "hyperinflat*", "hyperexpan*", "copd", "bulla", "bullae", "bullous", "flattened diaphragm*"),
    "fibrosis": ("fibrosis", "fibrotic", "scarring", "honeycombing", "interstitial lung disease"),
    "hernia": ("hiatal hernia*", "hiatus hernia*", "diaphragmatic hernia*", "hernia"),
    "granuloma": ("granuloma*", "calcified nodule*", "granulomatous"),
    "scoliosis": ("scolio*", "curvature of the spine", "dextroscoliosis", "levoscoliosis"),
    "degenerative change": ("degenerative", "spondylo*", "osteophyt*", "arthritic", "osteoarthrit*"),
}  # fmt: skip

_SYNONYMS = {
    "effusion": "pleural effusion", "pleural thickening": "pleural other", "enlarged heart": "cardiomegaly",
    "nodule": "lung lesion", "mass": "lung lesion", "infiltration": "lung opacity", "opacity": "lung opacity",
    "airspace opacity": "lung opacity", "oedema": "edema", "pulmonary edema": "edema", "pneumonitis": "pneumonia",
    "fractures": "fracture", "medical device": "support devices", "hyperinflation": "emphysema",
    "hiatal hernia": "hernia", "calcified granuloma": "granuloma",
}  # fmt: skip
"""Other names of data sets -> the observation."""

_NARROWER_NAMES = {"nodule", "mass", "infiltration", "opacity"}
"""Of these names the observation is wider, so that only words that begin as they do count."""

MIN_REPORT_SHARE, MIN_REPORTS = 0.02, 3


def _normalise_finding(name: str) -> str:
    return " ".join(re.findall(r"\w+", name.replace("_", " ").casefold()))


def finding_synonyms(name: str) -> tuple[str, ...]:
    """What else states a finding of this name; empty for names that are no usual observation.

    Args:
        name: as a data set spells it, such as `Pleural_Effusion`.
    """
    normalised = _normalise_finding(name)
    observation = normalised if normalised in OBSERVATIONS else _SYNONYMS.get(normalised)
    if observation is None:
        return ()
    phrases = OBSERVATIONS[observation]
    if normalised in _NARROWER_NAMES:
        return tuple(phrase for phrase in phrases if any(word.startswith(normalised[:4]) for word in phrase.split()))
    return tuple(phrases)


def frequent_observations(texts: Sequence[str]) -> Findings:
    """The observations that enough of these reports state, for data sets that name no findings.

    Args:
        texts: true reports.

    Returns:
        Those that 2 % of the reports, and three at least, state and do not deny.
    """
    stated_per_report = [extract_findings(text, OBSERVATIONS) for text in texts]
    min_count = max(MIN_REPORTS, MIN_REPORT_SHARE * len(texts))
    return {
        name: phrases
        for name, phrases in OBSERVATIONS.items()
        if sum(name in stated_names for stated_names in stated_per_report) >= min_count
    }
