"""The running part of `vmq sub`: stay connected, and print what comes."""

import asyncio
import signal
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from vmq.cli.mqtt.client import CommandClient, Unreachable, silence_libraries
from vmq.cli.mqtt.format import Formatter, Received
from vmq.cli.mqtt.options import ConnectionOptions
from vmq.cli.terminal.console import FAILURE, CliError, is_terminal, nobody_reads, warning
from vmq.cli.terminal.rows import clean
from vmq.mqtt.topics import matches

# Exit code of mosquitto_sub after -W.
TIMED_OUT: Final = 27

_REFUSED: Final = 0x80
_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 30.0


@dataclass(frozen=True)
class Wanted:
    """What to subscribe to, what to print of it, and when to end."""

    filters: tuple[str, ...]
    qos: int = 0
    unsubscribe: tuple[str, ...] = ()
    filter_out: tuple[str, ...] = ()
    count: int | None = None
    timeout: float | None = None  # seconds
    exit_after_subscribe: bool = False
    no_stale: bool = False
    retained_only: bool = False


class SubscribeRun:
    """Subscribes and prints, over as many connections as it takes, until something ends it."""

    def __init__(
        self, connection: ConnectionOptions, wanted: Wanted, formatter: Formatter, newline: bool
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        self._format = formatter
        self._end = b"\n" if newline else b""
        self._is_shown = is_terminal(sys.stdout)
        self._printed = 0
        self._received: set[int] = set()
        self._was_connected = False
        self._outcome: asyncio.Future[int]

    async def run(self) -> int:
        """Run to the end; returns the exit code, or raises CliError."""
        silence_libraries()
        loop = asyncio.get_running_loop()
        self._outcome = loop.create_future()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self._interrupt, each)
        timer = None
        if self._wanted.timeout is not None:
            timer = loop.call_later(self._wanted.timeout, self._time_out)
        work = asyncio.create_task(self._stay_connected())
        try:
            await asyncio.wait({work, self._outcome}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not self._outcome.done():
                return work.result()
            return self._outcome.result()
        finally:
            if timer is not None:
                timer.cancel()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _finish(self, code: int) -> None:
        if not self._outcome.done():
            self._outcome.set_result(code)

    def _interrupt(self, number: int) -> None:
        self._finish(0 if self._was_connected else 128 + number)

    def _time_out(self) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(CliError("timed out", TIMED_OUT))

    async def _stay_connected(self) -> int:
        """Connect, and again whenever the connection is lost; only the first time must succeed at once."""
        delay = 0.0
        while True:
            client = CommandClient(self._connection, self._on_message, self._received)
            try:
                await client.open()
                self._was_connected = True
                delay = 0.0
                await self._subscribe(client)
                if self._wanted.exit_after_subscribe:
                    return 0
                await client.closed.wait()
                problem = f"the connection to {self._connection.target.url} was lost"
            except Unreachable as error:
                if not self._was_connected:
                    raise
                problem = str(error)
            finally:
                await client.close()
            delay = min(delay * 2 or _FIRST_DELAY, _LONGEST_DELAY)
            warning(f"{problem}; trying again in {delay:.0f} s")
            await asyncio.sleep(delay)

    async def _subscribe(self, client: CommandClient) -> None:
        wanted = self._wanted
        if wanted.unsubscribe:
            await client.ask_unsubscribe(list(wanted.unsubscribe))
        if not wanted.filters:
            return
        codes = await client.ask_subscribe(list(wanted.filters), wanted.qos)
        refused = [
            name for name, code in zip(wanted.filters, codes, strict=False) if code == _REFUSED
        ]
        if len(refused) == len(wanted.filters):
            raise CliError(f"the broker refuses to subscribe us to {', '.join(refused)}")
        for name in refused:
            warning(f"the broker refuses to subscribe us to {name}")

    def _on_message(self, packet: Any) -> bool:
        """Print a message if it is wanted; False = too late, leave it to the next connection."""
        if self._outcome.done():
            return False
        try:
            return self._handle(packet)
        except Exception as error:  # noqa: BLE001  # it would vanish in a task of amqtt's
            self._outcome.set_exception(error)
            return False

    def _handle(self, packet: Any) -> bool:
        wanted = self._wanted
        topic: str = packet.topic_name
        if wanted.retained_only and not packet.retain_flag:
            self._finish(0)
            return False
        if wanted.no_stale and packet.retain_flag:
            return True
        if any(matches(each, topic) for each in wanted.filter_out):
            return True
        message = Received(
            topic,
            packet.data,
            packet.qos,
            packet.retain_flag,
            packet.packet_id or 0,
            datetime.now().astimezone(),
            self._is_shown,
        )
        return self._print(message)

    def _print(self, message: Received) -> bool:
        try:
            text = self._format(message)
        except ValueError:
            warning(f"the payload on {clean(message.topic)} is not JSON")
            return True
        try:
            sys.stdout.buffer.write(text + self._end)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            self._finish(nobody_reads())
            return False
        except OSError as problem:
            self._outcome.set_exception(CliError(f"cannot write: {problem.strerror}", FAILURE))
            return False
        self._printed += 1
        if self._printed == self._wanted.count:
            self._finish(0)
        return True
