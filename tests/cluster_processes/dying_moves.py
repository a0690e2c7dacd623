"""`python -m vmq ...` that ends by SIGKILL while its sessions come into slots, or leave them.

dying_moves.py STEP python -m vmq start ...
"""

import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(_done: Callable[..., Any]) -> Callable[..., Any]:
    return die


def after(done: Callable[..., Any]) -> Callable[..., Any]:
    def dying(*given: Any) -> None:
        done(*given)
        die()

    return dying


def main() -> None:
    sys.path[0] = str(Path.cwd())  # as with -m
    step, _python, _m, program, *arguments = sys.argv[1:]
    from vmq.clustering.running.disk import SlotDisk
    from vmq.clustering.running.migration import Migration
    from vmq.clustering.running.returning import Return

    when = {
        "when they are in slots": (SlotDisk, "import_all", after),
        "when the store is about to forget them": (Migration, "run", after),
        "when the store has forgotten them": (Migration, "finish", before),
        "when some are in the store": (Return, "commit", after),
        "when all are in the store": (Return, "run", after),
        "when slots are put away": (Path, "rename", after),
    }
    of, name, wrap = when[step]
    setattr(of, name, wrap(getattr(of, name)))
    sys.argv = [program, *arguments]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
