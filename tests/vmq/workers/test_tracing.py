"""A trace over workers, without them."""

import asyncio
from types import SimpleNamespace
from typing import Any

from vmq.workers.tracing import Traces


async def test_what_one_worker_tells_before_all_follow_is_not_lost() -> None:
    supervisor: Any = SimpleNamespace(serving=[SimpleNamespace(is_running=True)] * 2)
    nobody: Any = None
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    for each in (b"\n", b"CONNECT\n", b"\n", b"PUBLISH\n"):
        lines.put_nowait(each)
    follower = asyncio.get_running_loop().create_future()
    begun = Traces(supervisor, nobody)._begun([asyncio.ensure_future(follower)], lines)
    assert await begun == [b"CONNECT\n"]
    assert lines.get_nowait() == b"PUBLISH\n"
