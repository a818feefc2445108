"""A started run: its events as they happen, its result, and a way to cancel it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from m3b.events import Event
from m3b.run.result import Result
from m3b.run.setup import RunSetup

if TYPE_CHECKING:
    from m3b.run.stages import Stages


class EventFeed:
    """Events for any number of subscribers.

    A subscriber gets all journaled events from the beginning, and other events from when it subscribes.
    """

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
        """End the feed: no further event follows."""
        with self._lock:
            self._is_closed = True
            for subscriber in self._subscribers:
                subscriber.put(None)

    def subscribe(self) -> Iterator[Event]:
        """Yield every event until the last one."""
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
        setup: what the run is performed with.
        stages: the user's stages in their order; empty for m3b's own.
        on_end: called when the run is over.
    """

    def __init__(self, setup: RunSetup, stages: Stages, on_end: Callable[[RunHandle], None]) -> None:
        self._setup, self._stages, self._on_end = setup, stages, on_end
        self._feed, self._cancel_event = EventFeed(), threading.Event()
        self._future: Future[Result] = Future()
        self._thread: threading.Thread | None = None

    @property
    def id(self) -> str:
        """The id of the run, as `m3b resume` takes it."""
        return self._setup.folder.id

    @property
    def folder(self) -> Path:
        """The run folder, which holds everything of the run."""
        return self._setup.folder.path

    @property
    def is_done(self) -> bool:
        """Whether the run is over."""
        return self._future.done()

    def events(self) -> Iterator[Event]:
        """Yield the events of the run as they happen, from the first one; the last is `RunEnded`.

        Any number of readers may iterate, from any thread, also when the run is over. Events that are not journaled
        (`ScriptOutput`, `WaitingForModel`, `ReplyDelta`) reach only those who are iterating at that moment.
        """
        return self._feed.subscribe()

    def cancel(self) -> None:
        """End the run soon; may be called from any thread. The status becomes `cancelled`."""
        self._cancel_event.set()

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the end of the run and return its result.

        Args:
            timeout: maximum time in seconds; None waits without a limit.

        Raises:
            TimeoutError: the run is not over yet; it goes on.
        """
        result = self._future.result(timeout)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return result

    async def wait(self) -> Result:
        """Return the result in asyncio. Cancelling the task cancels the run, and waits until the run has ended."""
        import asyncio  # only this method needs it

        future = asyncio.wrap_future(self._future)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.cancel()
            await future
            raise

    def start_thread(self) -> None:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self.run_to_end, name=f"m3b-run {self.id}")
        self._thread.start()

    def run_to_end(self) -> Result:
        """Run in the current thread.

        Raises:
            BaseException: anything that ends a process, such as SystemExit from a function of the user.
        """
        from m3b.run.orchestrator import (
            execute_run,  # imports agents, tools and numpy, which `import m3b` does not need
        )

        try:
            result = execute_run(self._setup, self._stages, self._feed.publish, self._cancel_event)
        except BaseException as error:  # passed on to the threads that wait for the result
            self._close()
            self._future.set_exception(error)
            raise
        self._close()
        self._future.set_result(result)
        return result

    def _close(self) -> None:
        self._setup.folder.unlock()
        self._feed.close()
        self._on_end(self)
