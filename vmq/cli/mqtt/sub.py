"""`vmq sub`: subscribe and print what comes, with the options of mosquitto_sub."""

import asyncio
from dataclasses import replace
from typing import Annotated, Final

import typer

from vmq.cli.mqtt import options
from vmq.cli.mqtt.format import FormatError, Formatter, compiled, payload_only, verbose
from vmq.cli.mqtt.options import ConnectionOptions
from vmq.cli.terminal.console import UsageError

_FILTERING: Final = "What to print"
_OUTPUT: Final = "How to print"

TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "-t", "--topic", metavar="FILTER", help="Topic filter to subscribe to. May be repeated."
    ),
]
QosOption = Annotated[
    int, typer.Option("-q", "--qos", metavar="QOS", min=0, max=2, help="Highest QoS wanted.")
]
DurableOption = Annotated[
    bool,
    typer.Option(
        "-c",
        "--disable-clean-session",
        help="Durable session: subscriptions and QoS 1 and 2 messages wait while nobody is connected. Needs -i.",
    ),
]
UnsubscribeOption = Annotated[
    list[str] | None,
    typer.Option(
        "-U", "--unsubscribe", metavar="FILTER", help="Unsubscribe first. May be repeated."
    ),
]
CountOption = Annotated[
    int | None,
    typer.Option("-C", metavar="N", min=1, help="Exit after printing N messages."),
]
ExitOption = Annotated[bool, typer.Option("-E", help="Exit once the broker has subscribed us.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option("-W", metavar="SECONDS", min=0.001, help="Exit with 27 after this time."),
]
NoStaleOption = Annotated[
    bool,
    typer.Option("-R", help="No messages that were retained before.", rich_help_panel=_FILTERING),
]
RetainedOnlyOption = Annotated[
    bool,
    typer.Option(
        "--retained-only",
        help="Retained messages only; exit at the first other one.",
        rich_help_panel=_FILTERING,
    ),
]
FilterOutOption = Annotated[
    list[str] | None,
    typer.Option(
        "-T",
        "--filter-out",
        metavar="FILTER",
        help="No messages whose topic matches. May be repeated.",
        rich_help_panel=_FILTERING,
    ),
]
VerboseOption = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Topic and payload.", rich_help_panel=_OUTPUT),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "-F",
        "--format",
        metavar="FORMAT",
        help="%t topic, %p payload, %x payload in hex, %l its length, %q QoS, %r retain flag, "
        "%m packet id, %I time, %U Unix time, %j all as JSON, %J the same with a JSON payload, "
        "%% a percent sign; %10t and %-10.10t set widths; @H is strftime's %H; \\n, \\t and "
        "\\0 as usual.",
        rich_help_panel=_OUTPUT,
    ),
]
NoNewlineOption = Annotated[
    bool,
    typer.Option("-N", help="No line end after each message.", rich_help_panel=_OUTPUT),
]


@options.connecting("sub")
def sub(
    connection: ConnectionOptions,
    topic: TopicsOption = None,
    qos: QosOption = 0,
    disable_clean_session: DurableOption = False,
    unsubscribe: UnsubscribeOption = None,
    count: CountOption = None,
    exit_after_subscribe: ExitOption = False,
    timeout: TimeoutOption = None,
    no_stale: NoStaleOption = False,
    retained_only: RetainedOnlyOption = False,
    filter_out: FilterOutOption = None,
    verbose_output: VerboseOption = False,
    output_format: FormatOption = None,
    no_newline: NoNewlineOption = False,
) -> int:
    """Subscribe to topics and print each message as it comes.

    Runs until Ctrl-C, -C or -W ends it, and reconnects when the connection
    is lost. At QoS 1 and 2 a message is acknowledged once it is printed.
    On a terminal control characters of topics and payloads are escaped (\\n,
    \\x1b), for they could steer it; in a pipe or a file every byte is as it came.

    \b
    Examples:
      vmq sub -t 'sensors/#' -v
      vmq sub -t sensors/kitchen -C 1 -W 10
      vmq sub -t jobs -q 1 -c -i worker-1
      vmq sub -t '#' -T 'sensors/#' -F '%I %t %q %l bytes'
      vmq sub -t '#' -F %j | jq .payload
      vmq sub -L ws://127.0.0.1:8083/mqtt -t '#'
      vmq sub -L mqtts://broker.example --cert me.pem --key me.key -t '#'
    """
    from vmq.cli.mqtt.subscriber import SubscribeRun, Wanted

    filters = [*(topic or ()), *([connection.topic] if connection.topic else ())]
    if not filters and not unsubscribe:
        raise UsageError("a topic is needed: -t FILTER, or in the URL")
    if disable_clean_session and connection.is_anonymous:
        raise UsageError("-c/--disable-clean-session needs -i/--id")
    if no_stale and retained_only:
        raise UsageError("-R cannot be combined with --retained-only")
    connection = replace(connection, clean=not disable_clean_session)
    wanted = Wanted(
        filters=_filters(filters, "-t/--topic"),
        qos=qos,
        unsubscribe=_filters(unsubscribe, "-U/--unsubscribe"),
        filter_out=_filters(filter_out, "-T/--filter-out"),
        count=count,
        timeout=timeout,
        exit_after_subscribe=exit_after_subscribe,
        no_stale=no_stale,
        retained_only=retained_only,
    )
    formatter = _formatter(output_format, verbose_output)
    return asyncio.run(SubscribeRun(connection, wanted, formatter, not no_newline).run())


def _filters(texts: list[str] | None, option: str) -> tuple[str, ...]:
    return tuple(options.topic_filter(text, option) for text in texts or ())


def _formatter(output_format: str | None, is_verbose: bool) -> Formatter:
    if output_format is None:
        return verbose if is_verbose else payload_only
    try:
        return compiled(output_format)
    except FormatError as problem:
        raise UsageError(f"-F/--format: {problem}") from None
