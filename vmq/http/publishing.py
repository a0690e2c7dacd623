"""The operation of the API that publishes: the operator's own message, or a client's, as the plugins allow it."""

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace
from vmq_hooks import Message, Peer, SubscriberId
from vmq_hooks.modifiers import PublishModifiers, RegisterModifiers

from vmq.admin.errors import AdminError, ForbiddenError, UnavailableError
from vmq.admin.trees import Mountpoint, registry_of
from vmq.http.operation import Operation
from vmq.http.users import let_in, raise_if_refused
from vmq.plugins.chains import settled

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: The client on whose behalf somebody publishes who names none.
CLIENT_ID: Final = "http"


class MessageWanted(Struct, forbid_unknown_fields=True, kw_only=True):
    """What to publish."""

    topic: Annotated[str, Meta(min_length=1, description="A topic name, without wildcards")]
    payload: Annotated[str, Meta(description="The message")] = ""
    encoding: Annotated[Literal["text", "base64"], Meta(description="How payload is written")] = (
        "text"
    )
    qos: Literal[0, 1, 2] = 0
    retain: bool = False
    mountpoint: Mountpoint = ""
    user: (
        Annotated[
            str,
            Meta(
                description="On whose behalf: the plugins decide about this user, its password and the topic; "
                "null = it is the operator's own message, and asks nobody"
            ),
        ]
        | None
    ) = None
    password: str | None = None
    client_id: Annotated[
        str, Meta(max_length=65_535, description="The client id that the plugins see")
    ] = CLIENT_ID


class MessageTaken(Struct, frozen=True):
    """What was published; plugins may have changed it."""

    topic: str
    qos: int
    retain: bool
    mountpoint: Mountpoint


async def publish(broker: "BrokerView", wanted: MessageWanted) -> MessageTaken:
    """Publishes; returns when the broker owns the message.

    Raises:
        AdminError: topic or payload are impossible.
        NotAuthenticatedError, ForbiddenError: a plugin does not let the user in, or publish this.
        UnavailableError: nobody could decide, or the store cannot write.
    """
    message = Message(wanted.topic, _payload(wanted), wanted.qos, wanted.retain)
    registry_of(broker, wanted.mountpoint)
    if wanted.user is None:
        if wanted.password is not None:
            raise AdminError("password: it needs a user")
        return await _send(broker, message, wanted.mountpoint)
    if message.topic.startswith("$"):
        raise AdminError("topic: on behalf of a client none that begins with $ can be published to")
    username, who = await _let_in(broker, wanted, len(message.payload))
    changed, mountpoint = await _allowed(broker, username, who, message)
    taken = await _send(broker, changed, mountpoint)
    told = broker.hooks.on_publish
    if told is not None:
        told(username, who, changed)
    return taken


def _payload(wanted: MessageWanted) -> bytes:
    if wanted.encoding == "text":
        return wanted.payload.encode()
    try:
        return base64.b64decode(wanted.payload, validate=True)
    except (binascii.Error, ValueError):
        raise AdminError("payload: it is not base64") from None


async def _send(broker: "BrokerView", message: Message, mountpoint: str) -> MessageTaken:
    try:
        await broker.publish(
            message.topic, message.payload, message.qos, message.retain, mountpoint
        )
    except ValueError as error:
        raise AdminError(f"topic: {error}") from None
    except ConnectionError as error:
        raise UnavailableError(str(error)) from None
    return MessageTaken(message.topic, message.qos, message.retain, mountpoint)


async def _let_in(
    broker: "BrokerView", wanted: MessageWanted, size: int
) -> tuple[str | None, SubscriberId]:
    """Who it is that publishes, as the plugins see it."""
    assert wanted.user is not None
    who = SubscriberId(wanted.client_id, wanted.mountpoint)
    peer = Peer("", 0, "http", "local")
    answer = await let_in(broker, wanted.user, wanted.password, who, peer)
    username: str | None = wanted.user
    limit = broker.config.limits.max_message_size
    if isinstance(answer, RegisterModifiers):
        username = answer.username if answer.username is not None else username
        who = answer.subscriber_id or who
        limit = answer.max_message_size if answer.max_message_size is not None else limit
    if limit and size > limit:
        raise AdminError(f"payload: of {size} bytes; accepted: at most {limit}")
    return username, who


async def _allowed(
    broker: "BrokerView", username: str | None, who: SubscriberId, message: Message
) -> tuple[Message, str]:
    """The message as the plugins let it through, and the topic tree that it goes to."""
    ask = broker.hooks.auth_on_publish
    answer = None if ask is None else await settled(ask(username, who, message))
    raise_if_refused(answer, ForbiddenError)
    if not isinstance(answer, PublishModifiers):
        return message, who.mountpoint
    names = ("topic", "payload", "qos", "retain")
    stated = {name: getattr(answer, name) for name in names}
    changes = {name: value for name, value in stated.items() if value is not None}
    return replace(message, **changes), (
        who.mountpoint if answer.mountpoint is None else answer.mountpoint
    )


PUBLISH: Final = Operation(
    "publish",
    "POST",
    "/publish",
    "Publish a message, as the operator's own or on behalf of a user",
    MessageWanted,
    MessageTaken,
    lambda context, wanted: publish(context.broker, wanted),
    change=False,
)
