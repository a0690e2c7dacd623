"""The operations of the API on options and figures; see `vmq.http.operations`."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from vmq.admin import (
    metrics,
    options,
)
from vmq.config.text import toml_value
from vmq.http.operation import Context, List, Operation
from vmq.http.operations.common import listed


class SetOption(Struct, forbid_unknown_fields=True):
    """What to change."""

    option: Annotated[str, Meta(description="As in queue.max_online_messages")]
    value: Annotated[
        str | int | float | bool,
        Meta(
            description="A text is read as the configuration file writes values, or as plain text"
        ),
    ]


def _set_option(context: Context, wanted: SetOption) -> options.OptionChanged:
    value = wanted.value if isinstance(wanted.value, str) else toml_value(wanted.value)
    return options.set_option(context.broker, wanted.option, value)


class OneOption(Struct, forbid_unknown_fields=True):
    """Which option."""

    option: Annotated[str, Meta(description="As in queue.max_online_messages")]


OPTION_OPERATIONS: Final = (
    Operation(
        "list_metrics",
        "GET",
        "/metrics",
        "List the metrics",
        List,
        metrics.MetricRow,
        lambda context, wanted: metrics.list_metrics(context.broker, wanted),
        many=True,
    ),
    Operation(
        "list_options",
        "GET",
        "/options",
        "List the options and whether each may change live",
        List,
        options.OptionRow,
        lambda context, wanted: listed(
            options.OptionRow, options.list_options(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "set_option",
        "POST",
        "/option",
        "Set an option until its configuration changes, it is reset, or the broker stops",
        SetOption,
        options.OptionChanged,
        _set_option,
    ),
    Operation(
        "reset_option",
        "DELETE",
        "/option",
        "Take back what was set: the option is as configured again",
        OneOption,
        options.OptionChanged,
        lambda context, wanted: options.reset_option(context.broker, wanted.option),
    ),
)
