"""What in raw data names a person, and what is shown in its place.

Recognised by a column's header (those of `phi_words`, in some fifteen languages) and by the shape of its values.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from m3b.data.phi_headers import is_identity
from m3b.data.phi_shapes import ADDRESS, IDENTIFIERS, beside_persons, unnamed
from m3b.data.phi_values import has_given_name, identify_persons, is_name
from m3b.data.phi_words import WORDS
from m3b.isolation.user_secret import purpose_key

Phi = Literal["mask", "allow"]

_WORDS = (
    # names
    r"(patient|pat|subject|person|client|proband|mother|father|physician|doctor|referring|operator|technician|reader)"
    r" ?s? ?(full |first |last |given |family |middle |birth )?names?",
    r"(full|first|last|given|family|middle|maiden|sur|fore|nick)[ ]?names?",
    r"names? (of|du|des|der|del|do) .*(patient|paciente|paziente)\w*",
    r"vornamen?|nachnamen?|familiennamen?|geburtsnamen?|patientennamen?|voornaam|achternaam",
    r"prenom|nom (de famille|du patient|patient)|apellidos?|nombre (del )?paciente|cognome|sobrenome",
    r"姓名|患者姓名|病人姓名|氏名",
    # dates and places of birth
    r"dob|(date|day|time|place) of birth|(patient )?birth ?(date|day|time|place)",
    r"geburts(datum|tag|ort)|date (de )?naissance|fecha (de )?nacimiento|data (di |de )?nasci(ta|mento)|geboortedatum",
    r"出生日期|生日",
    # where and how to reach somebody
    r"(home |street |postal |mailing |patient |e ?mail |ip )?address(es)?( line)?|street|zip|(zip|post(al)?) ?code",
    r"adresse|anschrift|strasse|plz|postleitzahl|direccion|indirizzo|endereco|adres|code postal|codigo postal",
    r"地址|住址|电话|手机|邮箱",
    r"(home |mobile |cell |work |patient )?(tele)?phone( (number|no))?|mobile|fax",
    r"telefon|handy|telefono|telefone|telefoon",
    r"e ?mails?|mail|correo( electronico)?",
    # numbers of records, insurances and papers
    r"mrn|(medical |hospital |health |patient )?record (number|no|nr)|medical ?record( ?(number|no|nr|id))?",
    r"(chart|hospital) (number|no)|aktenzeichen|fallnummer|病历号|住院号|(numero de )?historia clinica",
    r"ssn|social security( (number|no))?|sozialversicherungsnummer|national id|nhs( (number|no))?|dni|nif|cpf",
    r"passport( (number|no))?|身份证号?|医保号",
    r"(health )?insurance( ?(number|no|id|nr))?|versicher(ungs|ten)nummer|(policy|account) (number|no)",
    r"medicare( (number|no|id))?|driver'?s? licen[cs]e|license plate|vehicle id|next of kin|emergency contact",
)
_HEADER = re.compile("|".join(f"(?:{words})" for words in _WORDS))
_NAME = {"name", "names", "person", "nom", "nome", "nombre", "naam"}
_PERSONAL = re.compile(r"age|sex|gender|birth|patient|dob|address|phone|mrn|alter|geschlecht|edad|sexo|eta|年龄|性别")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_SSN = re.compile(r"(?<![\d.-])\d{3}-\d{2}-\d{4}(?![\d-]|\.\d)")
_PHONE = re.compile(
    r"(?<![\w.+-])(?:(?:\+\d{1,3}[ -]?)?(?:\(\d{2,4}\) ?|\d{2,4}[ -])\d{3,4}[ -]\d{3,4}"  # 555-867-5309, (030) 123 4567
    r"|\+\d{1,3}[ /-]?\d{2,4}[ /-]?\d{5,9}|0\d{2,4}[ /-]\d{5,8}"  # +49 171 9876543, 0171-9876543
    r"|(?:\+33 ?|0)\d(?:[ .]\d\d){4}|0\d{1,3}-\d{2,4}-\d{4}|1[3-9]\d{9})(?![\w-]|\.\w)"  # as in France, Japan, China
)
_DAY = (
    r"(?:\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{4}年\d{1,2}月\d{1,2}日?"
    r"|\d{1,2}\.? [^\W\d]{3,12}\.? \d{4})"
)
_BORN = re.compile(
    r"((?:\bborn(?: on)?|\bd\.?o\.?b\.?|\b(?:date of )?birth(?:date|day)?|\bgeb(?:oren)?\.?(?: am)?|\bgeburts(?:datum|tag)"
    r"|\bnée?(?:\(e\))? le|\bdate de naissance|\b(?:fecha|f\.) de nac\w*\.?|\bnacid[oa] el|\bf\. ?nac\w*\.?"
    r"|出生日期|出生年月日?|生年月日|生日)\s{0,3}[:：]?\s{0,3})" + _DAY,
    re.I,
)
_NAMES = r"[A-ZÀ-ÖØ-Þ][\w'’-]{1,30}(?: (?:de |la |van |von |der |del )?[A-ZÀ-ÖØ-Þ][\w'’-]{1,30}){0,2}"
_TITLED = re.compile(
    r"\b(Mrs?\.?|Ms\.?|Miss|Dr\.?(?: med\.?)?|Prof\.?(?: Dr\.?)?|Herrn?|Frau(?: Dr\.?| Prof\.?)?|Mme\.?|Mlle\.?"
    r"|Dott(?:\.|ssa)|Sr\.|Sra\.|Dra?\.|Doña) " + _NAMES
)
_EASTERN = re.compile(
    r"((?:患者|病人|受检者|联系人|家属|主治|申请|报告|审核)?(?:姓名|医[生师])|患者氏名|患者名|氏名|主治医|担当医)"
    r"(\s{0,3}[:：]\s{0,3})[^\W\d_]{2,4}(?:[ 　][^\W\d_]{1,4})?"
)
_CARET = re.compile(r"[^\W\d_][\w .'-]*\^[^\W\d_][\w .'-]*(\^.*)?")
_COMMA = re.compile(r"[^\W\d_][\w'-]+, ?[^\W\d_][\w'.-]*( [^\W\d_][\w'.-]*)?")
_TWO = re.compile(r"([A-Z][\w'-]+|[A-Z]\.)( ([A-Z][\w'-]+|[A-Z]\.)){1,3}")
_MEDICAL = re.compile(
    r"\b(?:effusion|pneumo|nodul|mass|normal|lung|lobe|liver|kidney|spleen|left|right|heart|cardi|opacity|lesion|tumou?r|fracture"
    r"|covid|edema|fibro|cell|cancer|carcinoma|hernia|thick|consolid|atelect|emphys|infiltr|vertebra|gland|artery|vein|bowel"
    r"|bladder|stomach|brain|matter|bone|no |finding|disease|device|mri|ct|ray|tissue|muscle|node|aorta|rib|femur|hip)",
    re.I,
)


def mask(value: str) -> str:
    """What is shown instead of an identity: the same text for the same value."""
    if not value.strip():
        return value
    return (
        "[masked "
        + hashlib.blake2b(value.strip().encode("utf-8", "replace"), key=purpose_key("masks"), digest_size=3).hexdigest()
        + "]"
    )


MAX_LOOKED_VALUES = 200
"""Values of a column that are looked at."""
MIN_DIFFERENT_NAMES = 3
"""Rows whose capitalized words all differ, from which on they are names below `name`: a class repeats."""
PROSE_WORDS = 15
"""A cell with so many words is prose: a report or a note, in which people may be named in any form."""


def cell(value: str) -> str:
    """A value of a table or record as it is shown: prose is withheld, the rest scrubbed."""
    if len(value) > 3 * PROSE_WORDS and (words := len(value.split())) >= PROSE_WORDS:
        return f"[prose of {words} words, not shown]"
    return scrub(value)


def scrub(text: str) -> str:
    """Free text without the e-mail and street addresses, telephone and social security numbers, dates of birth and titled
    names in it."""
    if "@" in text:
        text = _EMAIL.sub("[masked]", text)
    if not text.isascii():
        text = _EASTERN.sub(r"\1\2[masked]", text)
    if any(digit in text for digit in "0123456789"):
        text = ADDRESS.sub("[masked]", _PHONE.sub("[masked]", _SSN.sub("[masked]", _BORN.sub(r"\1[masked]", text))))
    return _TITLED.sub(r"\1 [masked]", text) if " " in text else text


def normal(header: str) -> str:
    """A header as plain lower-case words: `PatientBirthDate`, `patient_birth-date` -> `patient birth date`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", header)
    text = unicodedata.normalize("NFKD", text.replace("ß", "ss")).lower()
    text = "".join(ch for ch in text if not unicodedata.combining(ch))
    return " ".join(re.sub(r"[^\w']|_|#", " ", text).split())


@functools.cache
def _list_headers() -> frozenset[str]:
    return frozenset(normal(word) for word in WORDS)


class Siblings:
    """The columns of one table, or the keys of one object: they decide together what a bare `name` among them means.

    Made once and asked for every column, so that the work grows with their number and not with its square.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    @cached_property
    def of_things(self) -> bool:
        """Whether the table lists categories, as COCO does."""
        return "supercategory" in self._normal

    @cached_property
    def of_persons(self) -> bool:
        """Whether another column names a person beyond doubt."""
        return any(_PERSONAL.search(name) for name in self._normal if name not in _NAME and "image" not in name)

    @cached_property
    def _normal(self) -> set[str]:
        return {normal(name) for name in self._names}


def is_personal(header: str, values: Sequence[object] = (), siblings: Siblings | Sequence[str] = ()) -> bool:
    """Whether a column (or JSON key) names a person, by its header, by most of its texts, or by record numbers in its objects.

    Args:
        header: the column's name.
        values: some of its values: texts, and objects or lists of JSON; others say nothing.
        siblings: the names of the columns beside it, its own among them or not.
    """
    words = normal(header)
    parts = [words, *(map(normal, re.split(r"[/@]", header)) if "/" in header or "@" in header else ())]
    if any(part and (_HEADER.fullmatch(part) or part in _list_headers() or is_identity(part)) for part in parts):
        return True
    words = parts[-1]
    if words.removesuffix(" value") in IDENTIFIERS and words.endswith(" value"):  # FHIR, with its keys as a path
        return True
    if words in IDENTIFIERS and any(map(_has_record_number, values[:MAX_LOOKED_VALUES])):
        return True
    texts = list(islice((text.strip() for text in values if isinstance(text, str) and text.strip()), MAX_LOOKED_VALUES))
    if words in _NAME:
        return _bare_name(texts, siblings if isinstance(siblings, Siblings) else Siblings(siblings))
    return _shaped(texts) or (not any(map(_MEDICAL.search, texts)) and identify_persons(texts))


def _bare_name(values: list[str], siblings: Siblings) -> bool:
    if siblings.of_things:
        return False
    if siblings.of_persons:
        return True
    if any(_MEDICAL.search(value) for value in values):
        return False
    are_different = len(set(values)) == len(values) >= MIN_DIFFERENT_NAMES
    return (
        _shaped(values)
        or _mostly_match(values, _COMMA)
        or identify_persons(values)
        or sum(is_name(value) or has_given_name(value) for value in values) * 2 > len(values) > 0
        or (are_different and _mostly_match(values, _TWO))
    )


def _shaped(values: list[str]) -> bool:
    return any(_mostly_match(values, shape) for shape in (_EMAIL, _SSN, _CARET, _PHONE, ADDRESS))


def _mostly_match(values: list[str], shape: re.Pattern[str]) -> bool:
    return bool(values) and sum(1 for value in values if shape.fullmatch(value)) * 2 > len(values)


def personal_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> set[int]:
    """The columns of a table that name a person."""
    columns, siblings, first = set(), Siblings(header), rows[:200]
    for index, name in enumerate(header):
        values = [row[index] for row in first if index < len(row)]
        if is_personal(name, values, siblings):
            columns.add(index)
    if unnamed(header):
        columns |= beside_persons([[row[at] for row in first if at < len(row)] for at in range(len(header))])
    return columns


def _has_record_number(value: object) -> bool:
    """Whether the value of such a key is what FHIR writes: `"identifier": [{"system": ..., "value": "4471923"}]`."""
    return any(isinstance(item, dict) and "value" in item for item in (value if isinstance(value, list) else [value]))


def record_numbers(value: Any, depth: int = 0) -> set[str]:
    """The texts of a JSON value that are record numbers, by the keys above them."""
    if depth > 40 or not isinstance(value, dict | list):
        return set()
    if isinstance(value, list):
        return set().union(*(record_numbers(item, depth + 1) for item in value))
    numbers: set[str] = set()
    for key, item in value.items():
        if normal(str(key)) in IDENTIFIERS and _has_record_number(item):
            numbers |= {
                str(identifier.get("value", ""))
                for identifier in (item if isinstance(item, list) else [item])
                if isinstance(identifier, dict)
            }
        else:
            numbers |= record_numbers(item, depth + 1)
    return numbers - {""}


def masked_json(value: Any, depth: int = 0) -> Any:
    """A copy of a JSON value with the values of personal keys masked; records of a list decide together what a key holds."""
    if depth > 40:
        return "…"
    if isinstance(value, dict):
        return _masked_records([value], depth)[0]
    if isinstance(value, list):
        records = [item for item in value if isinstance(item, dict)]
        masked = iter(_masked_records(records, depth))
        return [next(masked) if isinstance(item, dict) else masked_json(item, depth + 1) for item in value]
    return cell(value) if isinstance(value, str) else value


def _masked_records(records: Sequence[dict[Any, Any]], depth: int) -> list[dict[Any, Any]]:
    values: dict[Any, list[Any]] = {}
    for record in records[:MAX_LOOKED_VALUES]:
        for key, item in record.items():
            values.setdefault(key, []).append(item)
    names = Siblings(map(str, values))
    personal = {key: is_personal(str(key), items, names) for key, items in values.items()}
    return [
        {
            key: _masked_leaf(item)
            if (personal[key] if key in personal else is_personal(str(key), [item], names))
            else masked_json(item, depth + 1)
            for key, item in record.items()
        }
        for record in records
    ]


def _masked_leaf(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _masked_leaf(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked_leaf(item) for item in value]
    return value if value is None or isinstance(value, bool) else mask(str(value))
