"""Conformance suite for providers: what every provider of m3b must do, tested over HTTP with a server that misbehaves.

A package with a provider of its own can run the same suite:

    from m3b.testing.conformance import BEHAVIOURS, CANARY, DIALECTS, Subject

    SUBJECT = Subject("mine", lambda url, retry, timeout_s: Mine(url, key=CANARY, retry=retry), DIALECTS["openai"])

    @pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
    def test_conformance(behaviour):
        behaviour.check(SUBJECT)

`python -m m3b.testing.conformance` prints the table of m3b's own providers, `... MODULE:SUBJECT` that of others.
"""

from m3b.testing.conformance.exercise import BEHAVIOURS, CANARY, Behaviour, Exercise, Subject, builtin_subjects
from m3b.testing.conformance.report import Outcome, format_table, run_conformance

from . import answering, failing  # noqa: F401 - importing them registers their behaviours, in the order of the table
from .dialects import DIALECTS, Dialect
from .server import Clock, ReceivedRequest, Server, ServerAnswer, join_pieces

__all__ = [
    "BEHAVIOURS",
    "CANARY",
    "DIALECTS",
    "ServerAnswer",
    "Behaviour",
    "Exercise",
    "Clock",
    "Dialect",
    "ReceivedRequest",
    "Outcome",
    "Server",
    "Subject",
    "builtin_subjects",
    "join_pieces",
    "format_table",
    "run_conformance",
]
