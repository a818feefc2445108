"""Words of requests and of data folders: concepts, matching of names, and what a request claims."""

from m3b.dataset.words.lexicon import Concept, Lexicon, get_lexicon, make_lexicon
from m3b.dataset.words.matching import (
    MATCH_SCORE,
    Assignment,
    are_same_numbers,
    are_same_words,
    is_negative,
    match_classes,
    match_term,
    match_words,
)
from m3b.dataset.words.requests import Claim, FolderWords, RequestClaims, contradictions, parse_request

__all__ = [
    "MATCH_SCORE",
    "Assignment",
    "Claim",
    "Concept",
    "FolderWords",
    "Lexicon",
    "RequestClaims",
    "are_same_numbers",
    "are_same_words",
    "contradictions",
    "get_lexicon",
    "is_negative",
    "make_lexicon",
    "match_classes",
    "match_term",
    "match_words",
    "parse_request",
]
