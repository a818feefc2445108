"""The words that the rules know: organs, tasks, findings, and how columns are called."""

from __future__ import annotations

import re
import unicodedata

ANATOMY = {
    "chest": (
        "chest lung lungs thorax thoracic pulmonary pneumonia covid pneumothorax cxr rib poumon poumons "
        "lunge lungen torax pulmon pulmones neumonia pneumonie lungenentzündung 肺 肺炎 胸"
    ),
    "brain": (
        "brain cerebral head cranial stroke alzheimer dementia glioma hirn gehirn schädel cerveau "
        "cerebro cerebral 脑 大脑"
    ),
    "knee": "knee meniscus acl knie genou rodilla 膝",
    "breast": "breast mammography mammogram mamma brust sein mama 乳腺",
    "eye": "retina retinal fundus eye oct ocular auge œil oeil ojo 眼 视网膜",
    "skin": "skin dermoscopy melanoma haut peau piel 皮肤",
    "abdomen": (
        "abdomen abdominal liver kidney renal pancreas pancreatic spleen hepatic leber niere foie rein "
        "hígado riñón 肝 肾 腹"
    ),
    "heart": "heart cardiac myocardial ventricle herz cœur coeur corazón 心脏",
    "spine": "spine vertebra vertebrae lumbar wirbelsäule colonne columna 脊柱",
    "prostate": "prostate prostata próstata 前列腺",
    "bone": "fracture bone wrist hip hand knochen os hueso 骨",
}
OTHER_TASKS = {
    "segmentation": (
        "segment segmentation segmenting delineate delineation contour outline mask segmentieren "
        "segmenter segmentar 分割"
    ),
    "report": "report reports radiology-report impression befund bericht rapport informe 报告",
}
BOXES = ("bounding box", "bounding boxes", "localise", "localize", "locate")

IMAGE_COLUMNS = (
    "image_path",
    "imagepath",
    "filename",
    "file_name",
    "image",
    "img",
    "file",
    "path",
    "volumefilename",
    "volume",
    "image_id",
    "imageid",
    "image data id",
    "scan",
    "slice",
    "exam",
    "id",
)
PATIENT_COLUMNS = (
    "patient_id",
    "patientid",
    "patient",
    "subject_id",
    "subjectid",
    "subject",
    "pid",
    "participant",
    "case_id",
    "person",
    "examid",
    "study_id",
    "uid",
)
LABEL_COLUMNS = (
    "label",
    "labels",
    "diagnosis",
    "class",
    "finding",
    "findings",
    "target",
    "group",
    "category",
    "disease",
    "dx",
    "diag",
    "outcome",
    "grade",
    "result",
    "status",
    "y",
)
SPLIT_COLUMNS = ("split", "set", "subset", "partition", "fold", "phase")
_SAY_NOTHING = """
a an and are as at be between build by can classification classifier classify could create ct detect detection
detects develop different distinguish do each find for from give i identify if image images in into is it make
me model models mri my need of on or other others please predict rest scan scans tell tells that the them this
to train trained using want we whether which with x-ray x-rays xray
"""
STOP = frozenset(_SAY_NOTHING.split())
"""Words of a request that say nothing of its subject."""


def plain(text: str) -> str:
    """Lower case, without accents on Latin letters, so that `Pneumonie` and `pneumonié` are one word."""
    parts = unicodedata.normalize("NFKD", text.lower())
    return "".join(part for part in parts if not unicodedata.combining(part))


def words(text: str) -> set[str]:
    """The words of a text; Chinese and the like count letter by letter as well as in runs."""
    text = plain(text)
    found = set(re.findall(r"[a-z0-9][a-z0-9-]*|[^\W\d_a-z]+", text))
    found |= {part for word in found for part in word.split("-") if len(part) > 2}
    return found | {letter for letter in text if ord(letter) > 0x2E80}


def anatomy(text: str) -> set[str]:
    """The parts of the body that a text speaks of."""
    found, low = words(text), plain(text)
    named = set()
    for part, known in ANATOMY.items():
        for word in known.split():
            word = plain(word)
            if word in found or (ord(word[0]) > 0x2E80 and word in low):
                named.add(part)
    return named


def other_task(request: str) -> str:
    """The task that a request names if it is none of classification, as far as its words tell."""
    found, low = words(request), plain(request)
    for task, known in OTHER_TASKS.items():
        if any(plain(word) in found or (ord(word[0]) > 0x2E80 and word in low) for word in known.split()):
            return task
    return "detection" if any(phrase in low for phrase in BOXES) else ""


def rank(name: str, known: tuple[str, ...]) -> int | None:
    """How well a column's name fits a list of names, 0 best; None is not at all."""
    low = name.lower().strip()
    bare = re.sub(r"[^a-z0-9]", "", low)
    for place, word in enumerate(known):
        if bare == re.sub(r"[^a-z0-9]", "", word):
            return place
    parts = re.split(r"[^a-z0-9]+", low)
    for place, word in enumerate(known):
        if len(word) > 2 and word in parts:
            return len(known) + place
    return None
