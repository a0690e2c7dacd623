"""`python -m vmq ...` that ends by SIGKILL in the middle of a batch which a program publishes.

    dying.py before|after COUNT python -m vmq start ...

It dies at the COUNTth time that it waits for something of the batch to be safe: before, or as soon as it is.
"""

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    sys.path[0] = str(Path.cwd())  # as with -m
    when, count, _python, _m, program, *arguments = sys.argv[1:]
    from vmq.streams.serving import sinks

    settled, left = sinks.settled, int(count)

    async def dying(step: Any) -> None:
        nonlocal left
        left -= 1
        if when == "after" or left:
            await settled(step)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    sinks.settled = dying
    sys.argv = [program, *arguments]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
