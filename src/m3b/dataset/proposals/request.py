"""What a request asks for, as far as a folder can answer it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from m3b.data import kinds
from m3b.dataset.manifest.model import Task
from m3b.dataset.manifest.overrides import Overrides
from m3b.dataset.proposals.roles import roles_of, split_words
from m3b.dataset.words.matching import MATCH_SCORE, match_classes, match_term
from m3b.dataset.words.requests import RequestClaims, is_flat, names_clinical, parse_request

TASK_WEIGHTS = (1.0, 0.5, 0.25)
"""Weights of the tasks that a request's words may mean, the likeliest first."""
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
        requested_share: share of the requested classes that are matched; 0.5 if the request names none.
        available_share: share of the available classes that are matched; 0.5 if the request names none.
    """

    pairs: Mapping[str, str] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
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

    @property
    def target(self) -> str:
        """The phrase that names what is to be found, segmented or estimated."""
        return self.claims.targets[0] if self.claims.targets else ""

    @property
    def asks_for_grades(self) -> bool:
        """Whether the classes of the task are grades, from low to high."""
        return self.task is not None and kinds.of(self.task).ordered

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that it names; of several targets, those."""
        if self.claims.classes:
            return self.claims.classes
        return self.claims.targets if len(self.claims.targets) > 1 else ()

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
        literal = LITERAL_SCORE if self._contains(name) else 0.0
        return max([literal, *(match_term(phrase, name) for phrase in phrases if phrase and name)])

    def _contains(self, name: str) -> bool:
        """Whether all words of a name stand in the text, and are none that tables have for files, persons and parts."""
        words = set(split_words(name))
        return (
            bool(words)
            and all(len(word) >= MIN_WORD for word in words)
            and not roles_of(name) & {"image", "identifier", "patient", "split"}
            and words <= set(split_words(self.text))
        )

    def match_classes(self, available: Sequence[str]) -> ClassMatch:
        """Match the requested classes or grades with those of a folder; a single target counts as one class."""
        requested = self.classes or self.claims.targets
        if not self.classes and self.claims.grade_range is not None and all(name.isdecimal() for name in available):
            lowest, highest = self.claims.grade_range
            requested = tuple(str(grade) for grade in range(lowest, highest + 1))
        if not requested or not available:
            return ClassMatch()
        return _match(tuple(requested), tuple(available), self.notes)

    def select_classes(self, available: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return class -> the folder's names of it, if the request names fewer classes and what each of them is; else nothing.

        Classes that it does not name are left out; several that it names as one are united.
        """
        if len(self.claims.classes) < 2 or self.has_several or self.asks_for_grades:
            return {}
        assignment = match_classes(self.claims.classes, available, notes=self.notes)
        if not assignment.is_complete or assignment.ambiguous:
            return {}
        names = [name for group in assignment.pairs.values() for name in group]
        if len(names) == len(available) == len(assignment.pairs):
            return {}
        return {group[0] if len(group) == 1 else wanted: group for wanted, group in assignment.pairs.items()}


@lru_cache(maxsize=4096)
def _match(requested: tuple[str, ...], available: tuple[str, ...], notes: str) -> ClassMatch:
    assignment = match_classes(requested, available, notes=notes)
    pairs = {
        requested_name: names[0]
        for requested_name, names in assignment.pairs.items()
        if names and assignment.scores.get(requested_name, 0) >= MATCH_SCORE / 2
    }
    met = {name for names in assignment.pairs.values() for name in names}
    return ClassMatch(pairs, tuple(assignment.unmatched), len(pairs) / len(requested), len(met) / len(available))


def parse(text: str, notes: str = "") -> Request:
    """Parse a request.

    Args:
        notes: texts of the folder.
    """
    sentences = [
        sentence for sentence in re.split(r"(?<=[.!?])\s+|(?<=[。！？])|\n+", text.strip()) if sentence.strip()
    ]
    has_several = any(_SEVERAL.search(sentence) for sentence in sentences)
    sentences = [_PRESENT.sub(" ", _SEVERAL.sub("", sentence)) for sentence in sentences]
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
        {number: _last_words(name) for number, name in numbered.items()},
        notes,
        bool(_OWN_TEST.search(text)),
        has_several,
    )


def _prefer(tasks: dict[Task, float], claims: RequestClaims, text: str, *, has_several: bool) -> dict[Task, float]:
    """Put first what the whole sentence says: grades by their words, and findings that are present or not."""
    first: Task | None = None
    if any("grade" in roles_of(target) for target in claims.targets):
        first = "grading"
    elif has_several or _WHICH.search(text):
        first = "diagnosis"
    if first is None or (tasks and next(iter(tasks)) == first) or (tasks and not claims.form and _SEGMENT.search(text)):
        return tasks
    rest = [task for task in tasks if task != first]
    return dict(zip((first, *rest), TASK_WEIGHTS, strict=False))


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
_OWN_TEST = re.compile(
    r"\b(?:test|evaluat|report|validat)\w*\b[^.]{0,60}\b(?:on|with|using)\b[^.]{0,60}"
    r"\btest(?:ing)?[ -]?(?:part|set|split|data|images|cases)\b"
    r"|\btest\w*\b[^.]{0,30}\bTestteil|\bauf dem Test(?:teil|satz|daten)"
    r"|\btester\b[^.]{0,30}\b(?:partie|jeu|ensemble) de test"
    r"|\b(?:probar|evaluar|comprobar)\b[^.]{0,30}\b(?:parte|conjunto) de prueba"
    r"|测试集上(?:测试|评估)|在[^。]{0,12}测试集",
    re.IGNORECASE,
)
"""A wish that the test part of the folder be used."""


def _last_words(name: str) -> str:
    """The name of a numbered class without what stands before it in the sentence."""
    words = re.split(r"\b(?:segment|classify|detect|the|and|into|as|und|et|y|of)\b", name, flags=re.IGNORECASE)[
        -1
    ].strip(" ,:")
    return words or name
