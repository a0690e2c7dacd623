"""GET /trace: what one client does, line by line as it happens. On the admin socket only."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from vmq.admin.errors import AdminError, RefusedError
from vmq.tracing.tracer import Trace, TraceLimitError

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: Seconds between two signs of life, by which a watcher that is gone is noticed.
_ALIVE: Final = 5.0


class TraceClient(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to watch, and how much to show."""

    client_id: Annotated[str, Meta(min_length=1)]
    payload_bytes: Annotated[int, Meta(ge=0, le=65_536)] = 64
    rate: Annotated[int, Meta(ge=1, le=10_000)] = 100


async def stream(request: web.Request, broker: "BrokerView") -> web.StreamResponse:
    """Streams lines of text until the watcher goes, or the broker stops."""
    try:
        wanted = msgspec.convert(dict(request.query), TraceClient, strict=False)
    except msgspec.ValidationError as error:
        accepted = ", ".join(TraceClient.__struct_fields__)
        raise AdminError(f"{error}; accepted parameters: {accepted}") from None
    trace = Trace(wanted.client_id, wanted.payload_bytes, wanted.rate)
    try:
        broker.tracer.start(trace)
    except TraceLimitError as error:
        raise RefusedError(str(error)) from None
    response = web.StreamResponse(headers={"Cache-Control": "no-store"})
    response.content_type = "text/plain"
    response.charset = "utf-8"
    try:
        await response.prepare(request)
        await response.write(b"\n")  # the trace has begun
        while True:
            try:
                async with asyncio.timeout(_ALIVE):
                    line = await trace.lines.get()
            except TimeoutError:
                line = ""
            await response.write(line.encode(errors="replace") + b"\n")
    except (ConnectionError, asyncio.CancelledError):
        return response
    finally:
        broker.tracer.stop(trace)
