"""Beam search over whole reports: findings, then the impression, with limits to the length of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from m3b.training.report.tokenizer import Words

NEVER = float("-inf")


@dataclass
class Rules:
    """What may follow a sequence. Lengths are in tokens and hold for each section by itself."""

    words: Words
    sections: Sequence[str]
    least: int
    most: Mapping[str, int]
    no_repeat: int

    def start(self) -> int:
        return self.words.findings if "findings" in self.sections else self.words.impression

    def apply(self, logs: torch.Tensor, sequences: Sequence[Sequence[int]]) -> None:
        """Sets forbidden continuations (rows of `logs`) to minus infinity."""
        words = self.words
        logs[:, [words.pad, words.unknown, words.findings]] = NEVER
        for row, sequence in enumerate(sequences):
            second = words.impression in sequence
            section = "impression" if second else "findings"
            close = words.impression if not second and "impression" in self.sections else words.end
            begun = max(k for k, token in enumerate(sequence) if token in (words.findings, words.impression)) + 1
            written = sequence[begun:]
            logs[row, words.end if close == words.impression else words.impression] = NEVER
            if len(written) >= max(self.least, int(self.most[section])):
                kept = logs[row, close].clone()
                logs[row] = NEVER
                logs[row, close] = kept if torch.isfinite(kept) else 0.0
                continue
            banned = self._repeats(written)
            if banned:
                logs[row, banned] = NEVER
            if len(written) < self.least:  # where nothing else is left, it ends before its least length
                kept = logs[row, close].clone()
                logs[row, close] = NEVER
                if not torch.isfinite(logs[row]).any():
                    logs[row, close] = kept

    def _repeats(self, written: Sequence[int]) -> list[int]:
        """Tokens that would complete a run of `no_repeat` tokens which the section has already."""
        n = self.no_repeat
        if n < 2 or len(written) < n:
            return []
        tail = list(written[len(written) - n + 1 :])
        return [written[k + n - 1] for k in range(len(written) - n + 1) if list(written[k : k + n - 1]) == tail]


def rules_of(plan: Mapping[str, Any], words: Words) -> Rules:
    """As plan.json's `decode` says."""
    decode = plan["decode"]
    return Rules(words, plan["sections"], int(decode["min_tokens"]), plan["max_tokens"], int(decode["no_repeat"]))


@torch.no_grad()
def search(
    text: Any, memory: torch.Tensor, keep: torch.Tensor, rules: Rules, beams: int = 3, length_penalty: float = 1.0
) -> list[list[int]]:
    """The best sequence for each row of the memory (B, N, width): log probability / length ** penalty. Deterministic."""
    cases, device = memory.shape[0], memory.device
    state = text.begin(memory, keep).pick(torch.arange(cases, device=device).repeat_interleave(beams))
    sequences = [[rules.start()] for _ in range(cases * beams)]
    scores = torch.full((cases, beams), NEVER)
    scores[:, 0] = 0.0
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(cases)]
    for _ in range(sum(rules.most[name] for name in rules.sections) + 2):
        last = torch.tensor([[sequence[-1]] for sequence in sequences], device=device)
        logits, state = text.advance(last, state)
        logs = logits[:, -1].float().log_softmax(dim=-1).cpu()
        rules.apply(logs, sequences)
        total = (scores.view(-1, 1) + logs).view(cases, -1)
        best, place = total.topk(min(2 * beams, total.shape[1]), dim=1)
        rows, sequences, scores = _extend(best, place, logs.shape[1], sequences, finished, rules, length_penalty)
        if all(len(found) >= beams for found in finished) or not torch.isfinite(scores).any():
            break
        state = state.pick(torch.tensor(rows, device=device))
    for case, found in enumerate(finished):
        if not found:
            found.append((0.0, sequences[case * scores.shape[1]]))
    return [max(found, key=lambda item: item[0])[1] for found in finished]


def _extend(
    best: torch.Tensor,
    place: torch.Tensor,
    vocabulary: int,
    sequences: list[list[int]],
    finished: list[list[tuple[float, list[int]]]],
    rules: Rules,
    length_penalty: float,
) -> tuple[list[int], list[list[int]], torch.Tensor]:
    """Rows to go on with, their sequences and scores (cases, beams); what came to its end goes to `finished`."""
    cases, beams = best.shape[0], len(sequences) // best.shape[0]
    rows: list[int] = []
    longer: list[list[int]] = []
    scores = torch.full((cases, beams), NEVER)
    for case in range(cases):
        going = 0
        enough = len(finished[case]) >= beams
        for score, spot in zip(best[case].tolist(), place[case].tolist(), strict=True):
            if score == NEVER or going == beams or enough:
                break
            row, token = case * beams + spot // vocabulary, spot % vocabulary
            whole = [*sequences[row], token]
            if token == rules.words.end:
                finished[case].append((score / len(whole) ** length_penalty, whole))
                continue
            rows.append(row)
            longer.append(whole)
            scores[case, going] = score
            going += 1
        for _ in range(beams - going):  # filled up with a row that can no longer win
            rows.append(case * beams)
            longer.append(sequences[case * beams])
    return rows, longer, scores
