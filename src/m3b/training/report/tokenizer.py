"""Tokenizer of reports: a byte-level BPE, trained on the training reports or taken from a local language model.

Byte-level, so that every text in every script survives encoding; numbers and units stay as written.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SECTIONS = ("findings", "impression")
PAD, UNKNOWN, FINDINGS, IMPRESSION, END = "[PAD]", "[UNK]", "[FINDINGS]", "[IMPRESSION]", "[EOS]"
SPECIAL_TOKENS = (PAD, UNKNOWN, FINDINGS, IMPRESSION, END)
IGNORED_TARGET = -100
"""Target without a loss."""


def clean_text(text: Any) -> str:
    """Return one line of composed Unicode; "" if it is no text."""
    return " ".join(unicodedata.normalize("NFC", text).split()) if isinstance(text, str) else ""


class ReportTokenizer:
    """A tokenizer (of the `tokenizers` library) with the five marks `SPECIAL_TOKENS`."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        missing = [mark for mark in SPECIAL_TOKENS if tokenizer.token_to_id(mark) is None]
        if missing:
            tokenizer.add_special_tokens(missing)
        self.pad, self.unknown, self.findings, self.impression, self.end = (
            int(tokenizer.token_to_id(mark)) for mark in SPECIAL_TOKENS
        )
        self.marks = frozenset((self.pad, self.unknown, self.findings, self.impression, self.end))

    def __len__(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    @classmethod
    def load(cls, file: str | Path) -> ReportTokenizer:
        """Load a tokenizer.json."""
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(file)))

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int) -> ReportTokenizer:
        """Train a byte-level BPE; pieces that occur only once are not learnt."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            min_frequency=2,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    @classmethod
    def from_model_folder(cls, folder: str | Path) -> ReportTokenizer:
        """Return the tokenizer of a local model folder."""
        from transformers import AutoTokenizer

        return cls(AutoTokenizer.from_pretrained(str(folder), local_files_only=True).backend_tokenizer)

    def save(self, file: str | Path) -> None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save(str(file))

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a cleaned text; marks that the text contains are removed."""
        ids = self.tokenizer.encode(clean_text(text), add_special_tokens=False).ids
        return [token for token in ids if token not in self.marks]

    def decode(self, tokens: Sequence[int]) -> str:
        return clean_text(self.tokenizer.decode([token for token in tokens if token not in self.marks]))

    def sequence(self, report: dict[str, str], limits: dict[str, int]) -> tuple[list[int], list[int]]:
        """Return inputs and targets of one report: [FINDINGS] text [IMPRESSION] text [EOS], with its existing sections.

        A missing section is neither input nor target: without an impression, what follows the findings is not learnt. A section longer
        than its limit is cut, and its end is not learnt.
        """
        parts = {name: self.encode(report.get(name, "")) for name in SECTIONS}
        marks = {"findings": self.findings, "impression": self.impression}
        inputs: list[int] = []
        targets: list[int] = []
        for name in SECTIONS:
            tokens = parts[name][: limits[name]]
            if not tokens:
                continue
            if targets:
                targets[-1] = marks[name] if targets[-1] != IGNORED_TARGET else IGNORED_TARGET
            is_complete = len(parts[name]) <= limits[name]
            inputs += [marks[name], *tokens]
            targets += [*tokens, self.end if is_complete else IGNORED_TARGET]
        if parts["findings"] and not parts["impression"] and limits["impression"]:
            targets[-1] = IGNORED_TARGET
        return inputs, targets

    def split(self, tokens: Sequence[int]) -> dict[str, str]:
        """Return the sections of a written sequence, "" for missing ones."""
        section_tokens: dict[str, list[int]] = {name: [] for name in SECTIONS}
        current = "findings"
        for token in tokens:
            if token in (self.findings, self.impression):
                current = "findings" if token == self.findings else "impression"
            elif token == self.end:
                break
            else:
                section_tokens[current].append(token)
        return {name: self.decode(part) for name, part in section_tokens.items()}
