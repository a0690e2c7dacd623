"""How long this thread computes while others wait for the processor, which decides who goes first.

Linux gives each thread turns of some thousandths of a second. Whoever becomes ready waits for the end of the turn that
somebody else has, unless its own turns are shorter (EEVDF with its PREEMPT_SHORT, Linux 6.12): then it goes first. So a
message waits no longer for programs that compute on the same machine, such as Spark's. Its share of the processor stays
the same, and no privilege is needed.

The price: where clients compete for the processor too, a broker that goes first finds less to do each time, and a
message of QoS 1 costs it a fifth to two fifths more. So it is for brokers that serve streams.
"""

import ctypes
import os
import platform
import sys
from typing import Final

#: Seconds of a turn of the event loop; the least that Linux knows.
SHORT: Final = 0.0001

#: Seconds after which a thread that computes lets another one have the interpreter.
SWITCH_INTERVAL: Final = 0.0001

#: Numbers of sched_setattr(2); it has no function in older C libraries. The rest is sched_getattr's, one more.
_SYSTEM_CALLS: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
#: Threads and programs that are started later have turns as usual.
_RESET_ON_FORK: Final = 0x01


class _Attributes(ctypes.Structure):
    """struct sched_attr, as of Linux 3.14."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def take_short_turns() -> bool:
    """Has the calling thread go first when it becomes ready; returns whether the system lets itself be told.

    A real-time or batch policy that somebody gave the thread stays as it is.
    """
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None:
        return False
    attributes = _attributes(number, 0)
    if attributes is None or attributes.policy != os.SCHED_OTHER:
        return False
    attributes.flags |= _RESET_ON_FORK
    attributes.runtime = round(SHORT * 1e9)
    return _call(number, 0, ctypes.byref(attributes), 0)


def share_interpreter() -> None:
    """Threads have the event loop's interpreter from now on: none keeps it for long."""
    sys.setswitchinterval(min(SWITCH_INTERVAL, sys.getswitchinterval()))


def turn(thread: int = 0) -> float:
    """Seconds of a turn of a thread, by its id, or of the calling one; 0 where the system does not say."""
    number = _SYSTEM_CALLS.get(platform.machine())
    attributes = None if number is None else _attributes(number, thread)
    return 0.0 if attributes is None else attributes.runtime / 1e9


def _attributes(number: int, thread: int) -> _Attributes | None:
    attributes = _Attributes()
    size = ctypes.sizeof(attributes)
    found = _call(number + 1, thread, ctypes.byref(attributes), size, 0)
    return attributes if found else None


def _call(number: int, *arguments: object) -> bool:
    return bool(ctypes.CDLL(None).syscall(number, *arguments) == 0)
