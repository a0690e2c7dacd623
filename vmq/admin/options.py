"""Options that may change while the broker runs.

What is set here holds until the option changes in the configuration that the broker reads, until it is reset, or until
the broker stops.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.config.options import ConfigError, value_of
from vmq.config.reload import ReloadError, live_keys
from vmq.config.settable import Settable
from vmq.config.text import HIDDEN, SECRETS, toml_value, without_secrets

Value = Annotated[
    str | int | float | bool | None, Meta(description="Lists and tables as the file writes them")
]

_LOG: Final = "log."


class OptionRow(Struct, frozen=True, kw_only=True):
    """One option of the configuration."""

    option: str
    value: Value
    live: Annotated[bool, Meta(description="Whether it may change while the broker runs")]
    configured: Annotated[Value, Meta(description="What file, environment and command line say")]
    set_at: Annotated[
        str | None, Meta(description="When it was set live (UTC); null = it is as configured")
    ] = None


class OptionChanged(Struct, frozen=True, kw_only=True):
    """What a change of an option did."""

    option: str
    before: Value
    value: Value
    configured: Value


def list_options(broker: Settable) -> list[OptionRow]:
    """Every option, and whether each may change live."""
    overrides = broker.live.overrides
    rows: list[OptionRow] = []
    for option, live in live_keys(broker.config).items():
        override = overrides.get(option)
        rows.append(
            OptionRow(
                option=option,
                value=_shown(option, value_of(broker.config, option)),
                live=live,
                configured=_shown(option, value_of(broker.live.base, option)),
                set_at=None if override is None else _when(override.since),
            )
        )
    return rows


def set_option(broker: Settable, option: str, value: str) -> OptionChanged:
    """Changes an option of the running broker; `value` is written as in the file, or as plain text.

    Raises:
        AdminError: there is no such option, or it does not accept the value.
        RefusedError: it cannot change while the broker runs.
    """
    live = live_keys(broker.config)
    if option in live and not live[option]:
        raise RefusedError(
            f"{option} cannot change while the broker runs: change the configuration and restart it"
        )
    if option.startswith(_LOG) and broker.on_change is None:
        raise RefusedError(f"{option}: the log belongs to the program that embeds this broker")
    before = _shown(option, value_of(broker.config, option)) if option in live else None
    try:
        broker.set_option(option, value)
    except ConfigError as error:
        raise AdminError(str(error)) from None
    except ReloadError as error:
        raise RefusedError(str(error)) from None
    return _changed(broker, option, before)


def reset_option(broker: Settable, option: str) -> OptionChanged:
    """Takes back what was set: the option is as configured again.

    Raises:
        AdminError: there is no such option.
        NotFoundError: it is as configured.
    """
    if option not in live_keys(broker.config):
        raise NotFoundError(f"there is no option {option!r} (see vmq set)")
    before = _shown(option, value_of(broker.config, option))
    try:
        broker.reset_option(option)
    except KeyError:
        names = ", ".join(broker.live.overrides) or "none"
        raise NotFoundError(f"{option} is as configured; set live: {names}") from None
    except (ConfigError, ReloadError) as error:
        raise RefusedError(str(error)) from None
    return _changed(broker, option, before)


def _changed(broker: Settable, option: str, before: Any) -> OptionChanged:
    return OptionChanged(
        option=option,
        before=before,
        value=_shown(option, value_of(broker.config, option)),
        configured=_shown(option, value_of(broker.live.base, option)),
    )


def _when(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    return when.removesuffix("+00:00") + "Z"


def _shown(option: str, value: object) -> Any:
    if value is None or isinstance(value, int | float | bool):
        return value
    if option.endswith(SECRETS):
        return HIDDEN
    return value if isinstance(value, str) else toml_value(without_secrets(value))
