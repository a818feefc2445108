"""Masking of personal data (PHI): re-exports `m3b.data.phi` for the tools that show raw data."""

from m3b.data.phi import (
    PROSE_WORDS,
    Phi,
    Siblings,
    cell,
    is_personal,
    mask,
    masked_json,
    normal,
    personal_columns,
    record_numbers,
    scrub,
)

__all__ = [
    "PROSE_WORDS",
    "Phi",
    "Siblings",
    "cell",
    "is_personal",
    "mask",
    "masked_json",
    "normal",
    "personal_columns",
    "record_numbers",
    "scrub",
]
