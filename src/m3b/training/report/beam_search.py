"""Beam search for whole reports: findings, then the impression, with limits to the length of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from m3b.training.report.tokenizer import ReportTokenizer

FORBIDDEN = float("-inf")


@dataclass
class DecodingRules:
    """Allowed continuations of a sequence. Lengths are in tokens and apply to each section separately."""

    words: ReportTokenizer
    sections: Sequence[str]
    min_length: int
    max_lengths: Mapping[str, int]
    no_repeat: int

    def start(self) -> int:
        return self.words.findings if "findings" in self.sections else self.words.impression

    def apply(self, logs: torch.Tensor, sequences: Sequence[Sequence[int]]) -> None:
        """Set forbidden continuations (rows of `logs`) to minus infinity."""
        tokenizer = self.words
        logs[:, [tokenizer.pad, tokenizer.unknown, tokenizer.findings]] = FORBIDDEN
        for row, sequence in enumerate(sequences):
            in_impression = tokenizer.impression in sequence
            section = "impression" if in_impression else "findings"
            closing_token = (
                tokenizer.impression if not in_impression and "impression" in self.sections else tokenizer.end
            )
            section_start = (
                max(k for k, token in enumerate(sequence) if token in (tokenizer.findings, tokenizer.impression)) + 1
            )
            section_tokens = sequence[section_start:]
            logs[row, tokenizer.end if closing_token == tokenizer.impression else tokenizer.impression] = FORBIDDEN
            if len(section_tokens) >= max(self.min_length, int(self.max_lengths[section])):
                closing_logit = logs[row, closing_token].clone()
                logs[row] = FORBIDDEN
                logs[row, closing_token] = closing_logit if torch.isfinite(closing_logit) else 0.0
                continue
            banned = self._repeats(section_tokens)
            if banned:
                logs[row, banned] = FORBIDDEN
            if len(section_tokens) < self.min_length:  # it may end earlier if nothing else is allowed
                closing_logit = logs[row, closing_token].clone()
                logs[row, closing_token] = FORBIDDEN
                if not torch.isfinite(logs[row]).any():
                    logs[row, closing_token] = closing_logit

    def _repeats(self, section_tokens: Sequence[int]) -> list[int]:
        """Return the tokens that would repeat a run of `no_repeat` tokens of the section."""
        n = self.no_repeat
        if n < 2 or len(section_tokens) < n:
            return []
        tail = list(section_tokens[len(section_tokens) - n + 1 :])
        return [
            section_tokens[k + n - 1]
            for k in range(len(section_tokens) - n + 1)
            if list(section_tokens[k : k + n - 1]) == tail
        ]


def make_rules(plan: Mapping[str, Any], tokenizer: ReportTokenizer) -> DecodingRules:
    """Return the rules of plan.json's `decode`."""
    decode = plan["decode"]
    return DecodingRules(
        tokenizer, plan["sections"], int(decode["min_tokens"]), plan["max_tokens"], int(decode["no_repeat"])
    )


@torch.no_grad()
def search_beams(
    text: Any,
    memory: torch.Tensor,
    keep: torch.Tensor,
    rules: DecodingRules,
    beams: int = 3,
    length_penalty: float = 1.0,
) -> list[list[int]]:
    """Return the best sequence for each row of the memory (B, N, width) by log probability / length ** penalty. Deterministic."""
    cases, device = memory.shape[0], memory.device
    state = text.begin(memory, keep).select_rows(torch.arange(cases, device=device).repeat_interleave(beams))
    sequences = [[rules.start()] for _ in range(cases * beams)]
    scores = torch.full((cases, beams), FORBIDDEN)
    scores[:, 0] = 0.0
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(cases)]
    for _ in range(sum(rules.max_lengths[name] for name in rules.sections) + 2):
        last_tokens = torch.tensor([[sequence[-1]] for sequence in sequences], device=device)
        logits, state = text.advance(last_tokens, state)
        logs = logits[:, -1].float().log_softmax(dim=-1).cpu()
        rules.apply(logs, sequences)
        total = (scores.view(-1, 1) + logs).view(cases, -1)
        best, indices = total.topk(min(2 * beams, total.shape[1]), dim=1)
        rows, sequences, scores = _extend(best, indices, logs.shape[1], sequences, finished, rules, length_penalty)
        if all(len(hypotheses) >= beams for hypotheses in finished) or not torch.isfinite(scores).any():
            break
        state = state.select_rows(torch.tensor(rows, device=device))
    for case, hypotheses in enumerate(finished):
        if not hypotheses:
            hypotheses.append((0.0, sequences[case * scores.shape[1]]))
    return [max(hypotheses, key=lambda item: item[0])[1] for hypotheses in finished]


def _extend(
    best: torch.Tensor,
    indices: torch.Tensor,
    vocabulary: int,
    sequences: list[list[int]],
    finished: list[list[tuple[float, list[int]]]],
    rules: DecodingRules,
    length_penalty: float,
) -> tuple[list[int], list[list[int]], torch.Tensor]:
    """Return the rows to continue, their sequences and scores (cases, beams); complete sequences are added to `finished`."""
    cases, beams = best.shape[0], len(sequences) // best.shape[0]
    rows: list[int] = []
    extended: list[list[int]] = []
    scores = torch.full((cases, beams), FORBIDDEN)
    for case in range(cases):
        active = 0
        is_finished = len(finished[case]) >= beams
        for score, index in zip(best[case].tolist(), indices[case].tolist(), strict=True):
            if score == FORBIDDEN or active == beams or is_finished:
                break
            row, token = case * beams + index // vocabulary, index % vocabulary
            sequence_so_far = [*sequences[row], token]
            if token == rules.words.end:
                finished[case].append((score / len(sequence_so_far) ** length_penalty, sequence_so_far))
                continue
            rows.append(row)
            extended.append(sequence_so_far)
            scores[case, active] = score
            active += 1
        for _ in range(beams - active):  # padding with a row that cannot win
            rows.append(case * beams)
            extended.append(sequences[case * beams])
    return rows, extended, scores
