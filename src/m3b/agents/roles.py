"""The roles of the agents and their tools."""

from __future__ import annotations

from dataclasses import dataclass

READ_TOOLS = ("list_files", "read_files")
PREVIEW_TOOLS = ("preview_dirs", "preview_files")
WRITE_TOOLS = ("copy_files", "write_files", "edit_files")


@dataclass(frozen=True)
class FailureMessage:
    """What a person is told if a role fails.

    Args:
        summary: sentence on what was not done, without a full stop.
        advice: what a person can do about it.
    """

    summary: str = "The work was not done"
    advice: str = ""


DEFAULT_FAILURE_MESSAGE = FailureMessage()


@dataclass(frozen=True)
class Role:
    """The role of an agent.

    Args:
        name: as in prompts, options and reports: lower-case letters, digits and underscores.
        title: as people read it.
        tools: names of the tools that it may call.
        failure_message: what a person is told if the role fails.
        prompt: the system prompt, if no prompt file has the name of the role.
        reflection: sent once if a check accepts with warnings and there is no prompt file; '' for none.
    """

    name: str
    title: str
    tools: tuple[str, ...] = READ_TOOLS
    failure_message: FailureMessage = DEFAULT_FAILURE_MESSAGE
    prompt: str = ""
    reflection: str = ""


_STRONGER_MODEL_HINT = "a more capable language model may get further"
TASK_MANAGER = Role(
    "task_manager",
    "Task Manager",
    (*READ_TOOLS, *PREVIEW_TOOLS),
    FailureMessage(
        "No data set was chosen for the request",
        f"Name the data set, the finding and the kind of answer in the request; {_STRONGER_MODEL_HINT}.",
    ),
)
DATA_ENGINEER = Role(
    "data_engineer",
    "Data Engineer",
    (*READ_TOOLS, *PREVIEW_TOOLS, *WRITE_TOOLS, "run_script"),
    FailureMessage(
        "The data could not be made into an index of cases",
        "Say in a README in the data folder, or in a data card, which files are the images and where their labels are; "
        f"{_STRONGER_MODEL_HINT}.",
    ),
)
MODULE_ARCHITECT = Role(
    "module_architect",
    "Module Architect",
    (*READ_TOOLS, *WRITE_TOOLS, "run_script"),
    FailureMessage(
        "No training project was set up that runs",
        f"The timeline in report.html has every attempt; {_STRONGER_MODEL_HINT}.",
    ),
)
MODEL_TRAINER = Role(
    "model_trainer",
    "Model Trainer",
    (*READ_TOOLS, *WRITE_TOOLS, "run_script"),
    FailureMessage(
        "No model was trained that can be delivered",
        f"The timeline in report.html has every attempt; {_STRONGER_MODEL_HINT}.",
    ),
)

BUILTIN_ROLES = (TASK_MANAGER, DATA_ENGINEER, MODULE_ARCHITECT, MODEL_TRAINER)
"""m3b's own roles in the order of their work."""
ROLE_NAMES = tuple(role.name for role in BUILTIN_ROLES)

SINGLE_AGENT = Role("single", "Single Agent", (*READ_TOOLS, *PREVIEW_TOOLS, *WRITE_TOOLS, "run_script"))
"""All four roles in one conversation: the paper's single-agent ablation."""
