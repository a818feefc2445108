"""Training cases of the few-shot engine with their labels; and draws of k examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from m3b.training.detection.fewshot.case_cache import (
    ABNORMAL,
    CACHE_FOLDER,
    FEATURE_BATCH,
    UNREADABLE,
    CaseCache,
    split_rows,
)
from m3b.training.detection.fewshot.model import NetworkInput
from m3b.training.detection.index import hold_out, patient_of, read_index

MAX_MEASURED_CASES = 500
"""Labelled cases outside of a draw that its detectors are measured on, at most: the AUROC has a standard error of about 0.02 then."""
MIN_CASES_TO_SPLIT = 4
"""Minimum cases of each state to hold a validation part out."""


class PictureCases(Dataset[dict[str, torch.Tensor]]):
    """Readable cases of records; items {"pixel_values" (3, S, S), "labels" (1,) or, with masks, (1, S, S)}."""

    def __init__(
        self, records: Sequence[dict[str, Any]], plan: Mapping[str, Any], base: str = ".", folder: Path = CACHE_FOLDER
    ) -> None:
        cache = CaseCache(records, plan, base, folder)
        self.unreadable = [cache.errors[row] for row in sorted(cache.errors)]
        rows = np.flatnonzero(cache.states != UNREADABLE).tolist()
        if not rows:
            raise SystemExit(f"no training case can be read; first: {(self.unreadable or ['none'])[0]}")
        self._select(cache, rows)

    def _select(self, cache: CaseCache, cache_rows: list[int]) -> None:
        self.cache, self.cache_rows, self.masked = cache, cache_rows, cache.masked
        self.records = [cache.records[row] for row in cache_rows]
        self.abnormal = torch.from_numpy(cache.states[cache_rows] == ABNORMAL)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        is_ordinary = self.cache.plan["engine"] == "image"
        pictures = self.small_pictures([item]) if is_ordinary else self.cache.pictures(self._cache_rows([item]))
        return {"pixel_values": pictures[0], "labels": self.labels([item])[0]}

    def people(self) -> list[str]:
        """Return the patient of each case."""
        return [patient_of(record) for record in self.records]

    def part(self, rows: Sequence[int]) -> PictureCases:
        """Return the cases of these rows."""
        subset = object.__new__(PictureCases)
        subset.unreadable = []
        subset._select(self.cache, self._cache_rows(rows))
        return subset

    def _cache_rows(self, rows: Sequence[int]) -> list[int]:
        return [self.cache_rows[row] for row in rows]

    def labels(self, rows: Sequence[int]) -> torch.Tensor:
        """Return (B, 1) states, or (B, 1, S, S) masks, as 0 or 1, or IGNORE."""
        return self.cache.labels(self._cache_rows(rows))

    def masks(self) -> Iterator[np.ndarray]:
        """Yield the (S, S) mask of each case: 0, 1 or IGNORE."""
        return (self.labels([row])[0, 0].numpy().astype(np.uint8) for row in range(len(self)))

    def inputs(self, rows: Sequence[int]) -> NetworkInput:
        """Return what the few-shot detector takes: frozen features, with the published protocol pictures."""
        cache_rows = self._cache_rows(rows)
        is_paper = self.cache.plan["fewshot"]["protocol"] == "paper"
        return self.cache.pictures(cache_rows) if is_paper else self.cache.features(cache_rows)

    def compute_features(self, rows: Sequence[int]) -> None:
        """Compute the frozen features of these rows that are not on disk yet."""
        self.cache.compute_features(self._cache_rows(rows))

    def input_batches(self, size: int = FEATURE_BATCH) -> Iterator[NetworkInput]:
        """Yield the inputs of all cases, in order."""
        return (self.inputs(rows) for rows in split_rows(range(len(self)), size))

    def small_pictures(self, rows: Sequence[int]) -> torch.Tensor:
        """Return (B, 3, s, s), what the ordinary network takes."""
        return self.cache.small_pictures(self._cache_rows(rows))

    def small_batches(self, size: int = 32) -> Iterator[torch.Tensor]:
        """Yield the small pictures of all cases, in order."""
        return (self.small_pictures(rows) for rows in split_rows(range(len(self)), size))


def draw_examples(cases: PictureCases, shots: int | None, seed: int) -> list[int]:
    """Return rows of k normal and k abnormal cases, at most one per patient while there are enough; all if `shots` is None.

    Raises:
        SystemExit: fewer cases of a state than requested; a set without abnormal cases is normal-only and needs none.
    """
    if shots is None:
        return list(range(len(cases)))
    rng = np.random.default_rng(seed)
    examples: list[int] = []
    for state, name in ((False, "normal"), (True, "abnormal")):
        rows = [row for row in range(len(cases)) if bool(cases.abnormal[row]) == state]
        if len(rows) < shots and (rows or not state):
            raise SystemExit(
                f"fewshot.shots is {shots}, and train.json has {len(rows)} readable {name} cases: set fewshot.shots={len(rows)} "
                "or less, or null for all"
            )
        rng.shuffle(rows)
        first_rows: dict[str, int] = {}
        for row in rows:
            first_rows.setdefault(patient_of(cases.records[row]), row)
        one_per_patient = list(first_rows.values())
        examples += (one_per_patient + [row for row in rows if row not in set(one_per_patient)])[:shots] if rows else []
    return examples


def draw_all(plan: Mapping[str, Any], cases: PictureCases) -> tuple[list[list[int]], list[int]]:
    """Return the rows of the examples of each draw, and the rows on which detectors are measured outside of their draw."""
    shots, seed = plan["fewshot"]["shots"], int(plan["seed"])
    if shots is None:
        return [list(range(len(cases)))], []
    draws = int(plan["fewshot"]["draws"]) if shots else 0
    rows = np.random.default_rng(seed).permutation(len(cases))
    of_states = [rows[cases.abnormal.numpy()[rows] == state][: MAX_MEASURED_CASES // 2] for state in (False, True)]
    measured = np.sort(np.concatenate(of_states)).tolist()
    return [draw_examples(cases, shots, seed + number) for number in range(draws)], measured


def count_used_cases(settings: Mapping[str, Any], case_count: int) -> int:
    """Return how many of the cases the draws of plan.json's `fewshot` use at most."""
    if settings["shots"] is None:
        return case_count
    return min(case_count, MAX_MEASURED_CASES + 2 * int(settings["shots"]) * int(settings["draws"]))


def split_validation(cases: PictureCases, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return training and validation rows, patients separate; no validation rows if there are too few cases."""
    abnormal_count = int(cases.abnormal.sum())
    if min(abnormal_count, len(cases) - abnormal_count) < MIN_CASES_TO_SPLIT:
        return list(range(len(cases))), []
    columns = np.stack([cases.abnormal.numpy(), ~cases.abnormal.numpy()], axis=1).astype(float)
    is_validation = hold_out(cases.records, columns, share, seed)
    train, valid = np.flatnonzero(~is_validation).tolist(), np.flatnonzero(is_validation).tolist()
    states = {bool(cases.abnormal[row]) for row in valid}
    return (train, valid) if len(states) == 2 else (list(range(len(cases))), [])


def build_fewshot_datasets(plan: Mapping[str, Any]) -> tuple[PictureCases, PictureCases]:
    """Return training and validation part of train.json; the same cases if they are too few to split."""
    cases = PictureCases(read_index(), plan)
    train, valid = split_validation(cases, float(plan["validation_share"]), int(plan["seed"]))
    return cases.part(train), cases.part(valid or train)
