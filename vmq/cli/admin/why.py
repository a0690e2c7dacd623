"""`vmq why`: what would happen to a publish, a subscription or a delivery, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from vmq.cli.admin.asking import MountpointOption, asking, is_job_id
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


@dataclass
class Explained:
    """What becomes of what is to be explained."""

    client_id: str
    topic: str
    qos: int
    retain: bool
    size: int | None
    user: str | None
    mountpoint: str

    def ask(
        self, broker: AdminClient, subscribe: bool, receive: bool, publisher: str | None
    ) -> Any:
        """What the broker says to it.

        Raises:
            UsageError: the options do not go together.
        """
        if subscribe and (receive or publisher or self.retain or self.size is not None):
            raise UsageError("--subscribe goes with --qos, --user and --mountpoint only")
        if publisher is not None and not receive:
            raise UsageError("--from goes with --receive")
        if receive and (self.retain or self.user is not None):
            raise UsageError("--receive goes with --from, --qos, --size and --mountpoint only")
        who = {"client_id": self.client_id, "qos": self.qos, "mountpoint": self.mountpoint}
        if self.user is not None:
            who["user"] = self.user
        if subscribe:
            return broker.get("/why/subscribe", **who, filter=self.topic)
        message = {**who, "topic": self.topic, "size": 1 if self.size is None else self.size}
        if receive:
            return broker.get("/why/receive", **message, publisher=publisher or "")
        return broker.get("/why", **message, retain=self.retain)


def _is_no(answer: Mapping[str, Any]) -> bool:
    return not any(answer.get(name) for name in ("arrives", "granted", "receives", "given"))


@asking(show=_explain, is_no=_is_no)
def why(
    ask: AdminClient,
    client_id: Annotated[
        str, typer.Argument(metavar="CLIENT|JOB", help="The client id, or the id of a job.")
    ],
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="The topic; with --subscribe the filter."),
    ] = None,
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
    QoS 0 while it is away. The id of a job alone tells where that is, and what has
    to happen before a worker gets it. Changes nothing and publishes nothing; the plugins
    are asked as for a client that does it.

    The exit code is 0 if it goes through, and 1 if not.

    \b
    Examples:
      vmq why sensor-17 sensors/17/temp
      vmq why gateway alarms/fire --qos 1 --retain --size 2000
      vmq why dashboard 'sensors/#' --subscribe
      vmq why dashboard sensors/17/temp --receive --from sensor-17
      vmq why D-1f3a9c04-LYyQMK4fgYJLigrQnwiD1GW2-05a1
    """
    if topic is None:
        if not is_job_id(client_id):
            raise UsageError(f"TOPIC is missing; only a job's id goes alone, not {client_id!r}")
        return ask.get("/why/job", id=client_id)
    asked = Explained(client_id, topic, qos, retain, size, user, mountpoint)
    return asked.ask(ask, subscribe, receive, publisher)
