"""The `vmq` program, also as `python -m vmq`."""

import signal
import sys
from typing import Final, NoReturn

#: What a shell expects of a program that was interrupted from the keyboard: 128 + SIGINT.
INTERRUPTED: Final = 130


def run() -> NoReturn:
    """The entry point. It imports nothing much before signals are in order: that takes a while."""
    if sys.argv[1:2] == ["start"]:
        # By default they end a process, also one that only begins: they wait for `on_requests` of a broker.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGUSR1))
    try:
        from vmq.cli import main

        main.run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    run()
