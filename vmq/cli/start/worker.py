"""One of the processes that `vmq start --workers N` runs: `python -m vmq.cli.start.worker N`, which is not for people.

N is the file descriptor of its supervisor's channel.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from vmq.cli.start.foreground import on_signal, unless
from vmq.cli.start.running import Running
from vmq.cli.start.service import Notifier
from vmq.cli.start.start import open_log, raise_file_limit, settle
from vmq.cli.terminal.console import FAILURE, CliError
from vmq.runtime.process import keep_files_private
from vmq.version import __version__, is_compiled

if TYPE_CHECKING:
    from vmq.broker import Broker
    from vmq.config.options import Config
    from vmq.workers.control import Channel

logger = logging.getLogger("vmq.cli")

#: Seconds between two signs of life.
_ALIVE: Final = 1.0


def run(channel: int) -> int:
    """Run a worker of a broker, as its supervisor tells; returns the exit code."""
    import uvloop

    raise_file_limit()
    keep_files_private()
    os.set_inheritable(channel, False)  # what a plugin starts is none of the supervisor's
    return 0 if uvloop.run(_serve(socket.socket(fileno=channel))) else FAILURE


async def _serve(sock: socket.socket) -> bool:
    """Run a broker until a signal or the end of the supervisor ends it; returns whether it could start."""
    from vmq.broker import Broker, StartError
    from vmq.config.options import ConfigError
    from vmq.workers.control import BeginWorker, Channel, WorkerFailed, WorkerReady

    stopping = asyncio.Event()
    on_signal(stopping.set)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor reads the configuration
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
        channel.send(WorkerFailed(str(problem)))
        await channel.close()
        return False
    broker.live = live
    running = Running(broker, log, Notifier({}), _load)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, running.rotate)
    started = asyncio.Event()
    hearing = asyncio.create_task(_hear(channel, broker, started, stopping))
    try:
        is_started = await unless(stopping, broker.start())
    except StartError as problem:
        hearing.cancel()  # the end of the channel is ours: the supervisor is still there
        channel.send(WorkerFailed(str(problem)))
        await channel.close()
        return False
    started.set()
    if not is_started:
        logger.info("stopped")
        return True
    if not stopping.is_set():
        compiled = "yes" if is_compiled() else "no"
        logger.info("started version=%s compiled=%s", __version__, compiled)
        channel.send(WorkerReady())
        tasks = [asyncio.create_task(running.keep_house()), asyncio.create_task(_live(channel))]
        await stopping.wait()
        for each in tasks:
            each.cancel()
    hearing.cancel()
    await broker.stop()
    running.finish()
    logger.info("stopped")
    await channel.close()
    return True


def _load() -> "Config":
    raise CliError("the supervisor reads the configuration")


async def _hear(
    channel: "Channel", broker: "Broker", started: asyncio.Event, stopping: asyncio.Event
) -> None:
    """Follow the supervisor, and stop when it is gone."""
    from vmq.config.options import ConfigError
    from vmq.config.reload import ReloadError
    from vmq.workers.control import Follow, Followed

    while isinstance(message := await channel.receive(), Follow):
        await started.wait()
        refusal = ""
        live = message.settings.live
        try:
            broker.take_over(live)
            if message.is_read:
                broker.read_files_anew()
        except (ConfigError, ReloadError, OSError) as problem:
            refusal = str(problem)
        channel.send(Followed(refusal))
    logger.warning("stopping: the supervisor is gone")
    stopping.set()


async def _live(channel: "Channel") -> None:
    from vmq.workers.control import Alive

    while True:
        channel.send(Alive())
        await asyncio.sleep(_ALIVE)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1])))
