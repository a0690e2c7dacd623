"""Options that may change while the broker runs. The change lasts until the broker stops."""

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from vmq.admin.errors import AdminError, RefusedError
from vmq.config import Config, ConfigError, changed

if TYPE_CHECKING:
    from vmq.broker import Broker

#: Sections whose options may change live, but for those of `FIXED`.
LIVE_SECTIONS: Final = ("queue", "session", "limits")

#: Why some of them may not.
FIXED: Final = {
    "queue.queue_type": "the messages that wait are laid out in this order",
    "session.max_packet_size": "WebSocket listeners take it when they open",
    "limits.max_memory": "the watch of the memory takes it at the start",
}

#: When a change takes hold, where that is not at once.
TAKES_HOLD: Final = {
    "session.mqtt_connect_timeout": "connections from now on",
    "session.max_client_id_size": "connections from now on",
    "limits.max_message_rate": "connections from now on",
    "limits.max_byte_rate": "connections from now on",
    "limits.topic_max_depth": "topics that have no route yet, and subscriptions from now on",
    "limits.max_subscriptions_per_client": "subscriptions from now on",
}


class OptionRow(Struct, frozen=True, kw_only=True):
    """One option of the configuration."""

    option: str
    value: str | int | float | bool | None
    live: bool
    note: str


class OptionChanged(Struct, frozen=True, kw_only=True):
    """What a change of an option did."""

    option: str
    before: str | int | float | bool | None
    value: str | int | float | bool | None
    takes_hold: str


def why_not_live(option: str) -> str:
    """Why an option cannot change while the broker runs; "" if it can."""
    if option in FIXED:
        return FIXED[option]
    if option == "log.level" or option.partition(".")[0] in LIVE_SECTIONS:
        return ""
    return "it is read at the start only"


def list_options(broker: "Broker") -> list[OptionRow]:
    """The options that have one value (listeners have a list of their own)."""
    rows: list[OptionRow] = []
    for section in Config.__struct_fields__:
        if section == "listeners":
            continue
        table = getattr(broker.config, section)
        for name in table.__struct_fields__:
            option = f"{section}.{name}"
            note = why_not_live(option)
            rows.append(
                OptionRow(
                    option=option,
                    value=_plain(getattr(table, name)),
                    live=not note,
                    note=note or TAKES_HOLD.get(option, ""),
                )
            )
    return rows


def set_option(broker: "Broker", option: str, value: str) -> OptionChanged:
    """Changes an option until the broker stops; `value` is written as in the file, or as plain text.

    Raises:
        AdminError: there is no such option, or it does not accept the value.
        RefusedError: it cannot change while the broker runs.
    """
    section, _, name = option.partition(".")
    table = getattr(broker.config, section, None) if section in Config.__struct_fields__ else None
    exists = isinstance(table, msgspec.Struct) and name in table.__struct_fields__
    if exists and (reason := why_not_live(option)):
        raise RefusedError(
            f"{option} cannot change while the broker runs: {reason}. "
            "Change the configuration and restart"
        )
    try:
        config = changed(broker.config, option, value)
    except ConfigError as error:
        raise AdminError(str(error)) from None
    if not exists:
        raise RefusedError(f"{option} cannot change while the broker runs")
    before = getattr(table, name)
    broker.apply(config)
    return OptionChanged(
        option=option,
        before=_plain(before),
        value=_plain(getattr(getattr(config, section), name)),
        takes_hold=TAKES_HOLD.get(option, "at once"),
    )


def _plain(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
