"""Every promise, in the order of the table."""

from . import answering, failing
from .case import BEHAVIOURS, Behaviour, Exercise

__all__ = ["BEHAVIOURS", "Behaviour", "Exercise", "answering", "failing"]
