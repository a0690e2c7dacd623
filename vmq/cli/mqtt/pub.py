"""`vmq pub`: publish messages, with the options of mosquitto_pub."""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from vmq.cli.mqtt import options
from vmq.cli.mqtt.options import ConnectionOptions
from vmq.cli.terminal.console import CliError, UsageError

if TYPE_CHECKING:
    from vmq.cli.mqtt.client import CommandClient

# QoS 1 and 2 messages that may await their acknowledgement, as in mosquitto_pub.
INFLIGHT: Final = 20
# What a PUBLISH has room for: the largest remaining length [MQTT 2.2.3].
_LARGEST: Final = 268_435_455

_MESSAGE: Final = "Message (one of)"

TopicOption = Annotated[
    str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic to publish to.")
]
QosOption = Annotated[
    int, typer.Option("-q", "--qos", metavar="QOS", min=0, max=2, help="Quality of service.")
]
RetainOption = Annotated[
    bool, typer.Option("-r", "--retain", help="Have the broker retain the message.")
]
RepeatOption = Annotated[
    int, typer.Option("--repeat", metavar="N", min=1, help="Publish the message N times.")
]
RepeatDelayOption = Annotated[
    float,
    typer.Option("--repeat-delay", metavar="SECONDS", min=0, help="Pause between repetitions."),
]
MessageOption = Annotated[
    str | None,
    typer.Option("-m", "--message", metavar="TEXT", help="This text.", rich_help_panel=_MESSAGE),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "-f", "--file", metavar="FILE", help="The contents of a file.", rich_help_panel=_MESSAGE
    ),
]
NullOption = Annotated[
    bool,
    typer.Option(
        "-n",
        "--null-message",
        help="An empty message (with -r: clears the retained one).",
        rich_help_panel=_MESSAGE,
    ),
]
StdinFileOption = Annotated[
    bool,
    typer.Option(
        "-s",
        "--stdin-file",
        help="All of standard input, as one message.",
        rich_help_panel=_MESSAGE,
    ),
]
StdinLineOption = Annotated[
    bool,
    typer.Option(
        "-l",
        "--stdin-line",
        help="Each line of standard input, as it comes.",
        rich_help_panel=_MESSAGE,
    ),
]


@dataclass(frozen=True)
class PubOptions:
    """What to publish; `payload` None stands for the lines of stdin."""

    topic: str
    payload: bytes | None
    qos: int
    retain: bool
    repeat: int
    delay: float  # seconds


@options.connecting("pub")
def pub(
    connection: ConnectionOptions,
    topic: TopicOption = None,
    message: MessageOption = None,
    file: FileOption = None,
    null_message: NullOption = False,
    stdin_file: StdinFileOption = False,
    stdin_line: StdinLineOption = False,
    qos: QosOption = 0,
    retain: RetainOption = False,
    repeat: RepeatOption = 1,
    repeat_delay: RepeatDelayOption = 0.0,
) -> int:
    """Publish messages to a topic.

    At QoS 1 and 2 the command ends once the broker has acknowledged every
    message, and exits with 1 if that fails. At QoS 0 it exits with 1 if the
    broker does not take the last of it within 5 seconds.

    \b
    Examples:
      vmq pub -t sensors/kitchen -m 21.5
      vmq pub -t config/lamp -r -q 1 -f lamp.json
      vmq pub -t config/lamp -r -n
      tail -f app.log | vmq pub -t logs/app -l
      vmq pub -L mqtt://user:secret@broker.example/sensors/kitchen -m 21.5
      vmq pub -L ws://127.0.0.1:8083/mqtt -t sensors/kitchen -m 21.5
      vmq pub -L mqtts://broker.example --cafile ca.pem -t a -m hello
    """
    if topic is None and not connection.topic:
        raise UsageError("a topic is needed: -t TOPIC, or in the URL")
    given = (message is not None, file is not None, null_message, stdin_file, stdin_line)
    if sum(given) != 1:
        raise UsageError("exactly one of -m, -f, -n, -s and -l is needed")
    if stdin_line and repeat > 1:
        raise UsageError("--repeat cannot be combined with -l")
    job = PubOptions(
        options.topic_name(connection.topic if topic is None else topic, "-t/--topic"),
        None if stdin_line else _payload(message, file, stdin_file),
        qos,
        retain,
        repeat,
        repeat_delay,
    )
    return asyncio.run(_until_signal(_run(connection, job)))


def _payload(message: str | None, file: Path | None, stdin_file: bool) -> bytes:
    if message is not None:
        return os.fsencode(message)
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as problem:
            raise CliError(f"cannot read {file}: {problem.strerror}") from None
    return sys.stdin.buffer.read() if stdin_file else b""


async def _run(connection: ConnectionOptions, job: PubOptions) -> int:
    from vmq.cli.mqtt.client import CommandClient, silence_libraries

    silence_libraries()
    client = CommandClient(connection)
    try:
        await client.open()
        await client.while_open(_publish_all(client, job))
    finally:
        await client.close()
    if (
        client.unsent and job.qos == 0
    ):  # else all was acknowledged, and the farewell alone is missing
        url = connection.target.url
        raise CliError(
            f"{url} does not take what is sent to it: {client.unsent} bytes are given up"
        )
    return 0


async def _publish_all(client: "CommandClient", job: PubOptions) -> None:
    """Publish in order, with up to INFLIGHT messages on their way, and wait for all of them."""
    inflight: deque[asyncio.Task[None]] = deque()

    async def publish(payload: bytes) -> None:
        if len(job.topic.encode()) + len(payload) + 4 > _LARGEST:
            raise CliError(f"{len(payload)} bytes are too many for an MQTT message")
        sending = client.send(job.topic, payload, job.qos, job.retain)
        if job.qos == 0:
            await sending
            return
        if len(inflight) == INFLIGHT:
            await inflight.popleft()
        # Tasks start in the order of their making, and amqtt's lock on the writer is a queue: order is kept.
        inflight.append(asyncio.create_task(sending))

    try:
        if job.payload is None:
            from vmq.cli.mqtt import stdin

            async for line in stdin.lines():
                await publish(line)
        else:
            for number in range(job.repeat):
                if number and job.delay:
                    await asyncio.sleep(job.delay)
                await publish(job.payload)
        while inflight:
            await inflight.popleft()
    finally:
        for task in inflight:
            task.cancel()
        await asyncio.gather(*inflight, return_exceptions=True)


async def _until_signal(work: Coroutine[Any, Any, int]) -> int:
    """The result of `work`; after SIGINT or SIGTERM, when it has ended its connection, 128 + the signal."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    signals: list[int] = []

    def interrupt(number: int) -> None:
        signals.append(number)
        loop.remove_signal_handler(number)  # the second one is for the impatient
        task.cancel()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, interrupt, each)
    try:
        return await task
    except (asyncio.CancelledError, CliError):
        if signals:
            return 128 + signals[0]
        raise
