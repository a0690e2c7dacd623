"""What clients may write as `where`: a part of CEL that ends soon.

Nothing is evaluated here. What could loop, or take a time that grows faster than the row, is refused by its name; and
what is let through runs in another process, with a deadline (`vmq.streams.replay.where`).
"""

import re
from typing import Final

from vmq.config.expressions import TEXT
from vmq.mqtt.special import SpecialTopicError

LONGEST: Final = 4096
FUNCTIONS: Final = frozenset(
    [
        "bool",
        "bytes",
        "contains",
        "double",
        "duration",
        "endsWith",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getFullYear",
        "getHours",
        "getMilliseconds",
        "getMinutes",
        "getMonth",
        "getSeconds",
        "has",
        "int",
        "size",
        "startsWith",
        "string",
        "timestamp",
        "type",
        "uint",
    ]
)
#: What it may look at.
VARIABLES: Final = (
    "topic",
    "levels",
    "payload",
    "time",
    "qos",
    "retain",
    "client_id",
    "offset",
    "partition",
)
_CALL: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*\(")


def check_expression(text: str) -> None:
    """Refuses what a client may not write.

    Raises:
        SpecialTopicError: with the reason.
    """
    if not text.strip():
        raise SpecialTopicError(
            "where= is empty; accepted: an expression as in payload.temp > 20.0"
        )
    if len(text.encode()) > LONGEST:
        raise SpecialTopicError(f"where= has more than {LONGEST} bytes")
    for name in _CALL.findall(TEXT.sub('""', text)):
        if name not in FUNCTIONS and name != "in":
            accepted = ", ".join(sorted(FUNCTIONS))
            raise SpecialTopicError(f"where= may not call {name[:80]}; accepted: {accepted}")
