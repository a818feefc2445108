"""What tests of m3b, and of what is built on it, are made with; public, and kept stable.

- `Scripted` is a model that says what a test wrote for it: `m3b.testing.scripted` has the steps.
- `Recorder` writes down what is said to a model, `Replay` says it again and fails with a diff where the conversation
  departs from the recording (`Departed`).
- `m3b.testing.conformance` holds a provider to what every provider of m3b does.
"""

from m3b.llm.recording import Departed, Recorder, Replay

from .scripted import (
    Scripted,
    ScriptExhausted,
    both,
    broken_json,
    call,
    cut,
    fault,
    nonsense,
    overflow,
    refusal,
    say,
    transient,
    unknown_tool,
)

__all__ = [
    "Departed",
    "Recorder",
    "Replay",
    "ScriptExhausted",
    "Scripted",
    "both",
    "broken_json",
    "call",
    "cut",
    "fault",
    "nonsense",
    "overflow",
    "refusal",
    "say",
    "transient",
    "unknown_tool",
]
