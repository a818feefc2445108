"""Every promise, in the order of the table."""

from . import answering, failing
from .case import BEHAVIOURS, Behaviour, Case

__all__ = ["BEHAVIOURS", "Behaviour", "Case", "answering", "failing"]
