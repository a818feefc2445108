"""Test tools for m3b and for packages that build on it; a public and stable interface.

- `ScriptedModel` is a language model that answers with the steps of a test: see `m3b.testing.scripted_model`.
- `RecordingLLM` records a conversation with a model. `ReplayLLM` replays the recording and fails with a diff if the
  conversation departs from it (`RecordingMismatch`).
- `m3b.testing.conformance` tests that a provider behaves as all providers of m3b do.
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
