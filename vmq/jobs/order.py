"""The order of what has a name and a number, for who walks through it some at a time.

A dictionary is walked from its front alone. This is beside one: the names in parts, of which each begins at a number,
so that a walk goes on at any number without passing those before it. Nothing is done when something goes: its name
leaves when its part is looked at next.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final

from mypy_extensions import i64

#: Names of a part; twice as many become two.
_PART: Final = 256
#: Parts that are looked through for names that are gone, if most are, when another part begins.
_TIDIED: Final = 2
_LEAST: Final = -(1 << 63)


class NameOrder:
    """Names in the order of their numbers.

    Args:
        there: what there is, by its name.
        number_of: the number of what has a name.
    """

    def __init__(self, there: Mapping[bytes, object], number_of: Callable[[bytes], int]) -> None:
        self.there = there
        self.number_of = number_of
        #: Each part, and from which number on it has what there is; of those that are gone, some.
        self.firsts: list[int] = [_LEAST]
        self.parts: list[list[bytes]] = [[]]
        #: Names of all parts, and the part that is looked through next.
        self.size: i64 = 0
        self._next: i64 = 0
        self._highest = _LEAST

    def add(self, name: bytes, number: int) -> None:
        """There is something new; mostly with the highest number."""
        self.size += 1
        if number > self._highest:
            self._highest = number
            part = self.parts[-1]
            if len(part) < 2 * _PART:
                part.append(name)
            else:
                self._begin(len(self.parts), number, [name])
            return
        at: i64 = bisect_right(self.firsts, number) - 1
        part = self.parts[at]
        part.append(name)
        if len(part) % (2 * _PART) == 0:
            self._halve(at)

    def after(self, number: int, limit: int) -> list[bytes]:
        """Names of what is there, with higher numbers than this: so many at most, in their order."""
        found: list[bytes] = []
        at: i64 = bisect_right(self.firsts, number) - 1
        while at < len(self.parts):
            for each, name in self._look_at(at):
                if each > number:
                    found.append(name)
                    if len(found) >= limit:
                        return found
            if not self._drop(at):
                at += 1
        return found

    def tidy(self, most: int = 40) -> bool:
        """Forgets names that are gone, if those are more than half, in some parts; whether there are more."""
        for _ in range(most):
            if self.size <= 2 * len(self.there) + 2 * _PART:
                return False
            if self._next >= len(self.parts):
                self._next = 0
            self._look_at(self._next)
            if not self._drop(self._next):
                self._next += 1
        return True

    def _look_at(self, at: i64) -> list[tuple[int, bytes]]:
        """What a part has, in its order; the others' names leave it."""
        first = self.firsts[at]
        end = self.firsts[at + 1] if at + 1 < len(self.firsts) else 1 << 63
        found: list[tuple[int, bytes]] = []
        for name in dict.fromkeys([name for name in self.parts[at] if name in self.there]):
            number = self.number_of(name)
            if first <= number < end:
                found.append((number, name))
        found.sort()
        self.size -= len(self.parts[at]) - len(found)
        self.parts[at] = [name for _, name in found]
        return found

    def _drop(self, at: i64) -> bool:
        """Whether a part is no more, since it had nothing: the one before it goes on to where it ended."""
        if self.parts[at] or at == 0:
            return False
        del self.parts[at], self.firsts[at]
        return True

    def _halve(self, at: i64) -> None:
        """A part has too many names: unless most are gone, or have the same number, another begins behind it."""
        found = self._look_at(at)
        if len(found) > _PART and found[_PART][0] > found[0][0]:
            middle = found[_PART][0]
            self.parts[at] = [name for number, name in found if number < middle]
            self._begin(at + 1, middle, [name for number, name in found if number >= middle])

    def _begin(self, at: i64, first: int, names: list[bytes]) -> None:
        """Another part."""
        self.parts.insert(at, names)
        self.firsts.insert(at, first)
        self.tidy(_TIDIED)
