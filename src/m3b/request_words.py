"""The vocabulary of the rules: organs, modalities, findings, and names of mask folders."""

from __future__ import annotations

import re
import unicodedata

ANATOMY_WORDS = {
    "chest": (
        "chest lung lungs thorax thoracic pulmonary pneumonia covid pneumothorax cxr rib ribs tuberculosis poumon "
        "poumons pneumonie thoracique lunge lungen brust brustkorb torax torácica tórax pulmon pulmón pulmones neumonía "
        "lungenentzündung 肺 胸"
    ),
    "brain": (
        "brain cerebral head cranial stroke alzheimer dementia glioma hirn gehirn schädel demenz schlaganfall cerveau "
        "cérébral cérébrale cerebro 脑"
    ),
    "knee": "knee knees meniscus acl knie kniegelenk genou genoux rodilla rodillas 膝",
    "breast": "breast mammography mammogram mammographie mamma brust mammaire mamografía mama 乳腺",
    "eye": "retina retinal fundus eye oct ocular auge augen netzhaut œil oeil rétine ojo retinopathy 眼 视网膜",
    "skin": "skin dermoscopy melanoma haut hautkrebs peau piel 皮肤",
    "abdomen": (
        "abdomen abdominal liver kidney kidneys renal pancreas pancreatic spleen hepatic leber niere nieren foie reins "
        "rénal hígado riñón riñones 肝 肾 腹"
    ),
    "heart": "heart cardiac myocardial ventricle herz cœur coeur cardiaque corazón 心脏",
    "spine": "spine vertebra vertebrae lumbar wirbelsäule wirbel vertébrale columna 脊柱",
    "prostate": "prostate prostata próstata 前列腺",
    "bone": "fracture fractures bone bones wrist hip knochen fraktur frakturen osseux osseuse hueso huesos 骨",
}
MODALITY_WORDS = {
    "x-ray": "x-ray x-rays xray xrays cxr radiograph radiographs radiographie radiographies röntgen röntgenbild "
    "röntgenbilder röntgenbildern radiografía radiografías x光 胸片",
    "ct": "ct cts tomography computertomographie tomodensitométrie tdm scanner tac 断层",
    "mri": "mri mris mr mrt irm rm magnetic kernspin 磁共振",
    "ultrasound": "ultrasound ultrasonography sonography echocardiography ultraschall échographie ecografía 超声",
    "pathology": "histology histopathology histological pathology smear 病理",
    "photograph": "dermoscopy dermoscopic fundus endoscopy endoscopic colonoscopy",
}
IMAGING_WORDS = (
    "image images imaging picture pictures scan scans slice slices volume volumes radiology bild bilder bildern "
    "aufnahme aufnahmen clichés cliché imagerie imagen imágenes 影像 图像 图片 扫描"
)
GRADING_SCALES = {
    r"kellgren": (0, 4),  # Ann Rheum Dis 16:494, 1957
    r"outerbridge": (0, 4),  # J Bone Joint Surg Br 43-B:752, 1961
    r"pfirrmann": (1, 5),  # Spine 26:1873, 2001
    r"fazekas": (0, 3),  # AJR 149:351, 1987
    r"gleason": (1, 10),  # patterns 1 to 5, sums 2 to 10; Am J Surg Pathol 29:1228, 2005
    r"isup": (1, 5),  # Am J Surg Pathol 40:244, 2016
    r"deauville": (1, 5),  # J Clin Oncol 32:3059, 2014
    r"bi-?rads": (0, 6),  # ACR BI-RADS Atlas, 5th edition, 2013
    r"pi-?rads": (1, 5),  # version 2.1, Eur Urol 76:340, 2019
    r"li-?rads": (1, 5),  # ACR LI-RADS, 2018
    r"ti-?rads": (1, 5),  # ACR, J Am Coll Radiol 14:587, 2017
    r"lung-?rads": (0, 4),  # ACR, 2022
    r"diabetic retinopathy": (0, 4),  # the international scale, Ophthalmology 110:1677, 2003
}
"""How a published scale of ordered grades is called -> its lowest and highest grade."""
COMPOUND_STEMS = frozenset(["hirn", "knie", "herz", "lung"])
"""Short words that begin compound words, for instance in German; all words of five letters or more are stems."""
_MASK_WORD_LIST = (
    "mask masks seg segs segm segmentation segmentations label labels lbl msk gt groundtruth truth gold standard annotation "
    "annotations roi rois manual consensus lesions"
)
_IMAGE_PATH_WORDS = ("cases", "images", "scans", "dataset", "data", "ct", "mr", "mri", "img", "imgs", "image")
"""A part of a path that ends with one of these words means images, whatever precedes it: `Lung-Seg_40cases`."""
MASK_WORDS = frozenset(_MASK_WORD_LIST.split())
BEYOND_IMAGE_PATTERNS = (
    r"\bvideos?\b|\bfilm(?:s|ed|ing)?\b|\bgait\b",
    r"\becgs?\b|\bekgs?\b|electrocardio|\beegs?\b|electroencephalo|12-lead|twelve-lead",
    r"\baudio\b|\bsounds?\b|\bauscult|\bcough recording",
    r"\bgenom\w*|\bgenetic|\bsequencing\b|\bblood (?:test|sample|value)s?\b",
    r"\bsurviv|\bprogno|life expectancy|will (?:live|die|survive)|months? to live|\bmortality\b|uberleb|sobreviv|survie",
    r"within \w+ (?:days|weeks|months|years)|in the next \w+ (?:days|weeks|months|years)|\brecurren|\breadmi",
)
"""Requests that images with labels cannot answer: other signals, and the future of a patient."""

_STOP_WORD_LIST = """
a all an and any are as at be between build by can classification classifier classify could create ct detect detection
detects develop different diagnose diagnosis disease distinguish do each else find findings for from give have i identify
if image images in into is it make me medical model models mri my need no not of on or other others patient patients
please predict rest scan scans tell tells that the them this to train trained using want we whether which with without
x-ray x-rays xray
what who whose whom how why when where here there does did has had been am was were would should will i you your he she
they them like some one it's
row rows column columns file files folder folders data dataset set sets card table person people number name names
ein eine einen einem einer das der die den dem des ist sind war wie was wer wo wann warum ich mir mich wir uns bitte auf
aus mit von zu zum zur im am oder und ob modell baue bauen erstelle
le la les un une du de est sont que qui quel quelle comment pourquoi ou et dans sur avec pour je modele
el los las una del es son cual como por en con para yo modelo
"""
STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
"""Words of a request that do not describe its subject."""


def fold_accents(text: str) -> str:
    """Return lower case without accents on Latin letters, so that `Pneumonie` and `pneumonié` are equal."""
    parts = unicodedata.normalize("NFKD", text.lower())
    return "".join(part for part in parts if not unicodedata.combining(part))


def extract_words(text: str) -> set[str]:
    """Return the words of a text; Chinese and similar scripts give single characters as well as runs."""
    text = fold_accents(text)
    tokens = set(re.findall(r"[a-z0-9][a-z0-9-]*|[^\W\d_a-z]+", text))
    tokens |= {part for word in tokens for part in word.split("-") if len(part) > 2}
    return tokens | {letter for letter in text if ord(letter) > 0x2E80}


def find_anatomy(text: str) -> set[str]:
    """Return the body parts that a text mentions most."""
    return _find_main_terms(text, ANATOMY_WORDS)


def find_modality(text: str) -> set[str]:
    """Return the modalities that a text mentions most."""
    return _find_main_terms(text, MODALITY_WORDS)


def is_about_images(text: str) -> bool:
    """Return whether a text mentions images at all."""
    return bool(find_modality(text) or find_anatomy(text) or _count_hits(text, IMAGING_WORDS))


def _find_main_terms(text: str, vocabulary: dict[str, str]) -> set[str]:
    """Return the terms with at least a third of the maximum count, so that a passing mention does not count."""
    counts = {name: hits for name, term_words in vocabulary.items() if (hits := _count_hits(text, term_words))}
    max_hits = max(counts.values(), default=0)
    return {name for name, hits in counts.items() if 3 * hits >= max_hits}


def _count_hits(text: str, term_words: str) -> int:
    """Count the words of a text that are listed, or begin with a listed word of five letters or more."""
    lower_text = fold_accents(text)
    ideographs = [word for word in map(fold_accents, term_words.split()) if ord(word[-1]) > 0x2E80]
    exact = {word for word in map(fold_accents, term_words.split()) if ord(word[-1]) <= 0x2E80}
    roots = tuple(word for word in exact if len(word) >= 5 or word in COMPOUND_STEMS)
    tokens: list[str] = re.findall(r"[^\W_]+(?:-[^\W_]+)*", lower_text)
    parts = [part for word in tokens for part in ({word, *word.split("-")} if "-" in word else (word,))]
    hits = sum(part in exact or (part.startswith(roots) and part.isalpha()) for part in parts)
    return hits + sum(lower_text.count(word) for word in ideographs)


def split_name_words(name: str) -> list[str]:
    """Return the words in a file or folder name, in lower case without numbers; `labelsTr` gives labels and tr."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.findall(r"[a-z]+", spaced.lower())


def is_mask_path(path: str) -> bool:
    """Return whether a file or one of its folders has a name that is typical of masks."""
    *folders, name = path.split("/")
    part_words = [split_name_words(part) for part in (*folders[-3:], name)]
    return any(word in MASK_WORDS for part in part_words for word in part if part[-1] not in _IMAGE_PATH_WORDS)


def find_grading_scale(text: str) -> tuple[int, int] | None:
    """Return the lowest and highest grade of the published scale that a text names; None for none, or for several."""
    ranges = {
        ends for name, ends in GRADING_SCALES.items() if re.search(rf"\b{name}\b", text, re.IGNORECASE) is not None
    }
    return ranges.pop() if len(ranges) == 1 else None
