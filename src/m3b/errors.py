"""The error family. Each message says what was found, where, and what to do next."""

from __future__ import annotations

from typing import Literal

Status = Literal["completed", "below_range", "no_dataset", "rejected_data", "out_of_budget", "failed", "cancelled"]
"""How a run can end."""


class M3bError(Exception):
    """Anything that m3b raises on purpose."""


class UsageError(M3bError):
    """The caller asked for something that cannot be done as asked; the command line exits with 2."""


class OptionError(UsageError):
    """An option out of range, or no choice of it. The message names it as Python does.

    Args:
        on_command_line: the same with the command line's options and units.
    """

    def __init__(self, message: str, on_command_line: str) -> None:
        super().__init__(message)
        self.on_command_line = on_command_line


class DataError(M3bError):
    """A data card, index or image that cannot be used."""


class SandboxError(M3bError):
    """No sandbox that this machine allows, or one that would not start."""


class ModelError(M3bError):
    """A delivered model that cannot be loaded or that predicts nonsense."""


class IntegrityError(ModelError):
    """A model folder that is not the one which was measured; the message names the files that differ."""


class ToolError(Exception):
    """The agent's fault: goes back to the model as the tool's result, naming the fault and the remedy."""


# --- language models ---------------------------------------------------------------------------------------------


class LLMError(M3bError):
    """A language model could not answer. The subclass says whether trying again makes sense."""


class Authentication(LLMError):
    """No key, or one that the provider refuses."""


class Transient(LLMError):
    """Trouble that passes: the same request may succeed later.

    `retry_after` is the wait in seconds that the provider asked for, if it did. `kind` says what the trouble is: `rate
    limit`, `overload`, `time-out`, `lost connection`, `unreachable` (never yet connected), `garbled answer` or `server
    error`; empty where nobody knows.
    """

    def __init__(self, message: str, retry_after: float | None = None, kind: str = "") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.kind = kind


class ContextOverflow(LLMError):
    """The request is longer than the model's window."""


class BadRequest(LLMError):
    """The provider will never accept this request."""


class Refused(BadRequest):
    """The provider's content filter declined the conversation before any model answered."""


# --- ends of a run -----------------------------------------------------------------------------------------------


class RunEnd(Exception):
    """A run that is over before its model is delivered; `status` is the `Result.status` that it ends with."""

    status: Status = "failed"


class RunFailed(RunEnd):
    """A role gave up, got stuck or was rejected too often."""


class BudgetExceeded(RunEnd):
    """The actions, tokens, money or time of the run are spent."""

    status = "out_of_budget"


class NoDatasetFound(RunEnd):
    """No data card serves the request."""

    status = "no_dataset"


class DataRejected(RunEnd):
    """The data audit found something that no model should be trained on."""

    status = "rejected_data"


class RunCancelled(RunEnd):
    """The user stopped the run."""

    status = "cancelled"


class TrainingDeclined(RunCancelled):
    """The user was asked before training, and did not agree; the message says how to go on."""
