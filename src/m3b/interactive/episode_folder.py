"""The files of an episode: the journal, a picture of every turn, the result."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from m3b.agents.conversation import Conversation
from m3b.errors import RunFailed, UsageError
from m3b.events import Event, PromptSent, RunEnded
from m3b.interactive.episode import Episode, SegmentationResult
from m3b.interactive.pictures import draw_picture
from m3b.journal import Journal

AGENT_ROLE = "segmenting_agent"


class EpisodeFolder:
    """The folder of one episode, or no folder at all.

    Args:
        folder: created here; with None nothing is written.

    Raises:
        UsageError: the folder exists and is not empty, or cannot be created.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._journal: Journal | None = None
        if folder is None:
            return
        try:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise UsageError(f"{folder} exists and is not an empty folder. Name another one.")
            folder.mkdir(parents=True, exist_ok=True)
            os.chmod(folder, 0o700)  # pictures of a patient
        except OSError as error:
            raise UsageError(f"The folder {folder} cannot be made: {error}.") from error
        self._journal = Journal(folder / "journal.jsonl", fsync=False)

    def emit(self, event: Event) -> None:
        """Write an event of the loop to the journal."""
        if self._journal is not None and event.is_journaled:
            try:
                self._journal.write(event.with_role(AGENT_ROLE))
            except OSError as error:
                raise RunFailed(f"The journal in {self.folder} cannot be written: {error.strerror}.") from error

    def begin(self, episode: Episode, conversation: Conversation) -> None:
        """Write the first messages and the image."""
        texts = [message.text for message in conversation.messages]
        self.emit(PromptSent(texts[0], texts[-1]))
        if self.folder is not None:
            (self.folder / "turn_0.png").write_bytes(draw_picture(episode.image).data)

    def write_turn_pictures(self, episode: Episode) -> None:
        """Write a picture of every mask that was made."""
        for turn in episode.turns if self.folder is not None else ():
            (self.folder / f"turn_{turn.number}.png").write_bytes(draw_picture(episode.image, turn.mask).data)  # type: ignore[operator]

    def finish(self, result: SegmentationResult) -> SegmentationResult:
        """Write how the episode ended."""
        self.emit(RunEnded(result.to_json()))
        return result

    def __enter__(self) -> EpisodeFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal is not None:
            self._journal.close()
