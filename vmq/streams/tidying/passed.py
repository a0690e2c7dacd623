"""How long ago something was, by a clock that may be set: what that was set ahead by has not passed.

It is known for as long as the machine runs, from a clock that nobody sets (CLOCK_BOOTTIME), also between two lives of
the broker. Of a machine that was off the wall clock alone knows for how long.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from vmq_hooks.replacing import replace_file

log = logging.getLogger("vmq.streams")

#: Nanoseconds: a clock that differs by less was not set.
_STEP: Final = 60 * 10**9
#: Spans that are kept; of more the two oldest are taken for one, so that nothing is older for it.
_MOST: Final = 100


class _PassedKept(msgspec.Struct, array_like=True):
    boot: str
    #: Nanoseconds that the wall clock was ahead of the other, when that was looked at last.
    ahead: int
    #: Nanoseconds since 1970, from and to, that did not pass; in their order.
    spans: list[tuple[int, int]]


#: Made before there are threads.
_DECODER: Final = msgspec.json.Decoder(_PassedKept)


class PassedTime:
    """What has passed by the wall clock of a broker, less what that was set ahead by; threads may ask.

    Args:
        path: the file that keeps it.
        since_boot: nanoseconds by a clock that nobody sets.
        ahead: nanoseconds by which the wall clock is ahead of that one.
        boot: names the time in which that goes on; empty: unknown.
    """

    def __init__(
        self, path: Path, since_boot: Callable[[], int], ahead: Callable[[], int], boot: str
    ) -> None:
        self._path = path
        self._since_boot = since_boot
        self._ahead = ahead
        self._lock = threading.Lock()
        before = self._read()
        if before is not None and boot and before.boot == boot:
            self._kept = before
        else:
            self._kept = _PassedKept(boot, ahead(), [] if before is None else before.spans)
            self._write()

    def now(self, age: float | None) -> float:
        """Seconds since 1970, `age` seconds after the moment that is so long ago; None: it is the time as it is."""
        with self._lock:
            ahead = self._ahead()
            now = at = self._since_boot() + ahead
            if abs(ahead - self._kept.ahead) >= _STEP:
                self._was_set(now, ahead - self._kept.ahead)
            if age is None:
                return now / 1e9
            left = int(age * 1e9)
            for began, ended in reversed(self._kept.spans):
                if at - ended >= left:
                    break
                left -= max(0, at - ended)
                at = began
            return (at - left) / 1e9 + age

    def _was_set(self, now: int, step: int) -> None:
        kept = self._kept
        if step > 0:
            log.warning(
                "the clock was set ahead by %.0f s: retention goes by the time that passed",
                step / 1e9,
            )
            kept.spans.append((now - step, now))
            if len(kept.spans) > _MOST:
                kept.spans[:2] = [(kept.spans[0][0], kept.spans[1][1])]
        else:
            kept.spans = [(each[0], min(now, each[1])) for each in kept.spans if each[0] < now]
        kept.ahead += step
        self._write()

    def _read(self) -> _PassedKept | None:
        try:
            return _DECODER.decode(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("the clock is taken for one that was not set: %s: %s", self._path, error)
            return None

    def _write(self) -> None:
        try:
            replace_file(self._path, msgspec.json.encode(self._kept) + b"\n")
        except OSError as error:
            log.error("it cannot be kept that the clock was set: %s: %s", self._path, error)
