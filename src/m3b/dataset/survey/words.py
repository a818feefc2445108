"""The few words that annotate facts: sides of a split, and what a slot or column is about. They never decide a group or a join."""

from __future__ import annotations

import re
from collections.abc import Iterable

from m3b.dataset.survey.facts import Side

_SIDE_WORD_LISTS: dict[Side, str] = {
    "train": "train training trn tr fit learn development derivation trainset trainval trainvalid apprentissage ausbildung "
    "entrainement entraînement entrenamiento lernen 训练 训练集",
    "val": "val valid validation validacion validación validierung dev tune tuning eval evaluation 验证 验证集",
    "test": "test tests testing testset tst ts holdout heldout hold essai prueba pruefung prüfung 测试 测试集",
}
SIDE_WORDS: dict[Side, frozenset[str]] = {side: frozenset(words.split()) for side, words in _SIDE_WORD_LISTS.items()}
"""Side of a split -> words that mean it."""
_ONLY_ALONE = frozenset({"tr", "ts", "fit", "learn", "dev", "development", "eval", "evaluation", "hold"})
"""Words that mean a side as a whole text or behind another word (`imagesTr`), and are part of other names elsewhere."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[^\W\d_]+")


def side_of(text: str) -> Side:
    """Return the side of a split that a text means; "" if none or several. Cases for training and validation are for training."""
    words = [word.casefold().removesuffix("set") for word in _WORDS.findall(text)]
    known_words = {word for word in words if word not in _ONLY_ALONE or len(words) <= 2} | unspaced_words(text)
    sides: list[Side] = [side for side, side_words in SIDE_WORDS.items() if known_words & side_words]
    return sides[0] if len(sides) == 1 or sides == ["train", "val"] else ""


def unspaced_words(text: str) -> set[str]:
    """Return the words that a text without spaces may have, as Chinese is written: every piece of up to four characters."""
    runs = re.findall(r"[\u3400-\u9fff]+", text)
    return {run[start : start + size] for run in runs for size in range(1, 5) for start in range(len(run) - size + 1)}


_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ROLES = {
    "patient": r"patient|pat|subject|sub|subj|case|person|proband|fall|pid|participant",
    "side": r"left|right|links|rechts|izquierd\w*|derech\w*|gauche|droite|od|os",
    "view": r"view|ap|pa|lateral|lat|frontal|cc|mlo|projection",
    "slice": r"slice|sl|schicht|frame|img\d*slice",
    "session": r"session|ses|visit|timepoint|tp|day|scan",
    "mask": r"masks?|segs?|segmentations?|labels?|gt|groundtruth|annotations?|maske\w*|roi",
    "sex": r"sex|gender|geschlecht|sexo|sexe",
    "age": r"age|alter|edad",
}
_ROLE_PATTERNS = {
    role: re.compile(rf"(?:^|[\W_\d])(?:{words})(?:$|[\W_\d])", re.IGNORECASE) for role, words in _ROLES.items()
}


_PLACEHOLDER = re.compile(r"(?:^|[\W_])(?:submissions?|template|dummy|placeholders?)(?:$|[\W_])", re.IGNORECASE)


def is_placeholder(name: str) -> bool:
    """Return whether a file name says that its values are invented to show a form, such as `sample_submission.csv`."""
    return bool(_PLACEHOLDER.search(_CAMEL.sub("_", name)))


def role_hint(texts: Iterable[str]) -> str:
    """Return what texts (values of a slot, the text before it, a column's name) hint at; "" if nothing."""
    words = [_CAMEL.sub("_", text) for text in texts if text]
    if not words:
        return ""
    sides = [side_of(text) for text in words]
    if len({side for side in sides if side}) > 1 and all(sides):
        return "split"
    if len(words) == 2 and {text.lower() for text in words} in ({"l", "r"}, {"od", "os"}, {"left", "right"}):
        return "side"
    for role, pattern in _ROLE_PATTERNS.items():
        if sum(bool(pattern.search(text)) for text in words) > 0.5 * len(words):
            return role
    return ""
