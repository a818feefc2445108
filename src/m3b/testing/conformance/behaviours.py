"""Every promise, in the order of the table."""

from m3b.testing.conformance.exercise import BEHAVIOURS, Behaviour, Exercise

from . import answering, failing

__all__ = ["BEHAVIOURS", "Behaviour", "Exercise", "answering", "failing"]
