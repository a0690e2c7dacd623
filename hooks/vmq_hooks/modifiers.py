"""What a hook may change besides saying yes. Names are VerneMQ's.

A plugin may return these classes or a mapping with the same keys; the broker checks the types and
refuses unknown keys by name.
"""

from typing import Any, Literal, TypeVar

import msgspec

from vmq_hooks.types import SubscriberId


class RegisterModifiers(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What `auth_on_register` may change for this session. Unset fields stay as configured."""

    subscriber_id: SubscriberId | None = None
    username: str | None = None
    clean_session: bool | None = None
    max_message_size: int | None = None
    #: Messages a second.
    max_message_rate: int | None = None
    #: Seconds.
    max_connection_lifetime: int | None = None
    max_inflight_messages: int | None = None
    max_online_messages: int | None = None
    max_offline_messages: int | None = None
    queue_type: Literal["fifo", "lifo"] | None = None
    max_msgs_per_drain_step: int | None = None
    #: Milliseconds. Taken for the sake of VerneMQ's scripts, without effect: a session moves to another node
    #: without a pause that could be too long.
    max_drain_time: int | None = None
    #: Milliseconds, as VerneMQ's hooks have it; the configuration counts seconds.
    retry_interval: int | None = None
    upgrade_qos: bool | None = None
    shared_subscription_policy: (
        Literal["prefer_local", "random", "local_only", "prefer_online_before_local"] | None
    ) = None
    #: What stays allowed while a member of the cluster cannot be reached, whatever cluster.allow_... says.
    allow_register: bool | None = None
    allow_publish: bool | None = None
    allow_subscribe: bool | None = None
    allow_unsubscribe: bool | None = None


class PublishModifiers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What `auth_on_publish` may change in the message."""

    topic: str | None = None
    payload: bytes | None = None
    qos: Literal[0, 1, 2] | None = None
    retain: bool | None = None
    mountpoint: str | None = None
    #: Milliseconds for which the publisher is not read; slows it down.
    throttle: int | None = None


class DeliverModifiers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What `on_deliver` may change for one receiver."""

    topic: str | None = None
    payload: bytes | None = None


Modifiers = TypeVar("Modifiers", RegisterModifiers, PublishModifiers, DeliverModifiers)


class ModifierError(ValueError):
    """A plugin answered with modifiers that there are not, or of a wrong type."""


def check_modifiers(given: Any, kind: type[Modifiers]) -> Modifiers:
    """The modifiers that a plugin answered with, checked.

    Raises:
        ModifierError: unknown key, wrong type; the text names the key and what is accepted.
    """
    if isinstance(given, kind):
        given = {
            name: value
            for name in kind.__struct_fields__
            if (value := getattr(given, name)) is not None
        }
    try:
        # Without this a text would be read as bytes in base64.
        return msgspec.convert(dict(given), kind, builtin_types=(bytes,))
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ModifierError(f"{kind.__name__}: {error}") from None
