"""Answers of HTTP servers up to a size: a server that sends more than was asked for, or without end, is stopped.

The clients of S3 and Google Cloud Storage hold each answer in memory: a listing page, a small file, a part of a large one.
"""

from __future__ import annotations

from typing import Any, NoReturn

from aiohttp import ClientResponse

from m3b.errors import AnswerError

MAX_ANSWER_BYTES = 32 * 2**20
"""More than any answer has: parts of files are up to 16 MiB, pages of listings a few MiB."""


class BoundedResponse(ClientResponse):  # type: ignore[misc]  # aiohttp is not followed
    """An answer whose content ends with an AnswerError after `MAX_ANSWER_BYTES`."""

    async def start(self, connection: Any) -> BoundedResponse:
        """Read the headers, as aiohttp does."""
        await super().start(connection)
        self.content = _BoundedContent(self)
        return self


class _BoundedContent:
    """The content of an answer; counts what was read.

    Args:
        response: its `content` is that of aiohttp.
    """

    def __init__(self, response: BoundedResponse) -> None:
        self._response, self._stream, self._n_bytes = response, response.content, 0

    async def read(self, n: int = -1) -> bytes:
        """Return up to `n` bytes, all if it is negative; raise AnswerError if there are too many."""
        if (self._response.content_length or 0) > MAX_ANSWER_BYTES:
            self._stop(f"announces an answer of {self._response.content_length:,} bytes")
        if n >= 0:
            return self._count(await self._stream.read(n))
        blocks = []
        while block := self._count(await self._stream.readany()):
            blocks.append(block)
        return b"".join(blocks)

    def _count(self, block: bytes) -> bytes:
        self._n_bytes += len(block)
        if self._n_bytes > MAX_ANSWER_BYTES:
            self._stop(f"sends more than {MAX_ANSWER_BYTES >> 20} MiB")
        return block

    def _stop(self, reason: str) -> NoReturn:
        self._response.close()
        raise AnswerError(f"the server {reason}, where less was asked for")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def make_s3_session_class() -> type:
    """Return the HTTP session for `AioConfig(http_session_cls=...)` whose answers are bounded."""
    from aiobotocore.httpsession import AIOHTTPSession

    class BoundedSession(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore is not followed
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            session._response_class = BoundedResponse
            return session

    return BoundedSession
