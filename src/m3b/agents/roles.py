"""The roles: who does what, with which tools."""

from __future__ import annotations

from dataclasses import dataclass

from m3b.agents.reasons import Duty

READ = ("list_files", "read_files")
LOOK = ("preview_dirs", "preview_files")
WRITE = ("copy_files", "write_files", "edit_files")


@dataclass(frozen=True)
class Role:
    """One agent.

    Args:
        name: as in prompts, options and reports.
        title: as people read it.
        artifact: what it hands over.
        tools: what it may call.
        duty: what a person is told where it fails.
    """

    name: str
    title: str
    artifact: str
    tools: tuple[str, ...]
    duty: Duty


_STRONGER = "a more capable language model may get further"
TASK_MANAGER = Role(
    "task_manager",
    "Task Manager",
    "selection",
    (*READ, *LOOK),
    Duty(
        "No data set was chosen for the request",
        f"Name the data set, the finding and the kind of answer in the request; {_STRONGER}.",
    ),
)
DATA_ENGINEER = Role(
    "data_engineer",
    "Data Engineer",
    "index",
    (*READ, *LOOK, *WRITE, "run_script"),
    Duty(
        "The data could not be made into an index of cases",
        "Say in a README in the data folder, or in a data card, which files are the images and where their labels are; "
        f"{_STRONGER}.",
    ),
)
MODULE_ARCHITECT = Role(
    "module_architect",
    "Module Architect",
    "module",
    (*READ, *WRITE, "run_script"),
    Duty("No training project was set up that runs", f"The timeline in report.html has every attempt; {_STRONGER}."),
)
MODEL_TRAINER = Role(
    "model_trainer",
    "Model Trainer",
    "model",
    (*READ, *WRITE, "run_script"),
    Duty("No model was trained that can be delivered", f"The timeline in report.html has every attempt; {_STRONGER}."),
)

STAGES = (TASK_MANAGER, DATA_ENGINEER, MODULE_ARCHITECT, MODEL_TRAINER)
"""In the order of their work."""

SINGLE = Role("single", "Single Agent", "model", (*READ, *LOOK, *WRITE, "run_script"), Duty())
"""All four in one conversation: the paper's single-agent ablation."""
