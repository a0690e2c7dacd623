"""The `vmq` program, also as `python -m vmq`."""

import sys
from typing import Final, NoReturn

#: What a shell expects of a program that was interrupted from the keyboard: 128 + SIGINT.
INTERRUPTED: Final = 130


def run() -> NoReturn:
    """The entry point. It imports nothing much before it can be interrupted: that takes a while."""
    try:
        from vmq.cli import main

        main.run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    run()
