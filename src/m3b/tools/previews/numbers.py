"""How much of an array a preview looks at."""

from __future__ import annotations

LOOKED_AT = 64 * 2**20
"""Bytes of one array that are looked at; of longer ones only so much, and that is said."""
