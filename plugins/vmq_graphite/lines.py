"""Graphite's plaintext protocol: `PATH VALUE TIMESTAMP`, one line a figure."""

import re
from collections.abc import Iterable
from typing import Final

from vmq_hooks import Metric

#: What a part of a path, or of a tag, must not contain.
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_:-]")


def snapshot(prefix: str, node: str, metrics: Iterable[Metric], now: int, *, labels: bool) -> bytes:
    """All figures of one moment: `mqtt_publish_received` is `PREFIX.NODE.mqtt.publish.received`.

    Args:
        prefix: put before everything, with its dots; "" = nothing.
        node: the node's name; its dots become underscores.
        metrics: the figures.
        now: seconds since 1970.
        labels: a metric's labels become tags; else it is the sum of its values.
    """
    root = f"{prefix}.{_part(node)}" if prefix else _part(node)
    sums: dict[str, float] = {}
    for metric in metrics:
        path = f"{root}.{metric.name.replace('_', '.')}"
        if labels:
            path += "".join(f";{_part(key)}={_part(value)}" for key, value in metric.labels.items())
        sums[path] = sums.get(path, 0) + metric.value
    return "".join(f"{path} {_number(value)} {now}\n" for path, value in sums.items()).encode()


def _part(text: str) -> str:
    return _STRANGE.sub("_", text) or "_"


def _number(value: float) -> str:
    return str(int(value)) if value == value // 1 else repr(float(value))
