"""Ids for clients that bring none."""

import os
from collections.abc import Iterator


def client_ids() -> Iterator[str]:
    """Ids for clients that bring none [MQTT-3.1.3-6], which nobody can guess.

    Every connection is given one before it has said whether it needs it, so they are cheap: the
    system is asked for random bytes a thousand ids at a time.
    """
    while True:
        digits = os.urandom(16 * 1000).hex()
        for start in range(0, len(digits), 32):
            yield "auto-" + digits[start : start + 32]


new_client_id = client_ids().__next__
