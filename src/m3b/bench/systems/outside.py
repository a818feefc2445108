"""Other people's systems, one small adapter each: how their program is told what to do without anybody at the keyboard.

Command lines as in the programs' own repositories (aider `args.py`, mini-swe-agent `run/mini.py`, smolagents `cli.py`,
aideml `utils/config.yaml`); all of them find the model by variables that `m3b.llm.relay` sets.
"""

from __future__ import annotations

from pathlib import Path

from .base import Job
from .command import PROMPT, Command

RUN_SH = """#!/bin/sh
# aider writes files but runs no commands of its own; this one is run after each of its edits.
[ -f main.sh ] || { echo 'write main.sh: it is run with bash, and its errors come back to you'; exit 1; }
bash main.sh
"""

ABOUT = """
# Running things
You cannot run commands. Write `main.sh`: it is run after your edits and its output comes back.
"""


def _aider_files(work: Path, job: Job) -> None:
    (work / "run.sh").write_text(RUN_SH, encoding="utf-8")
    with (work / PROMPT).open("a", encoding="utf-8") as stream:
        stream.write(ABOUT)


AIDER = Command(
    "aider",
    ("aider", "--model", "{routed_model}", "--message-file", "{prompt_file}", "--yes-always", "--no-git", "--no-stream",
     "--no-pretty", "--no-check-update", "--no-show-model-warnings", "--no-show-release-notes", "--analytics-disable",
     "--map-tokens", "0", "--auto-test", "--test-cmd", "sh run.sh"),
    package="aider-chat",
    before=_aider_files,
)  # fmt: skip

MINI = Command(
    "mini-swe-agent",
    ("mini", "-m", "{routed_model}", "-t", "{prompt}", "-y", "-l", "0", "--exit-immediately", "-o", "mini.traj.json"),
    package="mini-swe-agent",
    env=(
        ("MSWEA_CONFIGURED", "true"),
        ("MSWEA_COST_TRACKING", "ignore_errors"),
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ),
)

SMOLAGENTS = Command(
    "smolagents",
    (
        "smolagent",
        "{prompt}",
        "--model-type",
        "LiteLLMModel",
        "--model-id",
        "{routed_model}",
        "--imports",
        "*",
        "--tools",
    ),
    package="'smolagents[litellm]'",
    env=(("LITELLM_LOCAL_MODEL_COST_MAP", "True"),),
)

AIDE = Command(
    "aide",
    ("aide", "data_dir={data}", "desc_file={prompt_file}", "agent.steps={steps}", "agent.code.model={model}",
     "agent.feedback.model={model}", "agent.k_fold_validation=1", "copy_data=False", "exp_name=m3b"),
    package="aideml",
)  # fmt: skip

REACT = Command("react", ("{python}", "{here}/react.py", "{prompt_file}", "--steps", "{steps}"))
"""Reason and act in one loop, in the manner of MLAgentBench; our own small program, so nothing has to be installed."""

OUTSIDE = {one.name: one for one in (AIDER, MINI, SMOLAGENTS, AIDE, REACT)}
