"""How large an attack is: small in the ordinary suite, as it was found in `make attack`."""

import os
from typing import Final

FULL: Final = os.environ.get("ATTACK") == "full"


def size(small: int, full: int) -> int:
    """The number for this run: clients, bytes or messages."""
    return full if FULL else small
