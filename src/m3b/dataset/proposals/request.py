"""What a request asks for, as far as a folder can answer it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from m3b.data import kinds
from m3b.dataset.manifest.model import Task
from m3b.dataset.manifest.overrides import Overrides
from m3b.dataset.proposals.roles import roles_of, severity_rank, split_words
from m3b.dataset.words.lexicon import get_lexicon, split_tokens
from m3b.dataset.words.matching import GENERIC_CONCEPTS, MATCH_SCORE, Assignment, match_classes, match_term
from m3b.dataset.words.requests import (
    CONCRETE_KINDS,
    TASK_VERBS,
    RequestClaims,
    is_flat,
    names_clinical,
    parse_request,
)
from m3b.dataset.words.unions import take_unions
from m3b.request_words import find_grading_scale

TASK_WEIGHTS = (1.0, 0.5, 0.25)
"""Weights of the tasks that a request's words may mean, the likeliest first."""
TUMOR_TISSUES = frozenset({"necrosis", "edema"})
"""Tissues that a tumour has, and other diseases too."""
TUMOR_PARTS = TUMOR_TISSUES | {"enhancing tumor", "non-enhancing tumor", "tumor core"}
"""Parts by which tumours are marked: all of them together are the tumour."""
MAX_SENTENCES = 12
NO_OVERRIDES = Overrides()
LITERAL_SCORE = 0.8
"""How well a name fits that stands in the request word for word."""
MIN_WORD = 3


@dataclass(frozen=True)
class ClassMatch:
    """How the classes of a request and those of a folder go together.

    Args:
        pairs: requested -> the best of the available names that it means.
        unmatched: requested classes that nothing matches.
        remainder: the requested class that means all others; empty if there is none.
        requested_share: share of the requested classes that are matched; 0.5 if the request names none.
        available_share: share of the available classes that are matched; 0.5 if the request names none.
    """

    pairs: Mapping[str, str] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    remainder: str = ""
    requested_share: float = 0.5
    available_share: float = 0.5


@dataclass(frozen=True)
class Request:
    """A request, parsed.

    Args:
        tasks: tasks that its words may mean, with their weights.
        task: the task that is looked at; None for all of them.
        numbered_classes: code -> class, if it gives numbers ("anterior (1)").
        notes: texts of the folder in which abbreviations are explained.
        has_several: whether it says that several classes can apply to one image.
        wants_own_test: whether it asks for a test on the folder's own test part.
        overrides: what the user fixed besides.
        unions: name -> the class that it counts as.
        patient_key: column of patients by a data card; used if there is one of this name.
    """

    text: str
    claims: RequestClaims
    tasks: Mapping[Task, float] = field(default_factory=dict)
    task: Task | None = None
    numbered_classes: Mapping[str, str] = field(default_factory=dict)
    notes: str = ""
    wants_own_test: bool = False
    has_several: bool = False
    overrides: Overrides = NO_OVERRIDES
    patient_key: str = ""
    unions: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The phrase that names what is to be found, segmented or estimated."""
        return self.claims.targets[0] if self.claims.targets else ""

    @property
    def asks_for_grades(self) -> bool:
        """Whether the classes of the task are grades, from low to high."""
        return self.task is not None and kinds.of(self.task).ordered

    @property
    def prefers_grades(self) -> bool:
        """Whether its words mean grades before numbers."""
        return next(iter(self.tasks), None) == "grading"

    @property
    def asks_for_number(self) -> bool:
        """Whether it calls what is asked for a number: grades are then numbers, too."""
        return _AS_NUMBER.search(self.text) is not None

    @property
    def asks_for_boxes(self) -> bool:
        """Whether the answers of the task are boxes."""
        return self.task is not None and "boxes" in kinds.of(self.task).targets

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that it names; of several targets, those."""
        if self.claims.classes:
            return self.claims.classes
        return self.claims.targets if len(self.claims.targets) > 1 else ()

    @property
    def class_count(self) -> int | None:
        """How many classes it asks for without naming them, as in "into its nine types"."""
        claims = self.claims
        return claims.n_classes if not self.classes and claims.grade_range is None else None

    @property
    def report_sections(self) -> frozenset[str]:
        """The sections of a report that it names; none for whole reports."""
        return frozenset(name for name, pattern in _SECTIONS.items() if pattern.search(self.text))

    @property
    def unit(self) -> str:
        """Of a number that it asks for."""
        return self.claims.unit

    @property
    def dims(self) -> int | None:
        """2 or 3, if it says so or names a modality of single pictures."""
        return {"2d": 2, "3d": 3}.get(self.claims.dimension, 2 if is_flat(self.claims.modalities) else None)

    @property
    def is_understood(self) -> bool:
        """Whether its words name a task or anything of medicine."""
        claims = self.claims
        return bool(claims.tasks or claims.modalities or claims.anatomies or names_clinical(claims.targets))

    def match_phrase(self, name: str) -> float:
        """Return how well a name fits what is asked for, 0 to 1."""
        phrases = [
            *self.claims.targets,
            *self.claims.classes,
            *(["count", "number"] if self.claims.form == "count" else []),
        ]
        literal = LITERAL_SCORE if self.contains(name) or self.spells_out(name) else 0.0
        return max([literal, *(match_term(phrase, name) for phrase in phrases if phrase and name)])

    def contains(self, name: str) -> bool:
        """Whether all words of a name stand in the text, and are none that tables have for files, persons and parts."""
        words = set(split_words(name))
        return (
            bool(words)
            and all(len(word) >= MIN_WORD for word in words)
            and not roles_of(name) & {"image", "identifier", "patient", "split"}
            and words <= set(split_words(self.text))
        )

    def lists_none(self, name: str) -> bool:
        """Whether a list in the text has a name for no finding: `(none, mild, severe)`."""
        is_item = rf"[(,;:/]\s*{re.escape(name)}\s*[),;/]"
        return severity_rank(name) == 0 and re.search(is_item, self.text, re.IGNORECASE) is not None

    def spells_out(self, name: str) -> bool:
        """Whether neighbouring words of the text have the capital letters of a name as their initials (`EF`)."""
        initials = r"[^\w]+".join(rf"{letter}\w{{{MIN_WORD},}}" for letter in name)
        return bool(re.fullmatch(r"[A-Z]{2,5}", name) and re.search(rf"\b{initials}\b", self.text, re.IGNORECASE))

    def is_more_than_asked(self, name: str) -> bool:
        """Whether a name holds what is asked for, and an organ, finding, cell or device that the request does not mention."""
        lexicon = get_lexicon()
        named, asked = (
            {concept for part in _AND.split(text) for concept in lexicon.find_concepts(part, CONCRETE_KINDS)}
            for text in (name, self.text)
        )
        return bool(named & asked and named - asked - GENERIC_CONCEPTS)

    def match_classes(self, available: Sequence[str]) -> ClassMatch:
        """Match the requested classes or grades with those of a folder; a single target that is not to be divided into a
        number of classes counts as one class."""
        requested = self.classes or (self.claims.targets if self.class_count is None else ())
        if not self.classes and self.claims.grade_range is not None and all(name.isdecimal() for name in available):
            lowest, highest = self.claims.grade_range
            requested = tuple(str(grade) for grade in range(lowest, highest + 1))
        elif not self.classes and self._are_published_grades(available):
            requested = tuple(available)
        if not requested or not available:
            return ClassMatch()
        return _match(tuple(requested), tuple(available), self.notes)

    def _are_published_grades(self, available: Sequence[str]) -> bool:
        """Whether a folder's classes are numbers of the scale by which the request grades: not all grades need to occur."""
        scale = find_grading_scale(self.text) if self.prefers_grades else None
        return (
            scale is not None
            and len(available) > 2
            and all(name.isdecimal() and scale[0] <= int(name) <= scale[1] for name in available)
        )

    def select_classes(self, available: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return class -> the folder's names of it, if the request names fewer classes and what each of them is; else nothing.

        Classes that it does not name are left out, except that of images without a finding if findings are to be found; several
        that it names as one, or of which it says that one counts as another, are united.
        """
        is_selection = len(self.claims.classes) >= 2 and not self.has_several and not self.asks_for_grades
        if not is_selection and not self.unions:
            return {}
        requested = dict.fromkeys([*self.unions, *self.unions.values(), *(self.claims.classes if is_selection else ())])
        assignment = match_classes(list(requested), available, notes=self.notes)
        missing = set(assignment.unmatched) - set(self.unions.values())
        if missing or assignment.ambiguous:
            return {}
        groups: dict[str, tuple[str, ...]] = {
            name: () for name in (*self.claims.classes, *self.unions.values()) if name in requested
        }
        for requested_name, group in assignment.pairs.items():
            name = self.unions.get(requested_name, requested_name)
            groups[name] = (*groups.get(name, ()), *group)
        names = {name for group in groups.values() for name in group}
        if not is_selection:
            groups |= {name: (name,) for name in available if name not in names}
        elif "detection" in self.tasks and not self.claims.negatives:
            groups |= {name: (name,) for name in available if name not in names and "none" in roles_of(name)}
        groups = {name: (name,) for name in available if name not in names and self.lists_none(name)} | groups
        if sum(map(len, groups.values())) == len(available) == len(groups):
            return {}
        return {group[0] if len(group) == 1 else requested_name: group for requested_name, group in groups.items()}

    def list_unmet_unions(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the names that shall count as another class and that no name of the folder means."""
        requested = [*self.unions, *self.unions.values(), *self.claims.classes]
        return tuple(
            name for name in match_classes(requested, available, notes=self.notes).unmatched if name in self.unions
        )

    def list_asked(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the marked classes of a folder that are asked for; all of them if it is not sure which.

        A single target may be the whole of several structures: one name that only tells a part of it (`enhancing tumour` of a
        tumour) selects nothing.
        """
        assignment = self._assign_marked(available)
        if assignment is None:
            return tuple(available)
        requested = tuple(assignment.pairs)
        groups = (assignment.ambiguous.get(requested_name, names) for requested_name, names in assignment.pairs.items())
        asked_names = {name for group in groups for name in group}
        if len(requested) == 1 == len(asked_names) and assignment.scores[requested[0]] < MATCH_SCORE:
            [name] = asked_names
            if len(split_tokens(name)) > len(split_tokens(requested[0])):
                return tuple(available)
        return tuple(name for name in available if name in asked_names)

    def names_none_of(self, available: Sequence[str]) -> bool:
        """Whether a single organ, finding, cell or device is asked for, and none of several classes has to do with it.

        Regions or classes of it ("tumour regions") have names of their own; organs are none of a finding in them.
        """
        requested = self.classes or self.claims.targets
        if len(requested) != 1 or not available or not self.match_classes(available).unmatched:
            return False
        lexicon, words = get_lexicon(), set(split_words(requested[0]))
        concepts = set(lexicon.find_concepts(requested[0], CONCRETE_KINDS))
        if lexicon.find_concepts(requested[0], ("findings",)) and all(map(_names_organ_alone, available)):
            return True
        if len(available) < 2:
            return False
        if not concepts or GENERIC_CONCEPTS & set(lexicon.find_concepts(requested[0])):
            return False
        if not any(lexicon.find_concepts(name, CONCRETE_KINDS) for name in available):
            return False  # kinds of it, such as `red` and `white`
        is_tumor = any("tumor" in {concept, *lexicon.get_wider(concept)} for concept in concepts)
        concepts_of_names = [set(lexicon.find_concepts(name)) for name in available]
        if "organ" in concepts:  # organs of a region have names of their own
            of_region = [
                any(concepts & lexicon.get_wider(concept) for concept in name_concepts)
                for name_concepts in concepts_of_names
            ]
            return 2 * sum(of_region) <= len(of_region)
        if (
            is_tumor
            and all(TUMOR_PARTS & name_concepts for name_concepts in concepts_of_names)
            and any(name_concepts - TUMOR_TISSUES for name_concepts in concepts_of_names)
        ):
            return False  # all that is marked are parts of it
        return not any(
            self.contains(name) or words & set(split_words(name)) or concepts & set(lexicon.find_concepts(name))
            for name in available
        )

    def select_marked(self, available: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return class -> the folder's names of it, of the classes that are marked and asked for; all if it asks for others, too.

        A name in words of the request is kept; an abbreviation is replaced by what it stands for.
        """
        assignment = self._assign_marked(available)
        if assignment is None:
            return {name: (name,) for name in available}
        selected: dict[str, tuple[str, ...]] = {}
        for requested_name, names in assignment.pairs.items():
            group = assignment.ambiguous.get(requested_name, names)
            if len(group) == 1:
                selected[_shorten_name(requested_name, group[0])] = group
            else:
                selected |= {name: (name,) for name in group}
        return selected

    def _assign_marked(self, available: Sequence[str]) -> Assignment | None:
        """Return which marked classes of a folder the request means; None if it wants all of them or if that is not sure."""
        requested = self.classes or (() if self.claims.wants_all else self.claims.targets[:1])
        assignment = match_classes(requested, available, notes=self.notes)
        is_ambiguous = bool(set(assignment.ambiguous) & set(self.classes)) or _leaves_unknown_names(assignment)
        return assignment if requested and assignment.is_complete and not is_ambiguous else None


def _leaves_unknown_names(assignment: Assignment) -> bool:
    """Whether names that mean nothing known are left beside those that a wider term selects: `CA`, `FI` and `IM` for "lesions"."""
    is_wider = any(score < MATCH_SCORE for score in assignment.scores.values())
    return is_wider and not all(get_lexicon().find_concepts(name) for name in assignment.unassigned)


def _names_organ_alone(name: str) -> bool:
    """Whether all that a name means is an organ."""
    lexicon = get_lexicon()
    kinds = {lexicon.concepts[concept].kind for concept in lexicon.find_concepts(name)}
    return "anatomy" in kinds and kinds <= {"anatomy", "data_words"}


def _shorten_name(wanted: str, name: str) -> str:
    """A folder's name of a class without the words for masks and the numbers of a list; the request's words for an abbreviation."""
    units = [unit for unit in get_lexicon().find_units(name) if not unit.is_number and unit.concepts != {"mask"}]
    words = [word for unit in units for word in unit.words]
    if not words or not (set(words) <= set(split_tokens(wanted)) or match_term(wanted, name) == 1):
        return wanted
    return name if len(words) == len(split_tokens(name)) else " ".join(words)


@lru_cache(maxsize=4096)
def _match(requested: tuple[str, ...], available: tuple[str, ...], notes: str) -> ClassMatch:
    assignment = match_classes(requested, available, notes=notes)
    pairs = {
        requested_name: names[0]
        for requested_name, names in assignment.pairs.items()
        if names and assignment.scores.get(requested_name, 0) >= MATCH_SCORE / 2
    }
    met = {name for names in assignment.pairs.values() for name in names}
    return ClassMatch(
        pairs, tuple(assignment.unmatched), assignment.remainder, len(pairs) / len(requested), len(met) / len(available)
    )


def parse(text: str, notes: str = "") -> Request:
    """Parse a request.

    Args:
        notes: texts of the folder.
    """
    wish, unions = take_unions(_EVALUATION.sub("", text.strip()), TASK_VERBS)
    sentences = [sentence for sentence in _SENTENCE_END.split(wish) if re.search(r"\w", sentence)]
    has_several = any(_SEVERAL.search(sentence) for sentence in sentences)
    sentences = [_PRESENT.sub(" ", _LISTED.sub(r" \1 ", _SEVERAL.sub("", sentence))) for sentence in sentences]
    for pattern, verb in _WHICH_FINDINGS:
        sentences = [pattern.sub(verb, sentence) for sentence in sentences]
    parsed = [parse_request(sentence) for sentence in sentences[:MAX_SENTENCES]] or [parse_request(text)]
    claims = next(
        (item for item in parsed if item.tasks and (item.anatomies or item.modalities or names_clinical(item.targets))),
        next((item for item in parsed if item.tasks and item.targets), parsed[0]),
    )
    tasks: dict[Task, float] = dict(zip(claims.tasks, TASK_WEIGHTS, strict=False))
    numbered = {number: name.strip() for name, number in re.findall(r"([^\W\d_][^\d(),;]*?)\s*\(\s*(\d+)\s*\)", text)}
    numbered |= {number: name.strip() for number, name in re.findall(r"\b(\d+)\s*[:=]\s*([^\W\d_][^\d(),;]*)", text)}
    tasks = _prefer(tasks, claims, text, has_several=has_several)
    return Request(
        text,
        claims,
        tasks,
        None,
        {number: _numbered_name(name, claims) for number, name in numbered.items()},
        notes,
        bool(_OWN_TEST.search(text)),
        has_several,
        unions=unions,
    )


def _prefer(tasks: dict[Task, float], claims: RequestClaims, text: str, *, has_several: bool) -> dict[Task, float]:
    """Put first what the whole sentence says: numbers and grades by their words, and findings that are present or not."""
    first: Task | None = None
    if {"grading", "regression"} <= tasks.keys() and _AS_NUMBER.search(text):
        first = "regression"
    elif claims.tasks[:1] != ("survival",) and any("grade" in roles_of(target) for target in claims.targets or (text,)):
        first = "grading"
    elif has_several or _WHICH.search(text):
        first = "diagnosis"
    if first is None or (tasks and next(iter(tasks)) == first) or (tasks and not claims.form and _SEGMENT.search(text)):
        return tasks
    other_tasks = [task for task in tasks if task != first]
    return dict(zip((first, *other_tasks), TASK_WEIGHTS, strict=False))


_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\bvs\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bresp\.)(?<!\bbzw\.)\s+|(?<=[。！？])|\n+", re.IGNORECASE
)
"""Ends of sentences, which those of abbreviations are not."""
_AS_NUMBER = re.compile(
    r"\b(?:as|als|comme|como)\s+(?:\w+\s+){0,2}(?:number|scalar|value|zahl|zahlenwert|nombre|valeur|número|valor)\b"
    r"|\bcontinu(?:ous\w*|[oa]s?)\b|\bvaleurs? continues?\b|\bkontinuierlich\w*|\br[eé]gress?[ei]\w*|\bregres\w*"
    r"|\bestimat\w*|\bschätz\w*|\bestim(?:er|ez|ar|e)\b|连续|回归|数值|估计|估算",
    re.IGNORECASE,
)
"""Words that call what is asked for a number."""
_AND = re.compile(r"(?<![^\W_])(?:and|und|et|y)(?![^\W_])", re.IGNORECASE)
_SECTIONS = {
    "findings": re.compile(r"\bfindings?\b|\bbefund\b|\brésultats?\b|\bhallazgos?\b|所见", re.IGNORECASE),
    "impression": re.compile(
        r"\bimpressions?\b|\bconclusi[oó]n\w*\b|\bbeurteilung\w*|\bimpresi[oó]n\b|印象|结论", re.IGNORECASE
    ),
}
"""Sections of a report, by the words of a request."""
_SEGMENT = re.compile(r"segment|分割|délimit|delimit", re.IGNORECASE)
_SEVERAL = re.compile(
    r"[;,，]?\s*\b(?:several|multiple|more than one)\b[^.;,]{0,30}\b(?:apply|present|possible|occur)\b"
    r"|[;,]?\s*\bmehrere\b[^.;,]{0,20}\bmöglich"
    r"|[;,]?\s*\bplusieurs\b[^.;,]{0,20}\bpossibles?"
    r"|[;,]?\s*\b(?:puede haber|pueden? ser) vari[oa]s|[,，]?可(?:以)?(?:同时)?(?:有|存在)多种",
    re.IGNORECASE,
)
"""A wish that several classes, or none, may apply to one image."""
_PRESENT = re.compile(
    r"\bfor each (?:of the )?(?:findings?|labels?|classes)\b|\bwhether (?:it|they|each) (?:is|are) (?:present|visible|there)\b"
    r"|\bfür jeden? (?:der )?(?:Befunde?|Klassen?)\b|,?\s*\bob (?:er|sie|es)\b|\bvorlieg(?:t|en)\b"
    r"|\bpour chaque (?:anomalie|classe)\b|\bsi (?:elle|il) est présente?\b"
    r"|\bpara cada (?:hallazgo|clase)\b|\bsi está presente\b|是否存在",
    re.IGNORECASE,
)
"""Phrases around the classes of a request that ask for each whether it is there."""
_LISTED = re.compile(rf"(?:{_PRESENT.pattern})\s*\(([^()]*)\)", re.IGNORECASE)
"""Such a phrase with the classes in parentheses behind it."""
_WHICH = re.compile(
    r"\bwhich\b[^.]{0,40}\bpresent\b|\bwelche\b[^.]{0,60}\bvorlieg"
    r"|\bquelles?\b[^.]{0,40}\bprésente?s?\b|\bqu[ée]\b[^.]{0,40}\bhay\b|有哪些",
    re.IGNORECASE,
)
"""A question which findings there are."""
_WHICH_FINDINGS = tuple(
    (re.compile(pattern, re.IGNORECASE), verb)
    for pattern, verb in (
        (
            r"^(?:\w+(?: out)?\s+)?which (?:findings?|abnormalit\w+|patholog\w+|signs|diseases?|labels?)"
            r"(?: (?:are|is)(?: (?:present|there|visible|seen))?)?\b",
            "Classify",
        ),
        (r"^(?:\w+,?\s+)?welche (?:Befunde|Auffälligkeiten|Pathologien|Krankheiten|Zeichen)\b", "Klassifiziere"),
        (
            r"^(?:\w+\s+)?quel(?:le)?s? (?:anomalies?|lésions?|pathologies?|signes?|maladies?)"
            r"(?: (?:sont|est)(?: (?:présente?s?|visibles?))?| il y a)?\b",
            "Classifier",
        ),
        (
            r"^(?:\w+\s+)?qu[ée] (?:hallazgos?|anomalías?|lesiones|patologías?|signos?|enfermedades)"
            r"(?: (?:hay|existen|están? presentes?))?\b",
            "Clasificar",
        ),
        (r"^训练一个(.*?)(?:诊断)?分类(?:模型|器|网络)", r"对\1进行分类"),
        (r"^(?:判断)?(.*?)上?有哪些(?:表现|异常|病变|征象|疾病)", r"对\1进行分类"),
    )
)
"""Questions which findings there are, wishes for a model, and the verb that says the same without a name."""
_EVALUATION = re.compile(
    r"(?<=\w)\s*[,;，]\s*(?:(?:and|then|please|und|dann|bitte|et|puis|y|luego)\s+)*"
    r"(?:(?:evaluate|test|validate)\b[^.;,]*?\b(?:on|with|using)|(?:evaluiere|teste|validiere)\w*\b[^.;,]*?\b(?:auf|mit|an)"
    r"|(?:évalue|teste|valide)[rz]?\b[^.;,]*?\bsur|(?:evalúa|evaluar|probar|prueba|validar)\b[^.;,]*?\b(?:en|con))\s[^.;,]*",
    re.IGNORECASE,
)
"""A clause that says on what a model is tested, behind the wish for it."""
_OWN_TEST = re.compile(
    r"\b(?:test|evaluat|report|validat)\w*\b[^.]{0,60}\b(?:on|with|using)\b[^.]{0,60}"
    r"\b(?:test(?:ing)?|validation|external|held[ -]?out)[ -]?(?:part|set|split|data|images|cases|patches|cohort|validation)\b"
    r"|\btest\w*\b[^.]{0,30}\bTestteil|\bauf dem Test(?:teil|satz|daten)"
    r"|\btester\b[^.]{0,30}\b(?:partie|jeu|ensemble) de test"
    r"|\b(?:probar|evaluar|comprobar)\b[^.]{0,30}\b(?:parte|conjunto) de prueba"
    r"|测试集上(?:测试|评估)|在[^。]{0,12}测试集",
    re.IGNORECASE,
)
"""A wish that the test part of the folder be used."""


def _numbered_name(name: str, claims: RequestClaims) -> str:
    """The name of a numbered class without what stands before it in the sentence."""
    phrases = sorted((*claims.classes, *claims.targets), key=len, reverse=True)
    if phrase := next((phrase for phrase in phrases if name.casefold().endswith(phrase.casefold())), ""):
        return name[-len(phrase) :]
    words = re.split(r"\b(?:segment|classify|detect|the|and|into|as|und|et|y|of)\b", name, flags=re.IGNORECASE)[
        -1
    ].strip(" ,:")
    return words or name
