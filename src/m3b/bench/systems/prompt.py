"""The combined single-agent prompt: what every outside system is told, from the same parts as m3b's own agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from m3b.agents import prompts
from m3b.agents.roles import BUILTIN_ROLES
from m3b.data.cards import Card, absent_told

PROMPT_ENDING = """# How this run differs
You have a shell of your own instead of the tools named above: where a tool is mentioned, use the shell. Nobody answers
questions. Do all four parts in one go:
1. Choose the data set that serves the request. If none does, write the reason to `DECLINED.txt` and stop.
2. Write `Datapath/train.json`, `Datapath/test.json` and `Datapath/label_dict.json` (see `resources/indexes/`), split by patient.
3. Copy the fitting template from `resources/templates/` and set it up.
4. Train, then export: the deliverable is the folder `Deliver/` in the working directory, with `predict.py`, `config.json`
   and weights as safetensors. Only that folder is judged, on cases that you have not been given.
Limits: {actions} requests to the language model{tokens}{wall}; plan for {minutes:g} minutes of training. No network but the model's.
"""


def build_prompt(
    folder: Path, request: str, cards: Sequence[Card], limits: Mapping[str, object], *, examples: bool = True
) -> str:
    """The whole prompt as one text.

    Args:
        folder: the prompts.
        limits: `max_actions`, `max_tokens`, `max_wall` (s) and `train_minutes`, as options of m3b.
    """
    local_cards = [card for card in cards if card.path]
    tokens = f", {limits['max_tokens']} tokens" if limits.get("max_tokens") else ""
    wall = f", {float(str(limits['max_wall'])) / 60:.0f} minutes in all" if limits.get("max_wall") else ""
    minutes = float(str(limits.get("train_minutes", 5.0)))
    parts = [
        prompts.build_system_prompt(folder, BUILTIN_ROLES, with_examples=examples),
        PROMPT_ENDING.format(actions=limits.get("max_actions", 100), tokens=tokens, wall=wall, minutes=minutes),
        f"# Request of the user\n{request.strip()}",
        "# Data on this machine",
        *(card.text() for card in local_cards),
        absent_told(cards),
    ]
    return "\n\n".join(parts) + "\n"
