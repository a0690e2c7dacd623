"""The plugin: answers from the rules, and takes up new ones."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from vmq_hooks import (
    REFUSED_QOS,
    Accept,
    Broker,
    Cache,
    Checking,
    Explanation,
    Message,
    Mistake,
    Next,
    Plugin,
    Question,
    Refuse,
    SubscriberId,
    Subscription,
    hook,
)
from vmq_hooks.files import FileOptions, WatchedFile, file_option
from vmq_hooks.verdicts import PublishVerdict, SubscribeVerdict

from vmq_acl.acl import Acl, Verdict
from vmq_acl.explaining import explanation
from vmq_acl.names import Names
from vmq_acl.rules import Access, parse

#: A verdict holds until the rules change: the broker is told to forget it then.
_CACHE: Final = Cache(3600.0, frozenset({"username", "client_id", "topic"}))


class AclConfig(FileOptions, frozen=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    file: Annotated[str, file_option("The file of rules")] = "acl"
    rules: Annotated[
        list[str],
        Meta(
            description="Rules that stand here, a line each; then the file is not read.",
            extra={"accepts": "a list of texts"},
        ),
    ] = msgspec.field(default_factory=list)
    general: Annotated[
        Literal["anonymous", "everybody"],
        Meta(
            description="Whose the rules before the first user are: clients without a user name, as in mosquitto, "
            "or everybody, as in VerneMQ."
        ),
    ] = "anonymous"

    def in_place(self) -> tuple[str, str] | None:
        return ("rules", "\n".join(self.rules)) if self.rules else None


class AclPlugin(Plugin):
    """Grants and denies by a file of rules; what no rule mentions is the next plugin's to decide."""

    Config = AclConfig

    _broker: Broker
    _file: WatchedFile[Acl]

    def check(self, broker: Checking, config: AclConfig) -> Iterator[Mistake]:
        return WatchedFile.mistakes(broker, config, parse)

    def start(self, broker: Broker, config: AclConfig) -> None:
        self._broker = broker
        for_all = config.general == "everybody"

        def read(data: bytes, path: Path) -> Acl:
            return Acl(parse(data, path), general_for_all=for_all)

        self._file = WatchedFile.follow(broker, config, read, self._judge_anew)
        # What is subscribed may be older than the plugin: durable sessions, or clients that came before it.
        broker.spawn(self._judge_anew(), "acl at the start")

    async def _judge_anew(self) -> None:
        """Ends what the rules do not allow any more."""
        self._broker.forget_verdicts()
        ended = await self._broker.reauthorize()
        if ended:
            self._broker.log.info("subscriptions ended that are no longer allowed: %d", ended)

    @hook
    def auth_on_publish(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> PublishVerdict:
        names = _names(username, subscriber_id)
        match self._file.content.check(Access.WRITE, message.topic, names):
            case Verdict.GRANTED:
                return Accept(cache=_CACHE)
            case Verdict.DENIED:
                return Refuse("denied by a rule", cache=_CACHE)
        return Next(cache=_CACHE)

    @hook
    def auth_on_subscribe(
        self,
        username: str | None,
        subscriber_id: SubscriberId,
        subscriptions: Sequence[Subscription],
    ) -> SubscribeVerdict:
        acl, names = self._file.content, _names(username, subscriber_id)
        filters = [each.topic_filter for each in subscriptions]
        verdicts = acl.check_all(Access.READ, filters, names)
        if all(verdict is Verdict.GRANTED for verdict in verdicts):
            return Accept(cache=_CACHE)
        if all(verdict is Verdict.NOT_GRANTED for verdict in verdicts):
            return Next(cache=_CACHE)
        if all(verdict is Verdict.DENIED for verdict in verdicts):
            return Refuse("denied by a rule", cache=_CACHE)
        granted = [
            Subscription(each.topic_filter, each.qos if verdict is Verdict.GRANTED else REFUSED_QOS)
            for each, verdict in zip(subscriptions, verdicts, strict=True)
        ]
        return Accept(subscriptions=granted)

    async def explain(
        self, question: Question, verdict: Accept | Next | Refuse
    ) -> Explanation | None:
        """The rule that decides, by file and line, or the one that is missing."""
        return await self._broker.run_in_thread(
            explanation, self._file.content, self._file.path, question
        )


def _names(username: str | None, subscriber_id: SubscriberId) -> Names:
    return Names(username, subscriber_id.client_id, subscriber_id.mountpoint)
