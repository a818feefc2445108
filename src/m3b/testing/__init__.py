"""What tests of m3b, and of what is built on it, are made with; public, and kept stable.

- `ScriptedModel` is a model that says what a test wrote for it: `m3b.testing.scripted_model` has the steps.
- `RecordingLLM` writes down what is said to a model, `ReplayLLM` says it again and fails with a diff where the conversation
  departs from the recording (`RecordingMismatch`).
- `m3b.testing.conformance` holds a provider to what every provider of m3b does.
"""

from m3b.llm.recording import RecordingLLM, RecordingMismatch, ReplayLLM
from m3b.testing.scripted_model import (
    ScriptedModel,
    ScriptExhausted,
    call,
    combine_calls,
    llm_error,
    malformed_call,
    nonsense_reply,
    overflow_error,
    refusal_reply,
    say,
    transient_error,
    truncated_reply,
    unknown_tool,
)

__all__ = [
    "RecordingMismatch",
    "RecordingLLM",
    "ReplayLLM",
    "ScriptExhausted",
    "ScriptedModel",
    "combine_calls",
    "malformed_call",
    "call",
    "truncated_reply",
    "llm_error",
    "nonsense_reply",
    "overflow_error",
    "refusal_reply",
    "say",
    "transient_error",
    "unknown_tool",
]
