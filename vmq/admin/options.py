"""Options that may change while the broker runs. A change lasts until the broker stops or reloads its configuration."""

import logging
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from vmq.admin.errors import AdminError, RefusedError
from vmq.config import Config, ConfigError, changed
from vmq.reload import ReloadError, live_keys

if TYPE_CHECKING:
    from vmq.broker import Broker

LOG_LEVEL: Final = "log.level"


class OptionRow(Struct, frozen=True, kw_only=True):
    """One option of the configuration."""

    option: str
    value: str | int | float | bool | None
    live: bool


class OptionChanged(Struct, frozen=True, kw_only=True):
    """What a change of an option did."""

    option: str
    before: str | int | float | bool | None
    value: str | int | float | bool | None


def list_options(broker: "Broker") -> list[OptionRow]:
    """The options that have one value (listeners have a list of their own), and whether each may change live."""
    return [
        OptionRow(option=option, value=_value(broker.config, option), live=live)
        for option, live in live_keys().items()
    ]


def set_option(broker: "Broker", option: str, value: str) -> OptionChanged:
    """Changes an option of the running broker; `value` is written as in the file, or as plain text.

    Raises:
        AdminError: there is no such option, or it does not accept the value.
        RefusedError: it cannot change while the broker runs.
    """
    live = live_keys()
    if option in live and not live[option]:
        raise RefusedError(
            f"{option} cannot change while the broker runs: change the configuration and restart it"
        )
    try:
        config = changed(broker.config, option, value)
    except ConfigError as error:
        raise AdminError(str(error)) from None
    if option not in live:
        raise RefusedError(f"{option} cannot change while the broker runs")
    before = _value(broker.config, option)
    try:
        broker.reload(config)
    except ReloadError as error:
        raise RefusedError(str(error)) from None
    if option == LOG_LEVEL:
        logging.getLogger("vmq").setLevel(config.log.level.upper())
    return OptionChanged(option=option, before=before, value=_value(config, option))


def _value(config: Config, option: str) -> str | int | float | bool | None:
    section, _, name = option.partition(".")
    value: object = getattr(getattr(config, section), name)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
