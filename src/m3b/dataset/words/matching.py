"""Whether two names mean the same thing: inflection, translation, synonyms, abbreviations, initials and compounds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from m3b.dataset.tables.legends import Legend, find_legends
from m3b.dataset.words.lexicon import (
    NEGATIONS,
    STOP_WORDS,
    Lexicon,
    Unit,
    fold_text,
    get_lexicon,
    is_negated,
    split_tokens,
    stem,
)

MATCH_SCORE = 0.6
"""Names with at least this score mean the same thing."""
_ABBREVIATION_SCORE = 0.8
_WIDER_SCORE = 0.5
_PREFIX_SCORE = 0.7
_SUBSET_SCORE = 0.62
_MIN_PREFIX = 6
GENERIC_CONCEPTS = frozenset(
    {
        "class",
        "region",
        "object",
        "image",
        "disease",
        "finding",
        "abnormality",
        "mask",
        "lesion",
        "patient",
        "diagnosis",
        "volume",
        "slice",
        "background",
        "patch",
        "grade",
    }
)
"""Concepts that say little beside others: "tumor class", "lesion mask"."""
_NORMAL = frozenset({"normal", "negative", "no", "uninfected", "cognitively normal"})
_OTHER = frozenset({"other"})
_MAX_SPELLINGS = 24
_MAX_LETTERS = 3
"""Letters of a short form that stands for a word by letters of it alone."""
_MAX_NAME = 200
"""Characters of a name that are compared."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_MAX_DIGITS = 9
"""Digits of a number that names a class."""
_LIST_ITEM = re.compile(r"\s*(\d+)\s*[.):]\s*(?=[^\W\d])")
"""The number before a name in a list: `2. Oedema`."""


@dataclass(frozen=True)
class Assignment:
    """Which available names the requested ones mean.

    Args:
        pairs: requested -> available names, the best first; several if none matches as a whole but some are narrower.
        scores: requested -> score of its best match.
        unmatched: requested names without a match.
        unassigned: available names that nothing requested means.
        remainder: the requested name that means "all others", if any; its pairs are the names that are left.
        ambiguous: requested -> available names that match equally well.
    """

    pairs: dict[str, tuple[str, ...]]
    scores: dict[str, float]
    unmatched: tuple[str, ...] = ()
    unassigned: tuple[str, ...] = ()
    remainder: str = ""
    ambiguous: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every requested name has a match."""
        return not self.unmatched


def match_term(phrase: str, name: str, lexicon: Lexicon | None = None) -> float:
    """Return from 0 to 1 how surely two names mean the same thing; `MATCH_SCORE` and more is a match.

    1: the same words or concept; about 0.8: an abbreviation, or one has words that the other lacks; 0.5: one is wider than the other.
    """
    lexicon = lexicon or get_lexicon()
    if not phrase.strip() or not name.strip():
        return 0.0
    return _match(lexicon, phrase[:_MAX_NAME], name[:_MAX_NAME])


def is_negative(name: str, lexicon: Lexicon | None = None) -> bool:
    """Return whether a name says that nothing was found: `normal`, `no tumor`, `notumor`, `ohne Befund`, `正常`."""
    lexicon = lexicon or get_lexicon()
    units = lexicon.find_units(name)
    return any(unit.concepts & _NORMAL for unit in units) or _has_negation(units)


def match_classes(
    requested: Sequence[str],
    available: Sequence[str],
    legend: Mapping[str, str] | None = None,
    notes: str = "",
    lexicon: Lexicon | None = None,
) -> Assignment:
    """Assign the names of classes that a request uses to those that a folder uses.

    Args:
        legend: available name or code -> what it means; it comes before the term list.
        notes: texts of the folder, whose legends and abbreviations come next.
    """
    lexicon = lexicon or get_lexicon()
    meanings = _collect_meanings(available, legend or {}, notes)
    shared = find_shared_words([text for name in available for text in meanings[name][:1]])
    table = {
        requested_name: {
            name: max(_score_class(lexicon, requested_name, text, shared) for text in meanings[name])
            for name in available
        }
        for requested_name in requested
    }
    remainder = next((requested_name for requested_name in requested if is_remainder(requested_name, lexicon)), "")
    pairs: dict[str, tuple[str, ...]] = {}
    scores: dict[str, float] = {}
    ambiguous: dict[str, tuple[str, ...]] = {}
    free = set(available)
    ranked = sorted(
        (
            (score, requested_name, name)
            for requested_name, row in table.items()
            for name, score in row.items()
            if score >= MATCH_SCORE and requested_name != remainder
        ),
        key=lambda item: (-item[0], requested.index(item[1]), available.index(item[2])),
    )
    for score, requested_name, name in ranked:
        if requested_name in pairs or name not in free:
            continue
        rivals = [
            rival
            for rival, rival_score in table[requested_name].items()
            if rival_score >= score - 0.02 and rival in free
        ]
        if len(rivals) > 1:
            ambiguous[requested_name] = tuple(rivals)
        pairs[requested_name], scores[requested_name] = (name,), score
        free.discard(name)
    missing = [name for name in requested if name not in pairs and name != remainder]
    for requested_name, name in _match_letters(lexicon, missing, [name for name in available if name in free]).items():
        pairs[requested_name], scores[requested_name] = (name,), MATCH_SCORE
        free.discard(name)
    for requested_name in requested:
        narrower = tuple(name for name in available if name in free and table[requested_name][name] >= _WIDER_SCORE)
        if requested_name not in pairs and requested_name != remainder and narrower:
            pairs[requested_name], scores[requested_name] = (
                narrower,
                max(table[requested_name][name] for name in narrower),
            )
            free -= set(narrower)
    if remainder:
        for name in [name for name in available if name in free]:
            scored = {
                key: table[key][name] for key in requested if key != remainder and table[key][name] >= MATCH_SCORE
            }
            if scored:  # "COVID-19, ARDS" is COVID-19, and not one of all others
                wanted = max(scored, key=lambda key: scored[key])
                pairs[wanted] = (*pairs.get(wanted, ()), name)
                free.discard(name)
        pairs[remainder], scores[remainder] = tuple(name for name in available if name in free), 1.0 if free else 0.0
        free.clear()
    unmatched = tuple(requested_name for requested_name in requested if not pairs.get(requested_name))
    if len(unmatched) == len(free) == 1 < len(requested) and not remainder:
        [requested_name], [name] = unmatched, free
        if (
            max(_cover(lexicon, lexicon.find_units(name), lexicon.find_units(requested_name)), default=0.0)
            >= _WIDER_SCORE
        ):
            pairs[requested_name], scores[requested_name] = (name,), _WIDER_SCORE
            free, unmatched = set(), ()
    unassigned = tuple(name for name in available if name in free)
    return Assignment(pairs, scores, unmatched, unassigned, remainder, ambiguous)


def match_words(text: str, candidates: Iterable[str]) -> dict[str, float]:
    """Return the candidates that a text names, with scores: all their units are in it."""
    lexicon = get_lexicon()
    units = lexicon.find_units(text)
    scores = {}
    for candidate in candidates:
        candidate_units = _select_telling(lexicon.find_units(candidate))
        covered = _cover(lexicon, candidate_units, units)
        if candidate_units and min(covered) >= _PREFIX_SCORE:
            scores[candidate] = sum(covered) / len(covered)
    return scores


@lru_cache(maxsize=1 << 16)
def _match(lexicon: Lexicon, phrase: str, name: str) -> float:
    if "".join(split_tokens(phrase)) == "".join(split_tokens(name)):
        return 1.0
    phrase_units, name_units = lexicon.find_units(phrase), lexicon.find_units(name)
    phrase_negated, name_negated = _has_negation(phrase_units), _has_negation(name_units)
    if phrase_negated != name_negated:
        is_normal = any(unit.concepts & _NORMAL for unit in (name_units if phrase_negated else phrase_units))
        return _PREFIX_SCORE if is_normal else 0.0
    if _is_organ_of(lexicon, phrase_units, name_units) or _is_organ_of(lexicon, name_units, phrase_units):
        return 0.0
    score = _compare(lexicon, phrase_units, name_units)
    if score >= MATCH_SCORE:
        return score
    if _is_abbreviated(lexicon, phrase, phrase_units, name) or _is_abbreviated(lexicon, name, name_units, phrase):
        return _ABBREVIATION_SCORE
    return score


def _is_organ_of(lexicon: Lexicon, organ: Sequence[Unit], finding: Sequence[Unit]) -> bool:
    """Return whether one name is an organ alone and the other a finding of it: `liver` and `liver tumours`."""
    organ_kinds, finding_kinds = (
        {lexicon.concepts[name].kind for unit in units for name in unit.concepts} for units in (organ, finding)
    )
    is_normal = any(unit.concepts & _NORMAL for unit in finding)
    return organ_kinds == {"anatomy"} and "findings" in finding_kinds and not is_normal


def _compare(lexicon: Lexicon, first: Sequence[Unit], second: Sequence[Unit]) -> float:
    """Return the score of two lists of units: 1 if each covers the other, less if one has further ones, low if both have."""
    first, second = _select_telling(first), _select_telling(second)
    if not first or not second:
        return 0.0
    first_cover, second_cover = _cover(lexicon, first, second), _cover(lexicon, second, first)
    first_full = sum(value >= _PREFIX_SCORE for value in first_cover) / len(first_cover)
    second_full = sum(value >= _PREFIX_SCORE for value in second_cover) / len(second_cover)
    if first_full == second_full == 1:
        return (sum(first_cover) + sum(second_cover)) / (len(first_cover) + len(second_cover))
    if max(first_full, second_full) == 1 and not _differ_by_number(first, second, first_cover, second_cover):
        return _SUBSET_SCORE + 0.3 * min(first_full, second_full)
    wider = [value for value in (*first_cover, *second_cover) if value > 0]
    are_related = min(*first_cover, *second_cover) >= _WIDER_SCORE
    return _WIDER_SCORE if are_related else 0.4 * len(wider) / (len(first_cover) + len(second_cover))


def _differ_by_number(
    first: Sequence[Unit], second: Sequence[Unit], first_cover: Sequence[float], second_cover: Sequence[float]
) -> bool:
    """Return whether only one of two names has a number or a side that the other lacks: "grade 2" is not "grade"."""
    beyond = [
        unit
        for unit, value in (*zip(first, first_cover, strict=True), *zip(second, second_cover, strict=True))
        if value < _PREFIX_SCORE
    ]
    return any(unit.is_number for unit in beyond)


def _select_telling(units: Sequence[Unit]) -> list[Unit]:
    """Leave out generic and negating units, unless there are no others."""
    telling = [unit for unit in units if not unit.concepts & GENERIC_CONCEPTS and not set(unit.words) <= NEGATIONS]
    return telling or list(units)


def _cover(lexicon: Lexicon, units: Sequence[Unit], candidates: Sequence[Unit]) -> list[float]:
    """Return for each unit how well it is one of the others."""
    return [max((_score_units(lexicon, unit, candidate) for candidate in candidates), default=0.0) for unit in units]


def _score_units(lexicon: Lexicon, first: Unit, second: Unit) -> float:
    if first.concepts & second.concepts or first.words == second.words:
        return 1.0
    if first.concepts and second.concepts:
        if _is_modifier(lexicon, first, second) or _is_modifier(lexicon, second, first):
            return _PREFIX_SCORE
        return _WIDER_SCORE if _are_related(lexicon, first.concepts, second.concepts) else 0.0
    if first.concepts or second.concepts:
        known_unit, unknown = (first, second) if first.concepts else (second, first)
        if (
            len(known_unit.words) > 1
            and len(unknown.words) == 1
            and any(_have_equal_stem(unknown.words[0], word) for word in known_unit.words)
        ):
            return _PREFIX_SCORE
    if len(first.words) != 1 or len(second.words) != 1 or first.is_number or second.is_number:
        return 0.0
    one_word, other_word = first.words[0], second.words[0]
    if not first.concepts and not second.concepts and _have_equal_stem(one_word, other_word):
        return 1.0
    short, long = sorted((one_word, other_word), key=len)
    n_common = next(
        (
            place
            for place, (first_letter, second_letter) in enumerate(zip(short, long, strict=False))
            if first_letter != second_letter
        ),
        len(short),
    )
    if n_common >= _MIN_PREFIX and n_common >= 0.75 * len(long):
        return _PREFIX_SCORE
    return 0.0


def _is_modifier(lexicon: Lexicon, part: Unit, whole: Unit) -> bool:
    """Return whether a unit is the describing word of a longer one: "anterior" of "anterior hippocampus"."""
    kinds = {lexicon.concepts[name].kind for name in part.concepts}
    return "data_words" in kinds and len(part.words) < len(whole.words) and set(part.words) < set(whole.words)


def have_common_ancestor(lexicon: Lexicon, first: Iterable[str], second: Iterable[str]) -> bool:
    """Return whether concepts are equal, or kinds or parts of a common one, such as two diseases of the skin."""
    ancestors = [
        {wider for name in names for wider in (name, *lexicon.get_wider(name, 6))} - GENERIC_CONCEPTS
        for names in (first, second)
    ]
    return bool(ancestors[0] & ancestors[1])


def _are_related(lexicon: Lexicon, first: Iterable[str], second: Iterable[str]) -> bool:
    """Return whether a concept is a kind or part of another one of the same kind."""
    for one_name in first:
        for other_name in second:
            kinds = {lexicon.concepts[name].kind for name in (one_name, other_name)}
            if len(kinds) == 1 and (
                other_name in lexicon.get_wider(one_name) or one_name in lexicon.get_wider(other_name)
            ):
                return True
    return False


def are_same_words(first: str, second: str) -> bool:
    """Return whether two names differ by the endings of their words at most: `Polyps` and `polyp`."""
    pairs = [split_tokens(name) for name in (first, second)]
    return len(pairs[0]) == len(pairs[1]) > 0 and all(
        one == other or _have_equal_stem(one, other) for one, other in zip(*pairs, strict=True)
    )


def are_same_numbers(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether two lists name the same numbered classes: `0`, `1`, `2` and `KL grade 0`, `KL grade 1`, `KL grade 2`.

    The names of one list differ by a whole number alone, and each name of the other has one of these numbers and no other.
    """
    numbered = [_split_numbers(names) for names in (first, second)]
    if not all(numbered) or len(first) < 2:
        return False
    (first_numbers, first_words), (second_numbers, second_words) = ([*zip(*pairs, strict=True)] for pairs in numbered)
    is_distinct = len(set(first_numbers)) == len(first) == len(second)
    differ_by_number = 1 in (len(set(first_words)), len(set(second_words)))
    return is_distinct and differ_by_number and set(first_numbers) == set(second_numbers)


def _split_numbers(names: Sequence[str]) -> list[tuple[int, str]]:
    """Return the number of each name and its other letters; nothing if a name has no whole number, or several."""
    pairs = []
    for name in names:
        numbers = _NUMBER.findall(name)
        if len(numbers) != 1 or not numbers[0].isdecimal() or len(numbers[0]) > _MAX_DIGITS:
            return []
        pairs.append((int(numbers[0]), re.sub(r"[\W\d_]+", "", name).casefold()))
    return pairs


def _have_equal_stem(first: str, second: str) -> bool:
    return any(
        len(stem(first, language)) >= 3 and stem(first, language) == stem(second, language)
        for language in ("en", "de", "fr", "es", "latin")
    )


def _has_negation(units: Sequence[Unit]) -> bool:
    return is_negated(
        word for unit in units for word in unit.words if not unit.concepts or set(unit.words) <= NEGATIONS
    )


def _is_abbreviated(lexicon: Lexicon, phrase: str, units: Sequence[Unit], name: str) -> bool:
    """Return whether the words of a name abbreviate or repeat those of a phrase, in any spelling of its concepts."""
    tokens = [token for token in split_tokens(name) if token not in STOP_WORDS]
    if not tokens or len(tokens) > 4:
        return False
    return any(_abbreviates_all(lexicon, tokens, words) for words in _iterate_spellings(lexicon, phrase, units))


def _iterate_spellings(lexicon: Lexicon, phrase: str, units: Sequence[Unit]) -> Iterator[tuple[str, ...]]:
    """Yield the words of a phrase, and those with concepts replaced by their English and German terms."""
    yield tuple(token for token in split_tokens(phrase) if token not in STOP_WORDS)
    options: list[list[tuple[str, ...]]] = []
    for unit in units:
        terms = [
            term
            for name in sorted(unit.concepts - GENERIC_CONCEPTS)  # "classes" in another language do not begin with C
            for language in ("en", "de")
            for term in lexicon.concepts[name].terms.get(language, ())
        ]
        options.append(
            [unit.words, *(tuple(token for token in split_tokens(term) if token not in STOP_WORDS) for term in terms)]
        )
    for place, terms_of_unit in enumerate(options):
        for words in terms_of_unit[1:_MAX_SPELLINGS]:
            yield tuple(
                word for index, option in enumerate(options) for word in (words if index == place else option[0])
            )


def _abbreviates_all(lexicon: Lexicon, tokens: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether tokens abbreviate or repeat all words of a phrase in order."""
    if not tokens:
        return not words
    if not words:
        return False
    token = tokens[0]
    if (token == words[0] or _have_equal_stem(token, words[0])) and _abbreviates_all(lexicon, tokens[1:], words[1:]):
        return True
    for count in range(1, len(words) + 1):
        if _abbreviates(token, words[:count]) and _abbreviates_all(lexicon, tokens[1:], words[count:]):
            return True
    return False


def _abbreviates(token: str, words: Sequence[str]) -> bool:
    """Return whether a token is made of the beginnings of words: initials of several, or the first letters of one."""
    if not token.isascii() or not token.isalnum() or len(token) < 2:
        return False
    if len(words) == 1:
        word = words[0]
        return 3 <= len(token) < len(word) and (word.startswith(token) or _is_contracted(token, word))
    if len(token) < len(words):
        return False
    return _consume(token, tuple(words)) and (len(token) <= 2 * len(words) or len(token) >= 3)


@lru_cache(maxsize=1 << 14)
def _consume(token: str, words: tuple[str, ...]) -> bool:
    """Return whether a token is the concatenation of non-empty beginnings of all words."""
    if not words:
        return not token
    if not token:
        return False
    word = words[0]
    for count in range(1, min(len(token), len(word)) + 1):
        if token[:count] != word[:count]:
            break
        if _consume(token[count:], words[1:]):
            return True
    return False


_ROOT_LIST = """
adeno angio arthro astro atro cardio carcin chondro cholangio chorio cysto cyto dermato endo entero epi erythro fibro gastro glio
hemangio hemato hepato histo hydro hyper hypo intra leio leuko lipo lympho macro mega melano meningio meta micro mono myo myx
nephro neuro neutro non oligo onco osteo para peri pneumo poly pre pro retino rhabdo sarco squam sub super thrombo thymo trans
ultra vaso
"""
_ROOTS = re.compile("|".join(_ROOT_LIST.split()))
"""First roots of words of medicine, after which an abbreviation may go on (`aca` of adeno-carcinoma, `pnx` not)."""


def _is_contracted(token: str, word: str) -> bool:
    """Return whether a token has the first letters of the roots of a word: `aca` of adeno|carcinoma, `cm` not."""
    match = _ROOTS.match(word)
    if not match or len(token) < 3:
        return False
    return _consume(token, (match[0], word[match.end() :]))


@lru_cache(maxsize=8)
def _find_legends(notes: str) -> tuple[Legend, ...]:
    return tuple(find_legends({"notes": notes}))


def _collect_meanings(available: Sequence[str], legend: Mapping[str, str], notes: str) -> dict[str, list[str]]:
    """Return for each name the texts that say what it means, the legend's first, then those of the notes, then itself."""
    folded = {fold_text(code): text for code, text in legend.items()}
    items = [_LIST_ITEM.match(name) for name in available]
    is_list = len({item[1] for item in items if item}) == len(items) > 1
    legends = _find_legends(notes) if notes else ()
    meanings: dict[str, list[str]] = {}
    for name, item in zip(available, items, strict=True):
        key = fold_text(name)
        texts = [folded[key]] if key in folded else []
        for entry in legends:
            texts += [text for code, text in entry.codes.items() if fold_text(code) == key]
        meanings[name] = [*texts, name[item.end() :] if is_list and item else name]
    return meanings


def find_shared_words(names: Sequence[str]) -> frozenset[str]:
    """Return the words that all of several names have: they tell nothing apart."""
    if len(names) < 2:
        return frozenset()
    words = [set(split_tokens(name)) for name in names]
    common = frozenset.intersection(*map(frozenset, words))
    return common if all(tokens - common for tokens in words) else frozenset()


def _score_class(lexicon: Lexicon, requested_name: str, text: str, shared: frozenset[str]) -> float:
    score = match_term(requested_name, text, lexicon)
    if shared and score < 1:
        distinct = " ".join(token for token in split_tokens(text) if token not in shared)
        score = max(score, match_term(requested_name, distinct, lexicon) - 0.05)
        text = distinct
    if len(text) <= 2 and text.isalpha() and score < MATCH_SCORE:
        words = [token for token in split_tokens(requested_name) if token not in shared and token not in STOP_WORDS]
        initials = "".join(word[0] for word in words)
        if words and (words[0].startswith(fold_text(text)) or initials == fold_text(text)):
            return MATCH_SCORE
    return score


def _match_letters(lexicon: Lexicon, requested: Sequence[str], available: Sequence[str]) -> dict[str, str]:
    """Pair short names with what their letters can stand for in any language, if each has one such partner only."""
    short = {name: fold_text(name) for name in available}
    short = {
        name: text
        for name, text in short.items()
        if 1 < len(text) <= _MAX_LETTERS and text.isalpha() and text.isascii()
    }
    if not short:
        return {}
    as_written = {name: _list_spellings(lexicon, name) for name in requested}
    translated = {name: _list_spellings(lexicon, name, translated=True) for name in requested}
    for fits, spellings in (
        (_are_first_letters, as_written),
        (_are_first_letters, translated),
        (_are_letters_of, as_written),
        (_are_letters_of, translated),
    ):
        partners = {
            name: [code for code, text in short.items() if any(fits(text, words) for words in spellings[name])]
            for name in requested
        }
        counts = Counter(code for codes in partners.values() for code in codes)
        pairs = {name: codes[0] for name, codes in partners.items() if len(codes) == 1 and counts[codes[0]] == 1}
        if len(pairs) == len(requested) and (len(pairs) > 1 or fits is _are_first_letters):
            return pairs
    return {}


def _list_spellings(lexicon: Lexicon, name: str, *, translated: bool = False) -> list[tuple[str, ...]]:
    """Return the words of a name, compounds as a whole and in parts, or those of its concept in each language."""
    units = lexicon.find_units(name)
    texts = [name]
    if translated and len(units) == 1:
        texts = [
            term
            for concept in units[0].concepts
            for terms in lexicon.concepts[concept].terms.values()
            for term in terms
        ]
    words = [tuple(token for token in split_tokens(text) if token not in STOP_WORDS) for text in texts]
    return [*words, tuple(word for unit in units for word in unit.words)]


def _are_first_letters(text: str, words: Sequence[str]) -> bool:
    return bool(words) and (words[0].startswith(text) or "".join(word[0] for word in words) == text)


def _are_letters_of(text: str, words: Sequence[str]) -> bool:
    """Return whether a text has letters of words in their order, the first of all among them."""
    letters = iter("".join(words))
    return bool(words) and words[0][0] == text[0] and all(letter in letters for letter in text)


def is_remainder(name: str, lexicon: Lexicon | None = None) -> bool:
    lexicon = lexicon or get_lexicon()
    return any(unit.concepts & _OTHER for unit in lexicon.find_units(name))
