"""One of the processes of `vmq start --workers N`: `python -m vmq.cli.start.worker A B`, which is not for people.

A is the file descriptor of its supervisor's channel, B that of the socket over which it is handed connections.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING

from vmq.cli.memory import collect_rarely
from vmq.cli.start.foreground import (
    REQUESTS,
    leave_nothing,
    on_signal,
    shut_because,
    unless,
    until_end,
)
from vmq.cli.terminal.console import FAILURE, CliError
from vmq.runtime.process import keep_files_private
from vmq.version import __version__, is_compiled

if TYPE_CHECKING:
    from vmq.cli.start.running import Running
    from vmq.config.options import Config
    from vmq.workers.control import Channel
    from vmq.workers.part import WorkerPart

logger = logging.getLogger("vmq.cli")


def run(channel: int, passing: int) -> int:
    """Run a worker of a broker, as its supervisor tells; returns the exit code."""
    for each in REQUESTS:
        signal.signal(each, signal.SIG_IGN)  # the supervisor tells what is to be done
    # What a process imports it keeps: walking that again and again is a sixth of the time until it serves.
    collect_rarely()

    import uvloop

    from vmq.cli.start.start import raise_file_limit

    raise_file_limit()
    keep_files_private()
    for file in (channel, passing):
        os.set_inheritable(file, False)  # what a plugin starts is none of the supervisor's
    both = (socket.socket(fileno=channel), socket.socket(fileno=passing))
    return 0 if uvloop.run(_serve(*both)) else FAILURE


async def _serve(sock: socket.socket, passing: socket.socket) -> bool:
    """Run a broker until a signal or the end of the supervisor ends it; returns whether it could start."""
    from vmq.broker import Broker, StartError
    from vmq.cli.start.running import Running
    from vmq.cli.start.service import Notifier
    from vmq.cli.start.start import open_log, settle
    from vmq.config.options import ConfigError
    from vmq.workers.control import BeginWorker, Channel, WorkerFailed, WorkerReady
    from vmq.workers.part import WorkerPart

    stopping = asyncio.Event()
    on_signal(stopping.set)
    channel = await Channel.over(sock)
    begin = await channel.receive()
    if not isinstance(begin, BeginWorker):
        return True  # the supervisor is gone
    live = begin.settings.live
    try:
        log = open_log(live.config, begin.share.number)
        settled = partial(settle, live.config, True)
        broker = Broker(live.base, admin=True, share=begin.share, before_clients=settled)
    except (CliError, ConfigError) as problem:
        return await _fail(channel, problem)
    broker.live = live
    running = Running(broker, log, Notifier({}), _load)
    started = asyncio.Event()
    shut = partial(shut_because, broker)
    part = WorkerPart(broker, channel, shut)
    hearing = asyncio.create_task(_hear(channel, part, running, started, stopping))
    try:
        is_started = await unless(stopping, broker.start())
    except StartError as problem:
        hearing.cancel()  # the end of the channel is ours: the supervisor is still there
        return await _fail(channel, problem)
    started.set()
    if not is_started:
        logger.info("stopped")
        return True
    if not stopping.is_set():
        logger.info("started version=%s compiled=%s", __version__, "yes" if is_compiled() else "no")
        part.take_connections(passing)
        channel.send(WorkerReady(shut()))
        tasks = [asyncio.create_task(running.keep_house()), asyncio.create_task(part.tell())]
        await until_end(stopping, broker)
        if not stopping.is_set():
            channel.send(WorkerFailed("what it could not read can be read again"))
        for each in tasks:
            each.cancel()
        part.close()
    hearing.cancel()
    telling = asyncio.create_task(part.tell_of_stop())
    await broker.stop()
    telling.cancel()
    running.finish()
    logger.info("stopped")
    await channel.close()
    await leave_nothing()
    return True


async def _fail(channel: "Channel", problem: Exception) -> bool:
    """Tell the supervisor why this worker cannot start."""
    from vmq.workers.control import WorkerFailed

    channel.send(WorkerFailed(str(problem)))
    await channel.close()
    return False


def _load() -> "Config":
    raise CliError("the supervisor reads the configuration")


async def _hear(
    channel: "Channel",
    part: "WorkerPart",
    running: "Running",
    started: asyncio.Event,
    stopping: asyncio.Event,
) -> None:
    """Follow the supervisor, and stop when it is gone."""
    from vmq.workers.control import Follow, Rotate, Watch

    while isinstance(message := await channel.receive(), Follow | Rotate | Watch):
        await started.wait()
        if isinstance(message, Rotate):
            running.rotate()
        else:
            await part.do(message)
    logger.warning("stopping: the supervisor is gone")
    stopping.set()


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), int(sys.argv[2])))
