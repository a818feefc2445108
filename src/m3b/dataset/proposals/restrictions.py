"""What the notes of a folder say must not be used (rows with a value of a column, classes, folders), and what is the reference."""

from __future__ import annotations

import re
from collections.abc import Sequence

from m3b.dataset.proposals.roles import split_words
from m3b.dataset.survey.words import side_of
from m3b.dataset.tables.columns import fold
from m3b.dataset.tables.yes_no import NO, YES

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[;。；！？\n]")
_FORBIDS = re.compile(
    r"\b(?:must|may|should|shall|can|do|is|are)\s*(?:not|n[o']t)\s+(?:to\s+)?(?:be\s+)?(?:us|includ|train|consider)\w+"
    r"|\bnot\s+(?:to\s+be\s+used|for\s+(?:use|training|research|analysis))|\bnever\s+use|\bunusable\b"
    r"|\b(?:must|should|shall|to|please)\s+(?:be\s+)?(?:exclude|ignore|discard|leave\s+out|left\s+out)d?\b"
    r"|^\W*(?:exclude|ignore|discard|leave\s+out)\b"
    r"|\bnicht\s+(?:für\s|zu\s|zum\s|ver)?\s*(?:\w+\s+){0,2}?(?:wend|nutz|benutz|training|einbezieh|einschließ)\w*"
    r"|\b(?:auszuschließen|ausschließen|weglassen|auslassen)\b"
    r"|\bne\s+(?:pas|doi(?:t|vent)\s+pas|peu(?:t|vent)\s+pas)\s+(?:être\s+)?(?:utilis|inclu)\w*|\bà\s+exclure\b"
    r"|\bno\s+(?:se\s+)?(?:deben?\s+|pueden?\s+)?(?:usar|utilizar|incluir)\w*|\b(?:deben?\s+)?(?:excluirse|excluir)\b"
    r"|(?:请勿|不要|不得|不可|不能|禁止|切勿|勿)[^，。；]{0,4}(?:用|纳入)|(?:应|需|请)(?:排除|剔除)|不(?:用于|纳入)",
    re.IGNORECASE,
)
"""Statements in five languages that something must not be used."""
_COMPARISON = r"[`'\"“”„«»\s]*(?:==?|:|\bis\b|\bist\b|\bequals?\b|\bset to\b|\best\b|\bes\b|为|是|等于)[`'\"“”„«»\s]*"


_OTHER_PURPOSE = re.compile(
    r"commerc|clinical|redistribut|identif|publish|shared?\b|kommerz|klinisch|weitergegeben|clinique|clínic|comercial|商业|临床|传播",
    re.IGNORECASE,
)
_UNFIT = re.compile(
    r"\b(?:unfinished|incomplete|outdated|obsolete|deprecated|superseded|wrong)\b"
    r"|\b(?:unfertig|unvollständig|veraltet|überholt|falsch)e?[nrs]?\b|\b(?:inachevé|incomplet|obsolète|périmé)e?s?\b"
    r"|\b(?:incomplet|obsolet|equivocad)[oa]s?\b|错误|作废|未完成|过时",
    re.IGNORECASE,
)
"""Statements that files are unfit."""
_FINISHED = re.compile(
    r"\b(?:done|finished|completed?|reviewed|checked|annotated|labell?ed|verified|fertig|erledigt|geprüft|abgeschlossen|annotiert)\b"
    r"|\b(?:terminé|fini|vérifié|relu|annoté|hecho|listo|revisado|completado|terminado|anotado)e?[sa]?\b"
    r"|完成|已标注|已审核|已检查",
    re.IGNORECASE,
)
"""Words that call an image finished."""
_NOT_FINISHED = re.compile(r"\b(?:not|un\w+ed|to be|nicht|zu|no|pas|à|por|sin)\b|未|待", re.IGNORECASE)
_CODE_WITH_NAME = re.compile(r"(?<![\w.])\d{1,3}\s*[:=]?\s*[^\W\d_]{3}")
_MAX_DISTANCE = 24
"""Characters behind such a statement within which its object starts."""


def list_prohibitions(notes: str) -> tuple[tuple[str, str], ...]:
    """Return the sentences of notes that say that something must not be used, each with its part that names what that is."""
    statements = []
    for sentence in _SENTENCE_END.split(notes):
        match = _FORBIDS.search(sentence)
        if match and not _OTHER_PURPOSE.search(sentence):
            statements.append((sentence.strip(" \t#*-"), sentence[: match.end() + _MAX_DISTANCE]))
    return tuple(statements)


def find_forbidden_rows(notes: str, column: str, values: Sequence[str], *, has_blanks: bool = False) -> dict[str, str]:
    """Return the values of a column with which rows must not be used, and the sentence that says so.

    It names the column and the value behind it (`consent = false`), the value alone (`rated reject`), or a column of yes and no
    alone (`patients who withdrew consent`).
    Names of parts of a split are no such values: what must not be trained on is tested on.

    Args:
        has_blanks: whether rows without a value stay, so that each value may be forbidden.
    """
    words = split_words(column)
    name = r"[\W_]*".join(map(re.escape, words))
    forbidden = {
        value: sentence
        for sentence, subject in list_prohibitions(notes)
        for value in values
        if (words and re.search(rf"(?<![^\W_]){name}{_COMPARISON}{re.escape(value)}(?!\w)", sentence, re.IGNORECASE))
        or (not side_of(value) and value.casefold() not in YES | NO and _names(subject, value))
    }
    if not forbidden and any(value.casefold() in YES | NO for value in values):
        forbidden = _find_forbidden_answers(notes, words, values)
    return forbidden if has_blanks or len(forbidden) < len(values) else {}


_ABSENT = re.compile(
    r"\b(?:without|no|lack\w*|missing|withdr\w+|revok\w+|refus\w+|ohne|kein\w*|fehl\w+|widerruf\w*|sans|retir\w+|sin|revoc\w+)\b"
    r"|撤|未|无|缺",
    re.IGNORECASE,
)
_STEM = 5
"""Letters in which inflections of a word agree."""


def _find_forbidden_answers(notes: str, words: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """Return the answers (yes or no) to a column with which rows must not be used: a sentence names the column by its words."""
    stems = {word[:_STEM] for word in words if len(word) > 2 or not word.isascii()}
    for sentence, _ in list_prohibitions(notes):
        subject = _FORBIDS.sub(" ", sentence)
        present = {word[:_STEM] for word in split_words(subject)}
        if not stems or not all(stem in present or (not stem.isascii() and stem in subject) for stem in stems):
            continue
        is_absent = (_ABSENT.search(subject) is not None) != (_ABSENT.search(" ".join(words)) is not None)
        answers = NO if is_absent else YES
        return {value: sentence for value in values if value.casefold() in answers}
    return {}


def find_forbidden_classes(notes: str, classes: Sequence[str]) -> dict[str, str]:
    """Return the classes of which notes say that they must not be used, and the sentence; at least two classes are left.

    Numbers and letters are no names.
    """
    forbidden: dict[str, str] = {}
    for sentence, subject in list_prohibitions(notes):
        forbidden |= {name: sentence for name in classes if _names(subject, name)}
    return forbidden if len(forbidden) <= len(classes) - 2 else {}


def find_forbidden_folder(notes: str, pattern: str) -> str:
    """Return the sentence that says that a folder of a pattern must not be used, or is unfit; empty if there is none."""
    folders = [folder for folder in pattern.split("/")[:-1] if folder and not set(folder) & set("{}*")]
    for sentence in _SENTENCE_END.split(notes):
        is_about_use = _FORBIDS.search(sentence) or _UNFIT.search(sentence)
        if len(_CODE_WITH_NAME.findall(sentence)) > 1:
            continue  # of the values of masks one must be ignored
        if is_about_use and not _OTHER_PURPOSE.search(sentence) and any(_names(sentence, item) for item in folders):
            return sentence.strip(" \t#*-")
    return ""


_REFERENCE = re.compile(
    r"\b(?:reference|ground[ -]?truth|gold[ -]?standard|authoritative|definitive|agreed|use\s+only|only\s+use)\b"
    r"|\b(?:referenz\w*|maßgeb\w+|massgeb\w+|goldstandard|verbindlich\w*|gültig\w*)\b"
    r"|\b(?:référence|vérité\s+terrain|fait\s+foi|referencia|verdad\s+de\s+referencia|patrón\s+oro)\b|金标准|参考标准|为准",
    re.IGNORECASE,
)
"""Statements in five languages that something is the reference."""


def find_reference(notes: str, titles: Sequence[str]) -> int | None:
    """Return which of several targets the notes call the reference; None if they name none or several.

    A sentence names a target by all the words that its title does not share with the others.
    """
    words_of_title = [set(split_words(title)) for title in titles]
    shared = set.intersection(*words_of_title)
    named = {
        place
        for sentence in _SENTENCE_END.split(notes)
        if _REFERENCE.search(sentence) and not _FORBIDS.search(sentence)
        for place, words in enumerate(words_of_title)
        if words > shared and words - shared <= set(split_words(sentence))
    }
    return named.pop() if len(named) == 1 else None


_LEARNING = re.compile(
    r"\b(?:algorithms?|machine[ -]learning|deep[ -]learning|artificial intelligence|AI|models?|neural networks?|research)\b"
    r"|\b(?:Algorithmen|maschinelle[sn]? Lernen|KI|Modellen?|Forschung)\b|\b(?:algorithmes?|IA|modèles?|recherche)\b"
    r"|\b(?:algoritmos?|modelos?|investigación)\b|算法|模型|人工智能|研究",
)
_NOT_PERMITTED = re.compile(
    r"\b(?:is|are)\s+(?:strictly\s+)?(?:not\s+(?:permitted|allowed|covered)|prohibited|forbidden)"
    r"|\b(?:ist|sind)\s+(?:nicht\s+(?:gestattet|erlaubt|zulässig|abgedeckt)|untersagt|verboten)"
    r"|\b(?:est|sont)\s+(?:interdite?s?|n'est pas (?:autorisée?|permise?))|\b(?:está|están)\s+prohibid[oa]s?"
    r"|\bno\s+(?:está|se)\s+permit\w+"
    r"|(?:禁止|不得|不允许)[^，。；]{0,6}(?:用于|训练|研究)",
    re.IGNORECASE,
)
_OF_A_PART = re.compile(
    r"\b(?:test|validation|held-out)\s+(?:set|part|split|images|cases|data)\b|\b(?:rows|images|cases|patients|files)\s+(?:with|rated|marked|of|in)\b",
    re.IGNORECASE,
)


def find_general_prohibition(notes: str) -> str:
    """Return the sentence that says that the data must not be used to train models; empty if there is none.

    Prohibitions of a part of the data, and of commercial or clinical use, are others.
    """
    for sentence in _SENTENCE_END.split(notes):
        forbids = _NOT_PERMITTED.search(sentence) and _LEARNING.search(sentence)
        if forbids and not _OF_A_PART.search(sentence) and not _OTHER_PURPOSE.search(sentence):
            return sentence.strip(" \t#*-")
    return ""


def _names(text: str, name: str) -> bool:
    """Whether a text names a class: as a word, or anywhere in a language without spaces."""
    if re.search(r"[\u3400-\u9fff]{2}", name):
        return name in text
    is_name = re.search(r"[^\W\d_]{3}", name) is not None
    return is_name and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def is_finished_tag(tag: str, notes: str) -> bool:
    """Return whether a tag of images says that they were looked at: by its name, or by the sentence of notes that explains it."""
    _, _, value = tag.partition(": ")
    name = " ".join(split_words(tag if not value or fold(value) in YES else value))
    if _NOT_FINISHED.search(name):
        return False
    is_named = re.compile(rf"(?<!\w){re.escape(tag)}(?![^\W\u3400-\u9fff])", re.IGNORECASE)
    sentences = (
        text for text in _SENTENCE_END.split(notes) if is_named.search(text) and not _NOT_FINISHED.search(text)
    )
    return bool(_FINISHED.search(name)) or any(_FINISHED.search(text.replace(tag, " ")) for text in sentences)


_MARKS = (
    r"(?:masks?|labels?|annotations?|segmentations?|contours?|files?|maske\w*|dateie?n?|annotation\w*|masques?|fichiers?|étiquettes?"
    r"|máscaras?|anotaci\w+|archivos?|ficheros?|etiquetas?)"
)
_NO_MARKS = (
    rf"(?:\b(?:no|without(?: an?)?|missing|absent|kein\w*|ohne|fehlend\w*|sans|aucune?|pas de|sin|ningun\w*|falta de)"
    rf"\s+(?:\w+\s+)?{_MARKS}\b"
    r"|(?:无|没有|缺少)(?:掩膜|掩码|标注|标签|文件)+)"
)
_FINDING = (
    r"(?:findings?|lesions?|structures?|objects?|patholog\w+|abnormalit\w+|anomal\w+|disease|target|befunde?|läsion\w*|struktur\w*|objekte?"
    r"|lésions?|objets?|hallazgos?|lesi[óo]n\w*|estructuras?|objetos?|病灶|病变|结构|异常"
)
_MEANS = (
    r"(?:=+>?|->|→|:|\b(?:means?|indicates?|implies|signifies|bedeutet|heißt|signifie|indique|significa|indica)\b"
    r"|表示|意味|说明|即)"
)
_NOT_LOOKED_AT = re.compile(
    r"\bnot?\s+(?:yet\s+)?(?:been\s+)?(?:annotated|drawn|labell?ed|read|reviewed|done|available|segmented|marked|looked)"
    r"|\bun(?:labell?ed|annotated|marked|known)\b|\byet\b|\bnoch\b|\bpas encore\b|\baún\b|\btodavía\b|尚未|未标|未知",
    re.IGNORECASE,
)


def find_meaning_of_no_marks(notes: str, names: Sequence[str] = ()) -> str:
    """Return the sentence that says that an image without a file of marks shows nothing to mark; empty if none does.

    Args:
        names: of what is marked.
    """
    words = {
        word.removesuffix("s") for name in names for word in split_words(name) if len(word) > 2 or not word.isascii()
    }
    finding = "|".join([_FINDING, *(rf"{re.escape(word)}s?" for word in sorted(words))]) + ")"
    nothing = (
        rf"(?:(?:\b(?:no|without|free\s+of|kein\w*|ohne|aucune?|pas\s+de|sans|ningun\w*|sin)\s+(?:\w+\s+){{0,2}}?|[无没]有?){finding}"
        r"|\b(?:(?:not|nicht)\s+(?:present|visible|seen|vorhanden|sichtbar)|nothing|absent|negative|normal|healthy|nichts|negativ|gesund"
        r"|absente?s?|rien|sain|ausente|nada|sano|negativ[oa])\b|不存在|正常|阴性)"
    )
    means_nothing = re.compile(
        rf"{_NO_MARKS}[^,]{{0,24}}?{_MEANS}[^,]{{0,24}}?{nothing}"
        rf"|{nothing}\s+(?:images?\s+|cases?\s+)?(?:have|has|haben|hat|ont|a|n'ont|n'a|tienen|tiene)\s+{_NO_MARKS}",
        re.IGNORECASE,
    )
    for sentence in _SENTENCE_END.split(notes):
        if means_nothing.search(sentence) and not _NOT_LOOKED_AT.search(sentence):
            return sentence.strip(" \t#*-")
    return ""


_ASSESSABLE = re.compile(
    r"\b(?P<negated>un|non|in|not |nicht |no |non )?[ -]?"
    r"(?:gradeable|gradable|assessable|usable|readable|interpretable|evaluable|diagnostic|(?:beurteil|auswert|verwert)bar"
    r"|évaluable|interprétable|lisible|valorable|legible)\b"
    r"|(?P<absent>不可|无法|不能)?(?:评估|判读|分级)",
    re.IGNORECASE,
)
"""Words in five languages that say whether an image can be assessed."""


def is_unassessable_tag(tag: str) -> bool:
    """Return whether a tag of images (`ungradable`, `gradable: no`) says that they could not be assessed."""
    attribute, _, value = tag.partition(": ")
    if value and fold(value) not in YES | NO:
        attribute = value
    match = _ASSESSABLE.search(" ".join(split_words(attribute)))
    if match is None:
        return False
    is_negated = bool(match["negated"] or match["absent"])
    return is_negated != (fold(value) in NO)
