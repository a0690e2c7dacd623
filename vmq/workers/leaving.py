"""A worker that is one too many: its sessions go to the others, then it goes."""

import asyncio
import logging
import shutil
from typing import Any, Final

from vmq.admin.errors import AdminError
from vmq.config import Config
from vmq.workers.asking import Client
from vmq.workers.plan import Plan
from vmq.workers.process import Worker

log = logging.getLogger("vmq.workers")

#: Seconds between two tries.
_PAUSE: Final = 1.0
#: Seconds that the sessions may take to move.
_PATIENCE: Final = 3600.0


async def dissolve(worker: Worker, plan: Plan, config: Config, client: Client) -> bool:
    """Moves what a worker has to the others, and removes the worker; returns whether it is gone.

    Otherwise it stays until the next start, which tries again.
    """
    number = worker.number
    log.info("worker is one too many number=%d: its sessions move to the others", number)
    while True:
        try:
            await _until_linked(number, plan, config, client)
            left = await client.ask(
                number, "POST", "/cluster/leave", {"timeout": _PATIENCE}, patience=None
            )
            rest = await client.ask(
                number, "GET", "/sessions", {"where": "not clean_session", "limit": 1}
            )
        except AdminError as error:
            log.warning('sessions wait worker=%d reason="%s"', number, error)
            await asyncio.sleep(_PAUSE)
            continue
        break
    if not left["complete"] or rest["rows"]:
        log.error("sessions not moved worker=%d: tried again after the next start", number)
        return False
    await worker.stop()
    shutil.rmtree(plan.own_folder(number))
    log.info("worker gone number=%d", number)
    return True


async def _until_linked(number: int, plan: Plan, config: Config, client: Client) -> None:
    """Returns when the worker is a member that reaches another one."""
    while True:
        rows: list[dict[str, Any]] = (await client.ask(number, "GET", "/cluster/members"))["rows"]
        joined = {row["node"]: row for row in rows if row["status"] == "joined"}
        if plan.node_name(number) not in joined:
            first = {"address": plan.address(1, config)}
            await client.ask(number, "POST", "/cluster/join", first)
        elif any(row["is_up"] and not row["is_self"] for row in joined.values()):
            return
        await asyncio.sleep(_PAUSE)
