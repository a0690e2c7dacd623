"""Publishes at QoS 1 as a session does: what grows becomes one publication."""

from collections.abc import Sequence
from functools import partial

from vmq.clustering.origin.origin import Origin
from vmq.clustering.origin.outbox import Publication


def numbered(payloads: Sequence[bytes], published: list[bytes]) -> list[bytes]:
    """Payloads that are each another than all that were published before, to which they are added."""
    found = [b"%d %s" % (at, each) for at, each in enumerate(payloads, len(published))]
    published += found
    return found


def publish(
    origin: Origin,
    target: tuple[int, str],
    topic: str,
    payloads: Sequence[bytes],
    safe: list[bytes],
    are_one: bool,
) -> None:
    """Publishes; what is acknowledged comes into `safe`. `are_one`: as what a publisher sends in one pass."""
    name = topic.encode()
    told = object() if are_one else None
    run: list[bytes] = []
    for payload in payloads:
        if origin.grow(target, name, payload, False, "", told):
            run.append(payload)
        else:
            run = [payload]
            publication = Publication(name, payload, 1, 0, partial(safe.extend, run))
            origin.publish(origin.reserve([target]), publication, told)
