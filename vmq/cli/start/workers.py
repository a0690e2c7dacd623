"""`vmq start` with several processes: the supervisor in the foreground."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from vmq.cli.memory import settle_memory
from vmq.cli.start.foreground import (
    on_requests,
    on_signal,
    say_page,
    say_ready,
    unless,
)
from vmq.cli.start.running import Running
from vmq.cli.start.service import Notifier
from vmq.cli.terminal.console import USAGE, CliError
from vmq.version import __version__, is_compiled

if TYPE_CHECKING:
    from vmq.cli.start.logs import BrokerLog
    from vmq.config.options import Config

logger = logging.getLogger("vmq.cli")


async def serve_workers(config: "Config", log: "BrokerLog", load: Callable[[], "Config"]) -> None:
    """Run workers until a signal ends them."""
    from vmq.config.options import ConfigError
    from vmq.http.dashboard.links import links_of
    from vmq.workers.plan import count_of
    from vmq.workers.supervisor import Supervisor

    stopping = asyncio.Event()
    notifier = Notifier(os.environ)
    try:
        supervisor = Supervisor(config, count_of(config), notifier.watchdog_seconds)
    except ConfigError as problems:
        raise CliError(str(problems), USAGE) from None
    supervisor.on_left = stopping.set
    on_signal(stopping.set, lambda: _kill(supervisor.pids()))
    running = Running(supervisor, log, notifier, load, supervisor.shut_because)

    def rotate() -> None:
        running.rotate()
        supervisor.rotate()

    on_requests(running.reload, rotate)
    if not await unless(stopping, supervisor.start()):
        logger.info("stopped")
        return
    settle_memory()
    compiled = "yes" if is_compiled() else "no"
    text = "started version=%s compiled=%s workers=%d"
    logger.info(text, __version__, compiled, supervisor.plan.count)
    say_ready(supervisor.addresses, supervisor.shut_because())
    say_page(links_of(supervisor.frontend.dashboard))
    running.ready()
    house = asyncio.create_task(running.keep_house())
    await stopping.wait()
    house.cancel()
    running.stopping()
    await supervisor.stop()
    running.finish()
    logger.info("stopped")


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
