"""Adapters for external systems: how each program is run without user input.

They find the model by the environment variables of `m3b.bench.relay`. Some get the name of an unknown model, because a
known name would make them use the address or protocol of its provider; aider gets the real name, because it chooses its
edit format by it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from m3b.bench.relay import MODEL_ROUTE
from m3b.bench.systems.base import CellJob
from m3b.bench.systems.command import CommandSystem

RUN_SH = """#!/bin/sh
# aider writes files but runs no commands of its own; this one is run after each of its edits.
[ -f main.sh ] || { echo 'write main.sh: it is run with bash, and its errors come back to you'; exit 1; }
bash main.sh
"""

AIDER_ABOUT = """
# Running things
You cannot run commands. Write `main.sh`: it is run with bash after your edits. Its output comes back to you, and you go on, if
it ends with an error; end it with `exit 1` for as long as you want to see what it prints. A run without error is the end.
"""

PYTHON_ABOUT = """
# Running things
Your code is run by a Python of its own that may lack what is named above. Start scripts with
`subprocess.run(["python", ...])`: that `python` has all of it.
"""

AIDE_ABOUT = (
    PYTHON_ABOUT
    + """It is run in a folder of its own: `data/`, `resources/` and `PROMPT.md` are at `../../data` and so on. Write `Deliver/`,
`Datapath/` and `DECLINED.txt` to `../../` too. All your scripts share them: replace a `Deliver/` only by a better one.
"""
)

LOCAL_COST_MAP = ("LITELLM_LOCAL_MODEL_COST_MAP", "True")
COMMAND_TIMEOUT_S = 3600
"""Maximum time for one command of an agent in seconds, as in `react`; the default of mini-swe-agent is 30 s."""


def _write_aider_files(work_folder: Path, job: CellJob) -> None:
    (work_folder / "run.sh").write_text(RUN_SH, encoding="utf-8")


AIDER = CommandSystem(
    "aider",
    ("aider", "--model", "{routed_model}", "--message-file", "{prompt_file}", "--yes-always", "--no-git", "--no-stream",
     "--no-pretty", "--no-check-update", "--no-show-model-warnings", "--no-show-release-notes", "--analytics-disable",
     "--no-suggest-shell-commands", "--no-detect-urls", "--map-tokens", "0", "--max-chat-history-tokens", "100000",
     "--auto-test", "--test-cmd", "sh run.sh"),
    package="aider-chat",
    env=(LOCAL_COST_MAP,),
    prompt_addition=AIDER_ABOUT,
    write_files=_write_aider_files,
    uses_launcher=True,
    is_resumable=False,
)  # fmt: skip

MINI_SWE_AGENT = CommandSystem(
    "mini-swe-agent",
    ("mini", "-m", MODEL_ROUTE + "relay", "-t", "{prompt}", "-y", "-l", "0", "--exit-immediately", "-o", "mini.traj.json",
     "-c", "mini.yaml", "-c", f"environment.timeout={COMMAND_TIMEOUT_S}"),
    package="mini-swe-agent 'litellm[mcp]'",
    env=(
        ("MSWEA_CONFIGURED", "true"),
        ("MSWEA_COST_TRACKING", "ignore_errors"),
        ("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT", "2"),
        LOCAL_COST_MAP,
    ),
    is_resumable=False,
)  # fmt: skip

SMOLAGENTS = CommandSystem(
    "smolagents",
    ("smolagent", "{prompt}", "--model-type", "LiteLLMModel", "--model-id", MODEL_ROUTE + "relay", "--imports", "*", "--tools"),
    package="'smolagents[litellm]'",
    env=(LOCAL_COST_MAP,),
    prompt_addition=PYTHON_ABOUT,
    uses_launcher=True,
    is_resumable=False,
)  # fmt: skip

TREE_SEARCH_ARGUMENTS = (
    "data_dir={data}", "desc_file={prompt_file}", "agent.steps={half}", "agent.code.model=relay",
    "agent.feedback.model=relay", "agent.k_fold_validation=1", "generate_report=False", "copy_data=False",
    "preprocess_data=False", "exp_name=m3b",
)  # fmt: skip
"""No report at the end, because it would use another model. Each step sends two requests, hence `{half}`."""

AIDE = CommandSystem(
    "aide",
    ("aide", *TREE_SEARCH_ARGUMENTS),
    package="aideml",
    prompt_addition=AIDE_ABOUT,
    uses_launcher=True,
    is_resumable=False,
)

NO_KNOWLEDGE_BASE = (
    "agent.knowledge_base.model=relay", "agent.enable_monai_knowledge_base=False", "agent.step_plan.proposal={half}",
    "agent.step_plan.tuning=0", "agent.step_plan.hpo=0",
)  # fmt: skip
"""The packages contain neither the knowledge base, which needs embeddings too, nor the texts without which tuning crashes."""

CREA = CommandSystem(
    "crea",
    ("crea", *TREE_SEARCH_ARGUMENTS, *NO_KNOWLEDGE_BASE),
    package="crea-med",
    env=(("ANONYMIZED_TELEMETRY", "False"),),
    prompt_addition=AIDE_ABOUT,
    uses_launcher=True,
    is_resumable=False,
)

MEDDLE = CommandSystem(
    "meddle",
    ("meddle", *TREE_SEARCH_ARGUMENTS, *NO_KNOWLEDGE_BASE),
    package="meddle",
    env=(("ANONYMIZED_TELEMETRY", "False"),),
    prompt_addition=AIDE_ABOUT,
    uses_launcher=True,
    is_resumable=False,
)

MLZERO_ABOUT = """
# Running things
`python` has what is named above. The Python of mlzero, with AutoGluon if it is installed there, is `$MLZERO_PYTHON`.
"""
MLZERO_CONFIG = "mlzero.yaml"
MLZERO_AGENTS = ("llm", "coder", "executer", "reader", "error_analyzer", "retriever", "reranker",
                 "description_file_retriever", "task_descriptor", "tool_selector")  # fmt: skip
MAX_MLZERO_PROMPT = 1_000_000
"""Characters of the prompt that mlzero passes on; its default of 2,048 would cut the prompt."""


def _write_mlzero_files(work_folder: Path, job: CellJob) -> None:
    provider = MODEL_ROUTE.removesuffix("/")
    settings: dict[str, Any] = {name: {"provider": provider, "model": "relay"} for name in MLZERO_AGENTS}
    settings |= {"max_user_input_length": MAX_MLZERO_PROMPT, "per_execution_timeout": COMMAND_TIMEOUT_S}
    (work_folder / MLZERO_CONFIG).write_text(json.dumps(settings, indent=1), encoding="utf-8")


MLZERO = CommandSystem(
    "mlzero",
    ("mlzero", "-i", "{data}", "-o", "mlzero", "-c", MLZERO_CONFIG, "-n", "{steps}", "-t", "{prompt}"),
    package="autogluon.assistant",
    env=(("HF_HUB_OFFLINE", "1"),),
    prompt_addition=MLZERO_ABOUT,
    write_files=_write_mlzero_files,
    uses_launcher=True,
    is_resumable=False,
)
"""Its tutorials are found by a model from a hub, which no sandbox reaches: it works without them."""

REACT = CommandSystem(
    "react", ("{python}", "{here}/react_agent.py", "{prompt_file}", "--steps", "{steps}"), is_resumable=False
)
"""Reason and act in one loop, as in MLAgentBench; a small program of m3b, so nothing must be installed."""

AUTORESEARCH = CommandSystem(
    "autoresearch",
    ("{python}", "{here}/autoresearch_agent.py", "{prompt_file}", "--minutes", "{minutes}"),
    deliverable="best/Deliver",
    is_resumable=True,
)
"""Experiments of equal length, kept only if the validation figure rises; a small program of m3b too."""

EXTERNAL_SYSTEMS = {
    system.name: system
    for system in (AIDER, MINI_SWE_AGENT, SMOLAGENTS, AIDE, CREA, MEDDLE, MLZERO, REACT, AUTORESEARCH)
}
