"""Coded names of what a model says: SNOMED CT where the dictionary of DICOM has a class by its name, else a code of m3b's own."""

from __future__ import annotations

import re
from typing import Any

SCHEME = "99M3B"
"""Private codes, as DICOM names such schemes."""
MAX_CODE, MAX_MEANING = 16, 64


def coded(name: str) -> Any:
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
    return own(name)


def own(meaning: str, code: str = "") -> Any:
    """A concept of the private scheme; the code is made of the meaning where none is given."""
    from highdicom.sr import CodedConcept

    code_value = code or re.sub(r"[^A-Z0-9]+", "_", meaning.upper()).strip("_")[:MAX_CODE] or "UNNAMED"
    return CodedConcept(code_value, SCHEME, meaning[:MAX_MEANING])


def concept(value: str, scheme: str, meaning: str) -> Any:
    """A concept as it is."""
    from highdicom.sr import CodedConcept

    return CodedConcept(value, scheme, meaning)


def yes_or_no(told: bool) -> Any:
    """SNOMED's Yes and No."""
    return concept("373066001", "SCT", "Yes") if told else concept("373067005", "SCT", "No")


def one() -> Any:
    """The unit of shares and scores."""
    return concept("1", "UCUM", "no units")
