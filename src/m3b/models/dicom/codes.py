"""Coded names of what a model says: SNOMED CT where the dictionary of DICOM has a class by its name, else a code of m3b's own."""

from __future__ import annotations

import re
from typing import Any

SCHEME = "99M3B"
"""Private codes, as DICOM names such schemes."""
MAX_CODE_CHARS, MAX_MEANING_CHARS = 16, 64


def make_class_concept(name: str) -> Any:
    """The concept of a class name."""
    from highdicom.sr import CodedConcept
    from pydicom.sr.codedict import codes

    words = re.findall(r"[A-Za-z0-9]+", name)
    try:
        standard_concept = getattr(codes.SCT, "".join(word.capitalize() for word in words)) if words else None
    except AttributeError:
        standard_concept = None
    if standard_concept is not None:
        return CodedConcept(standard_concept.value, standard_concept.scheme_designator, standard_concept.meaning)
    return make_private_concept(name)


def make_private_concept(meaning: str, code: str = "") -> Any:
    """A concept of the private scheme; the code is made of the meaning where none is given."""
    from highdicom.sr import CodedConcept

    code_value = code or re.sub(r"[^A-Z0-9]+", "_", meaning.upper()).strip("_")[:MAX_CODE_CHARS] or "UNNAMED"
    return CodedConcept(code_value, SCHEME, meaning[:MAX_MEANING_CHARS])


def make_concept(value: str, scheme: str, meaning: str) -> Any:
    """A concept as it is."""
    from highdicom.sr import CodedConcept

    return CodedConcept(value, scheme, meaning)


def make_yes_no_concept(value: bool) -> Any:
    """SNOMED's Yes and No."""
    return make_concept("373066001", "SCT", "Yes") if value else make_concept("373067005", "SCT", "No")


def make_no_units_concept() -> Any:
    """The unit of shares and scores."""
    return make_concept("1", "UCUM", "no units")
