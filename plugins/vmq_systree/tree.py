"""Which messages the figures make."""

from collections.abc import Iterable, Iterator

from vmq_hooks import Metric

_RESERVED = str.maketrans("+#/\0", "____")


def messages(prefix: str, node: str, metrics: Iterable[Metric]) -> Iterator[tuple[str, bytes]]:
    """Topic and payload of each metric: `mqtt_publish_received` is `PREFIX/NODE/mqtt/publish/received`.

    A metric with labels is the sum of its values, as in VerneMQ.
    """
    sums: dict[str, float] = {}
    for metric in metrics:
        sums[metric.name] = sums.get(metric.name, 0) + metric.value
    root = f"{prefix}/{node.translate(_RESERVED)}"
    for name, value in sums.items():
        yield f"{root}/{name.replace('_', '/')}", number(value).encode()


def number(value: float) -> str:
    """A figure as text; whole ones without a decimal point."""
    return str(int(value)) if value == value // 1 else repr(float(value))
