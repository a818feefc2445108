"""Opening the images of an index once each, in parallel processes, until the time is over."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from m3b.data.index import Index
from m3b.data.records import NO_VALUES, Record
from m3b.dataset.audit.base import is_derived
from m3b.dataset.audit.probes import ImageProbe, ProbeScope, make_scope, probe_record, unit_keys
from m3b.dataset.similarity import ComparedSample
from m3b.errors import DataError
from m3b.isolation.untrusted import announce_opening, should_open_one_by_one
from m3b.isolation.untrusted.file_watch import mute_watches

ProgressCallback = Callable[[int, int], None]
Probes = dict[str, ImageProbe]
MAX_WORKERS, THREADS = 8, 4
MAX_HELD_BYTES = 512 << 20
"""Bytes of pixels that may be open at the same time; a single larger image is opened alone."""
MAX_BATCH, MAX_BATCH_BYTES = 8, 16 << 20
"""Cases, and bytes of pixels, that a worker opens in one go."""
PROGRESS_STEP = 50


def open_images(
    index: Index,
    work: Path,
    excluded: Collection[str],
    deadline: float,
    on_progress: ProgressCallback | None = None,
    sample: ComparedSample | None = None,
) -> Probes:
    """Return a probe of every image that was opened in time, in the order of the index.

    Args:
        excluded: keys of cases that are left out.
        sample: the images of which the small versions are kept; None keeps all.
    """
    records = list({record.key: record for record in index.records if record.key not in excluded}.values())
    opening = _Opening(make_scope(index), work, deadline, on_progress, len(records), sample)
    derived, raw = (
        [record for record in records if is_derived(record) == is_wanted] for is_wanted in (True, False)
    )  # what scripts wrote is looked at in any case
    opening.open_all(iter([*_spread(derived), *_spread(raw)]))
    keys = (key for record in records for key in unit_keys(record, index.task))
    return {key: opening.probes[key] for key in keys if key in opening.probes}


def _spread(records: Sequence[Record]) -> Iterator[Record]:
    """Yield an audit that is cut off a sample of everything rather than the first class."""
    step = max(1, int(len(records) ** 0.5))
    for start in range(step):
        yield from records[start::step]


class _Opening:
    """Opens records and collects what was seen."""

    def __init__(
        self,
        scope: ProbeScope,
        work: Path,
        deadline: float,
        on_progress: ProgressCallback | None,
        total: int,
        sample: ComparedSample | None,
    ) -> None:
        self.scope, self.work, self.deadline, self.on_progress, self.total = scope, work, deadline, on_progress, total
        self.sample = sample
        self.probes: Probes = {}
        self.done = self.largest = 0

    def open_all(self, queue: Iterator[Record]) -> None:
        self._open_here(islice(queue, 1))  # shows how large they are, and loads the libraries for all workers
        if should_open_one_by_one():
            self._open_here(queue)
        elif (record := next(queue, None)) is not None:
            self._open_parallel(record, queue)

    def _open_here(self, queue: Iterator[Record]) -> None:
        while time.monotonic() < self.deadline and (record := next(queue, None)) is not None:
            self._add(probe_record(record, self.scope, self.work), [record])

    def _open_parallel(self, first: Record, queue: Iterator[Record]) -> None:
        executor, workers = _start_executor()
        waiting = [first]
        running: dict[Future[Probes], list[Record]] = {}
        with executor:
            try:
                while True:
                    while len(running) < self._count_room(workers) and time.monotonic() < self.deadline:
                        batch = [*waiting, *islice(queue, self._count_batch() - len(waiting))]
                        waiting = []
                        if not batch:
                            break
                        with contextlib.suppress(DataError):  # a file that crashed a reader: the worker says so
                            announce_opening(self.work, batch[0].files[0])
                        running[executor.submit(_open_batch, batch, self.scope, self.work)] = batch
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED)[0]:
                        self._add(future.result(), running.pop(future))
            except BrokenExecutor:  # a file ended its process: opened here, it is named as the reader's last one
                unfinished = [record for batch in running.values() for record in batch]
        self._open_here(iter([*unfinished, *waiting, *queue]))

    def _add(self, probes: Probes, records: Sequence[Record]) -> None:
        own_keys = {key: key for record in records for key in unit_keys(record, self.scope.task)}
        for sent_key, probe in probes.items():
            key = own_keys.get(sent_key, sent_key)  # workers send copies
            self.largest = max(self.largest, probe.bytes)
            is_new = key not in self.probes
            self.probes[key] = _share_facts(probe)
            if self.sample and is_new and (other := self.sample.add(key, probe)) is not None:
                self.probes[other] = replace(self.probes[other], thumbnail=None, detail=None, volume_means=None)
        reached = self.done // PROGRESS_STEP
        self.done += len(records)
        if self.on_progress and self.done // PROGRESS_STEP > reached and self.done < self.total:
            self.on_progress(self.done, self.total)

    def _count_batch(self) -> int:
        return max(1, min(MAX_BATCH, MAX_BATCH_BYTES // max(1, self.largest)))

    def _count_room(self, workers: int) -> int:
        """Batches that may run together: the pixels, their copies while they are looked at, and the mask."""
        return max(1, min(workers + 1, MAX_HELD_BYTES // max(1, 3 * self.largest)))


@lru_cache(maxsize=4096)
def _share_values(values: tuple[object, ...]) -> tuple[Any, ...]:
    return values


def _share_facts(probe: ImageProbe) -> ImageProbe:
    """Return a probe whose values are those of an earlier one if they are equal: workers send copies."""
    facts = (probe.shape, probe.size, probe.spacing, probe.frames, probe.bytes)
    shape, size, spacing, frames, n_bytes = _share_values(facts)
    header = probe.header or NO_VALUES
    return replace(probe, shape=shape, size=size, spacing=spacing, frames=frames, bytes=n_bytes, header=header)


def _start_executor() -> tuple[Executor, int]:
    """Return processes if this one can be forked safely, that is without other threads; else threads."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if cores > 1 and threading.active_count() == 1:
        workers = min(cores, MAX_WORKERS)
        with contextlib.suppress(OSError, NotImplementedError):  # a sandbox without semaphores
            return ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _prepare_worker), workers
    return ThreadPoolExecutor(THREADS), THREADS


def _prepare_worker() -> None:
    gc.freeze()  # a collection would touch every record, and so copy the memory that is shared with the first process
    mute_watches()


def _open_batch(batch: Sequence[Record], scope: ProbeScope, work: Path) -> Probes:
    probes: Probes = {}
    for record in batch:
        probes |= probe_record(record, scope, work)
    return probes
