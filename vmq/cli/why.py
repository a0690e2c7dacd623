"""`vmq why`: what would happen to a publish, and why."""

from typing import Annotated

import typer

from vmq.cli.admin_client import AdminClient
from vmq.cli.console import table
from vmq.cli.rows import JsonOption, clean
from vmq.cli.session import ClientArgument
from vmq.cli.settings import ConfigOption, DataDirOption


def why(
    client_id: ClientArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where it would publish.")],
    qos: Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="QoS of the publish.")] = 0,
    retain: Annotated[bool, typer.Option("--retain", "-r", help="With RETAIN.")] = False,
    size: Annotated[
        int, typer.Option("--size", metavar="BYTES", min=0, help="Bytes of the payload.")
    ] = 1,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
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
    row = AdminClient(config, data_dir).get(
        "/why", client_id=client_id, topic=topic, qos=qos, retain=retain, size=size
    )
    if as_json:
        import json

        print(json.dumps(row, indent=2, ensure_ascii=False))
        return
    print(clean(row["verdict"]))
    steps = [(each["step"], each["verdict"], clean(each["reason"])) for each in row["steps"]]
    table(("step", "verdict", "reason"), steps)
    if row["recipients"]:
        names = ("client_id", "filter", "qos", "outcome", "reason")
        rows = [[clean(str(each[name])) for name in names] for each in row["recipients"]]
        table(names, rows)
