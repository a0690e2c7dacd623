"""`vmq why`: what would happen to a publish, and why."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from vmq.cli.admin_client import AdminClient
from vmq.cli.asking import ClientArgument, MountpointOption, asking
from vmq.cli.console import table
from vmq.cli.rows import cell, clean


def _explain(answer: Mapping[str, Any]) -> None:
    """The verdict, then the steps to it, then what becomes of the message at each subscription."""
    print(clean(answer["verdict"]))
    for names, rows in (
        (("step", "verdict", "reason"), answer["steps"]),
        (("client_id", "filter", "qos", "outcome", "reason"), answer["recipients"]),
    ):
        if rows:
            print()
            table(names, [[cell(row[name]) for name in names] for row in rows])


@asking(show=_explain)
def why(
    ask: AdminClient,
    client_id: ClientArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where it would publish.")],
    qos: Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="QoS of the publish.")] = 0,
    retain: Annotated[bool, typer.Option("--retain", "-r", help="With RETAIN.")] = False,
    size: Annotated[
        int, typer.Option("--size", metavar="BYTES", min=0, help="Bytes of the payload.")
    ] = 1,
    mountpoint: MountpointOption = "",
) -> Any:
    """Explain what would happen if CLIENT published on TOPIC now.

    Tells each step with its reason: whether the client is connected, limits
    and hooks in the way, what is retained, and for each subscription that
    matches whether it is sent, queued, stored or dropped, and why. Changes
    nothing and publishes nothing.

    \b
    Examples:
      vmq why sensor-17 sensors/17/temp
      vmq why gateway alarms/fire --qos 1 --retain --size 2000
    """
    return ask.get(
        "/why",
        client_id=client_id,
        topic=topic,
        qos=qos,
        retain=retain,
        size=size,
        mountpoint=mountpoint,
    )
