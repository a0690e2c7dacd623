"""What a program publishes, as the broker takes it."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import pyarrow as pa

MESSAGE: Final = pa.schema(
    [("topic", pa.string()), ("payload", pa.binary()), ("qos", pa.int32()), ("retain", pa.bool_())]
)
#: Where a message says nothing else.
_QOS: Final = 1

#: Topic and payload, and perhaps QoS and RETAIN, of each; or a table of Arrow.
Messages: TypeAlias = Iterable[tuple[Any, ...]] | pa.Table


def table_of(messages: Messages) -> pa.Table:
    """Messages as a table.

    Raises:
        ValueError: they are none; the text says what is accepted.
    """
    if isinstance(messages, pa.Table):
        return _completed(messages)
    rows = [(*each, *(_QOS, False)[len(each) - 2 :]) for each in messages]
    if any(len(each) != 4 for each in rows):
        raise ValueError("a message is (topic, payload), (topic, payload, qos) or these and retain")
    columns = list(zip(*rows, strict=True)) or [()] * 4
    payloads = [each.encode() if isinstance(each, str) else each for each in columns[1]]
    try:
        arrays = [
            pa.array(values, field.type)
            for values, field in zip((columns[0], payloads, *columns[2:]), MESSAGE, strict=True)
        ]
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(f"no messages: {error}") from None
    return pa.Table.from_arrays(arrays, schema=MESSAGE)


def _completed(table: pa.Table) -> pa.Table:
    """A table with all columns, in their order."""
    missing = {"topic", "payload"} - set(table.schema.names)
    if missing:
        raise ValueError(f"messages without {', '.join(sorted(missing))}")
    columns = {
        "qos": pa.repeat(pa.scalar(_QOS, pa.int32()), table.num_rows),
        "retain": pa.repeat(pa.scalar(value=False), table.num_rows),
    }
    columns |= {name: table.column(name) for name in MESSAGE.names if name in table.schema.names}
    return pa.table([columns[name] for name in MESSAGE.names], names=MESSAGE.names).cast(MESSAGE)
