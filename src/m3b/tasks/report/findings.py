"""Keyword rules for the findings that a report states: simple to verify, and equal for truth and prediction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from m3b.tasks.report.text_similarity import tokenize
from m3b.training.report.statements import list_stated_parts

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
"""Other names in data sets -> the observation."""

_NARROWER_NAMES = {"nodule", "mass", "infiltration", "opacity"}
"""Names that are narrower than their observation, so that only phrases with a word that starts like the name count."""

MIN_REPORT_SHARE, MIN_REPORTS = 0.02, 3


def _normalise_finding(name: str) -> str:
    return " ".join(re.findall(r"\w+", name.replace("_", " ").casefold()))


def finding_synonyms(name: str) -> tuple[str, ...]:
    """Return the phrases that state a finding of this name; empty if it is no usual observation.

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
    """Return the observations that enough of these reports state, for data sets that name no findings.

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


Findings = Mapping[str, Sequence[str]]
"""Finding -> the phrases that state it; a phrase that ends in * also matches longer words: "effusion*"."""


def _compile_phrases(phrases: Sequence[str]) -> re.Pattern[str]:
    alternatives = []
    for phrase in phrases:
        words = tokenize(phrase)
        if not words:
            raise ValueError(f"the phrase {phrase!r} has no words to look for")
        ending = r"\w*" if phrase.rstrip().endswith("*") else ""
        alternatives.append(r"\b" + r" ".join(map(re.escape, words)) + ending + r"\b")
    return re.compile("|".join(alternatives))


def extract_findings(text: str, findings: Findings) -> frozenset[str]:
    """Return the findings that a report states and does not deny.

    A finding counts if one of its phrases occurs, on word borders, in a part that is stated (`statements.stated_parts`). This is a
    keyword rule, not a clinical labeller: doubt ("cannot exclude") counts as a statement.

    Raises:
        ValueError: a phrase without words.
    """
    patterns = {name: _compile_phrases(phrases) for name, phrases in findings.items() if phrases}
    parts = [" ".join(tokenize(part)) for part in list_stated_parts(text)]
    return frozenset(name for name, pattern in patterns.items() if any(pattern.search(part) for part in parts))


def build_finding_phrases(classes: Sequence[str]) -> Findings:
    """Return the phrases that state each finding.

    These are its own name, each part of a name such as `Effusion/Pleural_Thickening`, and, for the usual observations
    in chest images, the synonyms that reports use.
    """
    phrases_by_finding: dict[str, tuple[str, ...]] = {}
    for name in classes:
        parts = [part for part in re.split(r"[/|]", name.replace("_", " ")) if re.search(r"\w", part)]
        own_phrases = (" ".join(re.findall(r"\w+", part)) for part in parts)
        synonym_phrases = (phrase for part in parts for phrase in finding_synonyms(part))
        if parts:
            phrases_by_finding[name] = tuple(dict.fromkeys((*own_phrases, *synonym_phrases)))
    return phrases_by_finding
