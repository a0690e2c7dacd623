"""The labels of a plugin's own figures: what tells those of one name apart."""

from collections.abc import Mapping
from typing import Final

Labels = tuple[tuple[str, str], ...]

#: Labels of one figure.
MAX_LABELS: Final = 8
#: Characters of a label's value.
MAX_VALUE: Final = 200
#: Counters of one plugin, and samples of one gauge: each costs memory here and in whoever collects them.
MAX_SAMPLES: Final = 1000
#: What a label says of the counters beyond that, which count as one.
OTHERS: Final = "(others)"

#: The broker's own, and Prometheus's.
_RESERVED: Final = frozenset({"plugin", "worker", "le", "quantile"})


def check_name(name: str, what: str) -> None:
    """Refuses what cannot name `what`.

    Raises:
        ValueError: it cannot.
    """
    if not (name.isidentifier() and name.isascii()):
        raise ValueError(f"{name!r} is no name of {what}; accepted: letters, digits and _")


def check_labels(labels: Mapping[str, object] | None) -> Labels:
    """The labels in one form, whatever their order.

    Raises:
        ValueError: they are too many, a name is none or taken, or a value is no text or too long.
    """
    if not labels:
        return ()
    if len(labels) > MAX_LABELS:
        raise ValueError(f"{len(labels)} labels; accepted: up to {MAX_LABELS}")
    found: list[tuple[str, str]] = []
    for name, value in labels.items():
        check_name(name, "a label")
        if name in _RESERVED or name.startswith("__"):
            raise ValueError(f"label {name!r} is taken; accepted: another name")
        if not isinstance(value, str) or len(value) > MAX_VALUE:
            raise ValueError(
                f"label {name} = {str(value)[:MAX_VALUE]!r}; accepted: a text of up to {MAX_VALUE} characters"
            )
        found.append((name, value))
    return tuple(sorted(found))


def shown(name: str, labels: Labels) -> str:
    """A figure's name with its labels, as Prometheus writes them."""
    if not labels:
        return name
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels) + "}"
