"""Train agents: expert trajectories, verifiable rewards, supervised and reinforced training of small local models.

The imports here need neither TRL nor peft; training does (`pip install 'm3b[train-agents]'`).
"""

from __future__ import annotations

from m3b.teaching.chats import ChatRecord, read_chats
from m3b.teaching.experts import Expert
from m3b.teaching.reward import EpisodeOutcome, RewardBreakdown, RewardWeights

__all__ = ["ChatRecord", "Expert", "EpisodeOutcome", "RewardWeights", "RewardBreakdown", "read_chats"]
