"""One run of a pipeline: its events as they happen, its end, and a way to bring that about."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

from m3b.events import Event
from m3b.run.folder import RunFolder
from m3b.run.result import Result

RunWork = Callable[[Callable[[Event], None], threading.Event], Result]
"""Works on a run until its end: takes what is told of each event, and what is set to end it."""


class EventFeed:
    """Events for any number of readers: what the journal keeps from the beginning, the rest from when one begins."""

    def __init__(self) -> None:
        self._journaled_events: list[Event] = []
        self._subscribers: list[queue.SimpleQueue[Event | None]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def publish(self, event: Event) -> None:
        with self._lock:
            if event.is_journaled:
                self._journaled_events.append(event)
            for subscriber in self._subscribers:
                subscriber.put(event)

    def close(self) -> None:
        """No event follows."""
        with self._lock:
            self._is_closed = True
            for subscriber in self._subscribers:
                subscriber.put(None)

    def subscribe(self) -> Iterator[Event]:
        """Every event until the last one."""
        subscriber: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        with self._lock:
            for event in self._journaled_events:
                subscriber.put(event)
            if self._is_closed:
                subscriber.put(None)
            self._subscribers.append(subscriber)
        try:
            while (event_or_end := subscriber.get()) is not None:
                yield event_or_end
        finally:
            with self._lock:
                self._subscribers.remove(subscriber)


class RunHandle:
    """A run that was started; `Pipeline.start` makes it.

    Args:
        run: its folder, locked.
        run_to_end: does it, once.
        on_end: told when the run is over.
    """

    def __init__(
        self, run: RunFolder, work: RunWork, on_end: Callable[[RunHandle], None] = lambda handle: None
    ) -> None:
        self._run, self._run_work, self._on_end = run, work, on_end
        self._feed, self._cancel_event = EventFeed(), threading.Event()
        self._future: Future[Result] = Future()
        self._thread: threading.Thread | None = None

    @property
    def id(self) -> str:
        """Names the run, as `m3b resume` takes it."""
        return self._run.id

    @property
    def folder(self) -> Path:
        """Where everything of the run lies."""
        return self._run.path

    @property
    def is_done(self) -> bool:
        """Whether the run is over."""
        return self._future.done()

    def events(self) -> Iterator[Event]:
        """The events of the run as they happen, from the first one; the last is `RunEnded`.

        Any number of readers may look on, from any thread, also when the run is over. What is not kept (`ScriptOutput`,
        `WaitingForModel`, `ReplyDelta`) is heard by those who look on at that moment.
        """
        return self._feed.subscribe()

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
        result = self._future.result(timeout)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return result

    async def wait(self) -> Result:
        """The same for a task of asyncio. Cancelling the task cancels the run, and waits until that has ended."""
        import asyncio  # what only this needs

        future = asyncio.wrap_future(self._future)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.cancel()
            await future
            raise

    def start_thread(self) -> None:
        """Work in a thread of its own."""
        self._thread = threading.Thread(target=self.run_to_end, name=f"m3b-run {self.id}")
        self._thread.start()

    def run_to_end(self) -> Result:
        """Work in this thread.

        Raises:
            BaseException: whatever ends a process, such as SystemExit from a function of the user's.
        """
        try:
            result = self._run_work(self._feed.publish, self._cancel_event)
        except BaseException as error:  # carried over to whoever waits for the result
            self._close()
            self._future.set_exception(error)
            raise
        self._close()
        self._future.set_result(result)
        return result

    def _close(self) -> None:
        self._run.unlock()
        self._feed.close()
        self._on_end(self)
