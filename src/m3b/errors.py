"""The errors of m3b. Each message says what was found, where, and what to do next."""

from __future__ import annotations

from typing import Literal

Status = Literal[
    "completed", "below_range", "no_dataset", "rejected_data", "undecided", "out_of_budget", "failed", "cancelled"
]
"""The possible ends of a run."""


class M3bError(Exception):
    """Anything that m3b raises on purpose."""


class UsageError(M3bError):
    """The caller asked for something that is not possible in this way; the command line exits with 2."""


class OptionError(UsageError):
    """An option with an invalid value. The message names the option as Python does.

    Args:
        on_command_line: the message with the options and units of the command line.
    """

    def __init__(self, message: str, on_command_line: str) -> None:
        super().__init__(message)
        self.on_command_line = on_command_line


class SettingError(OptionError):
    """A training override that cannot be meant or served.

    Args:
        code: the reason for programs, such as `unknown_network` or `not_served`.
    """

    def __init__(self, message: str, on_command_line: str, code: str) -> None:
        super().__init__(message, on_command_line)
        self.code = code


class OfflineError(UsageError):
    """Something on another machine was asked for, and only this machine is allowed.

    Args:
        host: the other machine, or in words whose address it is.
    """

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


class AnswerError(OSError):
    """A server answered something that its protocol does not know, or more than was asked for."""


class DataError(M3bError):
    """A data card, index, annotation or image that cannot be used.

    Args:
        code: the reason for programs, such as `size_differs`; empty if there is none.
    """

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class SandboxError(M3bError):
    """This machine has no usable sandbox, or the sandbox could not be started."""


class ModelError(M3bError):
    """A delivered model that cannot be loaded, refuses an image, or gives invalid predictions.

    Args:
        code: the reason for programs, such as `volume_for_2d_model`; empty if there is none.
    """

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class IntegrityError(ModelError):
    """A model folder differs from the one that was measured; the message names the changed files."""


class ToolError(Exception):
    """A mistake of the agent in a tool call; the model gets the message, with the remedy, as the tool's result."""


# --- language models ---------------------------------------------------------------------------------------------


class LLMError(M3bError):
    """A language model could not answer. The subclass says whether another try makes sense."""


class Authentication(LLMError):
    """There is no key, or the provider refuses it."""


class Transient(LLMError):
    """A temporary problem: the same request may succeed later.

    Args:
        retry_after: wait in seconds that the provider asked for, if it did.
        kind: `rate limit`, `overload`, `time-out`, `lost connection`, `unreachable` (never connected yet), `garbled
            answer` or `server error`; empty if unknown.
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
    """A run ends before its model is delivered; `status` becomes its `Result.status`.

    Args:
        code: the reason for programs. An agent ends with `gave_up`, `going_in_circles`, `refused`, `rejected`,
            `script_failed` or `unusable_replies`, a budget with `actions`, `tokens`, `cost` or `time`; empty for others.
    """

    status: Status = "failed"

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class RunFailed(RunEnd):
    """A role gave up, got stuck or was rejected too often."""


class BudgetExceeded(RunEnd):
    """The actions, tokens, cost or time of the run are spent."""

    status = "out_of_budget"


class NoDatasetFound(RunEnd):
    """No data card serves the request."""

    status = "no_dataset"


class DataRejected(RunEnd):
    """The data audit found something that no model should be trained on."""

    status = "rejected_data"


class DecisionNeeded(RunEnd):
    """One question about the data is open, and nobody can be asked; the message has it with its candidates."""

    status = "undecided"


class RunCancelled(RunEnd):
    """The user stopped the run."""

    status = "cancelled"


class TrainingDeclined(RunCancelled):
    """The user was asked before training and did not agree; the message says how to continue."""
