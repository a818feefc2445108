"""One run of a pipeline: its events as they happen, its end, and a way to bring that about."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

from m3b.events import Event
from m3b.run.folder import Run
from m3b.run.result import Result

Work = Callable[[Callable[[Event], None], threading.Event], Result]
"""Works on a run until its end: takes what is told of each event, and what is set to end it."""


class Feed:
    """Events for any number of readers: what the journal keeps from the beginning, the rest from when one begins."""

    def __init__(self) -> None:
        self._kept: list[Event] = []
        self._readers: list[queue.SimpleQueue[Event | None]] = []
        self._lock = threading.Lock()
        self._closed = False

    def put(self, event: Event) -> None:
        with self._lock:
            if event.kept:
                self._kept.append(event)
            for subscriber in self._readers:
                subscriber.put(event)

    def close(self) -> None:
        """No event follows."""
        with self._lock:
            self._closed = True
            for subscriber in self._readers:
                subscriber.put(None)

    def read(self) -> Iterator[Event]:
        """Every event until the last one."""
        subscriber: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        with self._lock:
            for event in self._kept:
                subscriber.put(event)
            if self._closed:
                subscriber.put(None)
            self._readers.append(subscriber)
        try:
            while (event_or_end := subscriber.get()) is not None:
                yield event_or_end
        finally:
            with self._lock:
                self._readers.remove(subscriber)


class RunHandle:
    """A run that was started; `Pipeline.start` makes it.

    Args:
        run: its folder, locked.
        work: does it, once.
        ended: told when the run is over.
    """

    def __init__(self, run: Run, work: Work, ended: Callable[[RunHandle], None] = lambda handle: None) -> None:
        self._run, self._work, self._ended = run, work, ended
        self._feed, self._cancel_event = Feed(), threading.Event()
        self._end: Future[Result] = Future()
        self._thread: threading.Thread | None = None

    @property
    def id(self) -> str:
        """Names the run, as `m3b resume` takes it."""
        return self._run.id

    @property
    def folder(self) -> Path:
        """Where everything of the run lies."""
        return self._run.folder

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self._end.done()

    def events(self) -> Iterator[Event]:
        """The events of the run as they happen, from the first one; the last is `RunEnded`.

        Any number of readers may look on, from any thread, also when the run is over. What is not kept (`Output`,
        `Waiting`, `Delta`) is heard by those who look on at that moment.
        """
        return self._feed.read()

    def cancel(self) -> None:
        """End the run soon, from any thread; its status becomes `cancelled`."""
        self._cancel_event.set()

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the end of the run.

        Args:
            timeout: seconds to wait at most; None for as long as it takes.

        Raises:
            TimeoutError: the run is not over; it goes on.
        """
        result = self._end.result(timeout)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return result

    async def wait(self) -> Result:
        """The same for a task of asyncio. Cancelling the task cancels the run, and waits until that has ended."""
        import asyncio  # what only this needs

        future = asyncio.wrap_future(self._end)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.cancel()
            await future
            raise

    def begin(self) -> None:
        """Work in a thread of its own."""
        self._thread = threading.Thread(target=self.work, name=f"m3b-run {self.id}")
        self._thread.start()

    def work(self) -> Result:
        """Work in this thread.

        Raises:
            BaseException: whatever ends a process, such as SystemExit from a function of the user's.
        """
        try:
            result = self._work(self._feed.put, self._cancel_event)
        except BaseException as error:  # carried over to whoever waits for the result
            self._close()
            self._end.set_exception(error)
            raise
        self._close()
        self._end.set_result(result)
        return result

    def _close(self) -> None:
        self._run.unlock()
        self._feed.close()
        self._ended(self)
