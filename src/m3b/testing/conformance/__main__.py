"""Command line of the suite: `python -m m3b.testing.conformance [MODULE:SUBJECT ...] [--write FILE]`."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from pathlib import Path

from m3b.testing.conformance.exercise import Subject, builtin_subjects
from m3b.testing.conformance.report import format_table, run_conformance


def main(arguments: list[str] | None = None) -> int:
    """Print or write the table; return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m m3b.testing.conformance", description=__doc__)
    parser.add_argument("subjects", nargs="*", help="MODULE:NAME of a Subject (default: m3b's own providers)")
    parser.add_argument("--write", type=Path, help="write the table to this file instead of printing it")
    options = parser.parse_args(arguments)
    logging.getLogger("m3b.llm").setLevel(logging.ERROR)  # no warnings that the models of this suite are unknown
    outcomes = run_conformance([_load_subject(name) for name in options.subjects] or builtin_subjects())
    if options.write:
        options.write.write_text(format_table(outcomes), encoding="utf-8")
    else:
        print(format_table(outcomes), end="")
    failures = [outcome for outcome in outcomes if outcome.mark == "no"]
    for outcome in failures:
        print(f"{outcome.subject}: {outcome.behaviour}: {outcome.reason}", file=sys.stderr)
    return 1 if failures else 0


def _load_subject(name: str) -> Subject:
    module, _, attribute = name.partition(":")
    subject = getattr(importlib.import_module(module), attribute)
    if not isinstance(subject, Subject):
        raise SystemExit(f"{name} is {type(subject).__name__}, not m3b.testing.conformance.Subject.")
    return subject


if __name__ == "__main__":
    sys.exit(main())
