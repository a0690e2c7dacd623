"""A worker that is one too many: its sessions go to the others, then it goes."""

import asyncio
import logging
import shutil
from typing import Any, Final

from vmq.admin.errors import AdminError
from vmq.config.options import Config
from vmq.workers.asking import WorkerClient
from vmq.workers.plan import Plan
from vmq.workers.process import Worker

log = logging.getLogger("vmq.workers")

#: Seconds between two looks whether it is linked to the others.
_PAUSE: Final = 0.5
#: Seconds until it tries again to leave.
_AGAIN: Final = 30.0
#: Seconds that the sessions may take to move.
_PATIENCE: Final = 3600.0


async def dissolve(worker: Worker, plan: Plan, config: Config, client: WorkerClient) -> None:
    """Moves what a worker has to the others, then ends it and removes its folder.

    As long as that fails it is tried again; meanwhile the worker stays a member, and its sessions get their messages.
    """
    number = worker.number
    log.info("worker is one too many number=%d: its sessions move to the others", number)
    while not await _has_left(number, plan, config, client):  # noqa: ASYNC110 - it may take any number of tries
        await asyncio.sleep(_AGAIN)
    await worker.stop()
    shutil.rmtree(plan.own_folder(number))
    log.info("worker gone number=%d", number)


async def _has_left(number: int, plan: Plan, config: Config, client: WorkerClient) -> bool:
    """Whether the worker has left, and the others have all that it had; if not, it is a member again."""
    try:
        await _until_linked(number, plan, config, client)
        timeout = {"timeout": _PATIENCE}
        left = await client.ask(number, "POST", "/cluster/leave", timeout, patience=None)
        kept = {"where": "not clean_session", "limit": 1, "local": True}
        rest = await client.ask(number, "GET", "/sessions", kept)
        if left["complete"] and not rest["rows"]:
            return True
        reason = "it still has sessions"
        await _until_linked(number, plan, config, client)
    except AdminError as error:
        reason = str(error)
    text = 'sessions not moved worker=%d reason="%s" again_in=%.0f'
    log.error(text, number, reason, _AGAIN)
    return False


async def _until_linked(number: int, plan: Plan, config: Config, client: WorkerClient) -> None:
    """Returns when the worker is a member that reaches another one."""
    while True:
        rows: list[dict[str, Any]] = (await client.ask(number, "GET", "/cluster/members"))["rows"]
        joined = {row["node"]: row for row in rows if row["status"] in ("joined", "drained")}
        if plan.node_name(number) not in joined:
            first = {"address": plan.address(1, config)}
            await client.ask(number, "POST", "/cluster/join", first)
        elif any(row["is_up"] and not row["is_self"] for row in joined.values()):
            return
        await asyncio.sleep(_PAUSE)
