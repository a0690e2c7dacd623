"""`vmq why`: what would happen to a publish, a subscription or a delivery, and why."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from vmq.cli.admin.asking import ClientArgument, MountpointOption, asking
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import UsageError, table
from vmq.cli.terminal.rows import cell, clean


def _explain(answer: Mapping[str, Any]) -> None:
    """The verdict, then the steps to it, then what becomes of the message at each subscription."""
    print(clean(answer["verdict"]))
    if answer["remedy"]:
        print(clean(f"What would help: {answer['remedy']}"))
    for names, rows in (
        (("step", "verdict", "reason"), answer["steps"]),
        (("client_id", "filter", "qos", "outcome", "reason"), answer.get("recipients")),
    ):
        if rows:
            print()
            table(names, [[cell(row[name]) for name in names] for row in rows])


def _is_no(answer: Mapping[str, Any]) -> bool:
    return not any(answer.get(name) for name in ("arrives", "granted", "receives"))


@asking(show=_explain, is_no=_is_no)
def why(
    ask: AdminClient,
    client_id: ClientArgument,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic; with --subscribe the filter.")
    ],
    subscribe: Annotated[
        bool, typer.Option("--subscribe", help="What if CLIENT subscribed to it?")
    ] = False,
    receive: Annotated[
        bool, typer.Option("--receive", help="Would CLIENT receive what is published there?")
    ] = False,
    publisher: Annotated[
        str | None,
        typer.Option("--from", metavar="CLIENT", help="With --receive: who publishes it."),
    ] = None,
    qos: Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="The QoS.")] = 0,
    retain: Annotated[bool, typer.Option("--retain", "-r", help="Publish with RETAIN.")] = False,
    size: Annotated[
        int | None, typer.Option("--size", metavar="BYTES", min=0, help="Bytes of the payload.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="NAME",
            help="Ask the plugins as this user.",
            show_default="as CLIENT is connected",
        ),
    ] = None,
    mountpoint: MountpointOption = "",
) -> Any:
    """Explain what becomes of what a client publishes, subscribes to or misses.

    Without --subscribe and --receive: what would happen if CLIENT published on
    TOPIC now. Tells each step with its reason: whether the client is connected, limits in
    the way, what each plugin says to it (vmq_acl: file and line of the rule, or
    the rule that is missing), what is retained, and for each subscription that
    matches whether it is sent, queued, stored or dropped, and why.

    --subscribe explains a subscription; --receive why a client does not get a
    message: no subscription that matches, rights, a full queue, no session,
    QoS 0 while it is away. Changes nothing and publishes nothing; the plugins
    are asked as for a client that does it.

    The exit code is 0 if it goes through, and 1 if not.

    \b
    Examples:
      vmq why sensor-17 sensors/17/temp
      vmq why gateway alarms/fire --qos 1 --retain --size 2000
      vmq why dashboard 'sensors/#' --subscribe
      vmq why dashboard sensors/17/temp --receive --from sensor-17
    """
    if subscribe and (receive or publisher or retain or size is not None):
        raise UsageError("--subscribe goes with --qos, --user and --mountpoint only")
    if publisher is not None and not receive:
        raise UsageError("--from goes with --receive")
    if receive and (retain or user is not None):
        raise UsageError("--receive goes with --from, --qos, --size and --mountpoint only")
    who = {"client_id": client_id, "qos": qos, "mountpoint": mountpoint}
    if user is not None:
        who["user"] = user
    if subscribe:
        return ask.get("/why/subscribe", **who, filter=topic)
    message = {**who, "topic": topic, "size": 1 if size is None else size}
    if receive:
        return ask.get("/why/receive", **message, publisher=publisher or "")
    return ask.get("/why", **message, retain=retain)
