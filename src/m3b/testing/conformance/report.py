"""The table of providers and behaviours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from m3b.testing.conformance.behaviours import BEHAVIOURS, Behaviour
from m3b.testing.conformance.exercise import Subject

TABLE_HEADER = """\
# Conformance of the providers

Made by `python -m m3b.testing.conformance --write docs/conformance.md`; a test makes it anew and compares. Each row is a
promise that is kept over real HTTP, with the provider's own SDK, against a loopback server that misbehaves in that way.
No vendor's server is called. `yes`: kept; `-`: does not apply; anything else: broken.
"""


@dataclass(frozen=True)
class Outcome:
    """How one provider fared with one behaviour.

    Args:
        mark: `yes`, `-` or `no`.
        reason: of the last two.
    """

    subject: str
    behaviour: Behaviour
    mark: str
    reason: str = ""


def run_conformance(subjects: Iterable[Subject], behaviours: Sequence[Behaviour] = BEHAVIOURS) -> list[Outcome]:
    """Hold every provider to every behaviour. Nothing is raised: a broken promise is an outcome."""
    return [_run_behaviour(subject, behaviour) for subject in subjects for behaviour in behaviours]


def _run_behaviour(subject: Subject, behaviour: Behaviour) -> Outcome:
    try:
        reason = behaviour.check(subject)
    except Exception as error:  # noqa: BLE001 - whatever a provider does instead of keeping the promise
        return Outcome(subject.name, behaviour, "no", f"{type(error).__name__}: {error}")
    return Outcome(subject.name, behaviour, "-" if reason else "yes", reason)


def format_table(outcomes: Sequence[Outcome]) -> str:
    """The table as Markdown, with the broken promises below it."""
    subjects = list(dict.fromkeys(outcome.subject for outcome in outcomes))
    marks = {(outcome.subject, str(outcome.behaviour)): outcome.mark for outcome in outcomes}
    lines = [TABLE_HEADER]
    group = ""
    for behaviour in dict.fromkeys(outcome.behaviour for outcome in outcomes):
        if behaviour.group != group:
            group = behaviour.group
            lines += [f"\n## {group[0].upper()}{group[1:]}\n", f"| promise | {' | '.join(subjects)} |"]
            lines.append("|---" * (len(subjects) + 1) + "|")
        row = [marks.get((subject, str(behaviour)), "") for subject in subjects]
        lines.append(f"| {behaviour.promise} | {' | '.join(row)} |")
    failures = [outcome for outcome in outcomes if outcome.mark == "no"]
    if failures:
        lines.append("\n## Broken\n")
        lines += [
            f"- {failure.subject}, {failure.behaviour.promise}: {' '.join(failure.reason.split())}"
            for failure in failures
        ]
    return "\n".join(lines) + "\n"
