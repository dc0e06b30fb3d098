"""Answers that are written while they are made, and those that are written while a body is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

JSON_LINES = "application/x-ndjson"


class _Streamed(StreamingResponse):
    """Starlette's own leaves an abandoned generator, and the database connection that it may hold,
    to the garbage collector."""

    body_iterator: AsyncGenerator[bytes, None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.body_iterator):
            await super().__call__(scope, receive, send)


class _WhileReading(_Streamed):
    """Starlette's own would listen for the end of the connection, and swallow the body with it:
    whoever reads the body hears of that."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - see above
        async with aclosing(self.body_iterator):
            await self.stream_response(send)


async def answer(
    request: Request,
    pieces: AsyncGenerator[bytes, None],
    media_type: str,
    *,
    while_reading: bool = False,
    file_name: str | None = None,
) -> Response:
    """Answer with a stream, after its first piece: a Problem raised before it is answered as one.
    To HEAD nothing is made."""
    headers = {"Content-Disposition": f'attachment; filename="{file_name}"'} if file_name else {}
    if request.method == "HEAD":
        response = Response(headers=headers, media_type=media_type)
        del response.headers["content-length"]  # a GET has more than nothing (RFC 9110 §8.6)
        return response
    first = await anext(pieces, b"")
    kind = _WhileReading if while_reading else _Streamed
    return kind(_all(first, pieces), headers=headers, media_type=media_type)


async def _all(first: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece
