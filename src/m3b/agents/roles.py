"""The roles: who does what, with which tools."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    name: str
    title: str
    artifact: str
    tools: tuple[str, ...]


TASK_MANAGER = Role("task_manager", "Task Manager", "selection", (*READ, *LOOK))
DATA_ENGINEER = Role("data_engineer", "Data Engineer", "index", (*READ, *LOOK, *WRITE, "run_script"))
MODULE_ARCHITECT = Role("module_architect", "Module Architect", "module", (*READ, *WRITE, "run_script"))
MODEL_TRAINER = Role("model_trainer", "Model Trainer", "model", (*READ, *WRITE, "run_script"))

STAGES = (TASK_MANAGER, DATA_ENGINEER, MODULE_ARCHITECT, MODEL_TRAINER)
"""In the order of their work."""

SINGLE = Role("single", "Single Agent", "model", (*READ, *LOOK, *WRITE, "run_script"))
"""All four in one conversation: the paper's single-agent ablation."""
