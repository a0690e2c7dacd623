"""What of a store cannot be read, while all else of it is used: kept beside the tables until a repair.

The blocks of tables that are not what was written are found (`Isolation.survey`), the tables are copied, the keys that
the blocks may have had are noted in the file DAMAGE, and only then the blocks are blanked. From then on LevelDB writes
and merges as ever, and the note says what must not be taken for deleted: whoever asks for it is refused.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from vmq_hooks.replacing import replace_file

from vmq.store.files import StoreFlawError, is_table, read_version
from vmq.store.lines import END, LINES
from vmq.store.tables import Block, bad_blocks, blank

FILE: Final = "DAMAGE"
#: A table as it was, beside the one whose damaged blocks are blank.
KEPT: Final = ".damaged"

#: What the operator is told to do.
ADVICE: Final = "stop the broker and run 'vmq store repair'"

#: How often a survey begins anew because tables have gone.
TRIES: Final = 3

#: Kinds of records that only a node of a cluster has; see `vmq.store.store`.
OF_NODES: Final = b"adefklnotw"


class LostKeys(NamedTuple):
    """Keys that a damaged block of a table may have had, both ends included.

    It had none of sessions and messages that began later: their numbers are from `sessions` and `messages` on; 0: that
    is not known yet.
    """

    table: str
    first: bytes
    last: bytes
    sessions: int = 0
    messages: int = 0

    def covers(self, key: bytes) -> bool:
        """Whether a record that is not found may have been in it."""
        if not self.first <= key <= self.last:
            return False
        limit = self.sessions if key[0] in LINES else self.messages if key[:1] in b"mc" else 0
        return not limit or int.from_bytes(key[1:9], "big") < limit


class Damage:
    """The keys of a store that cannot be read."""

    def __init__(self, lost: Iterable[LostKeys] = ()) -> None:
        self.lost: list[LostKeys] = []
        #: Numbers of sessions, from one to another, of whose lines something may be lost.
        self.numbers: list[tuple[int, int]] = []
        for each in lost:
            self.add(each)

    def add(self, lost: LostKeys) -> None:
        """More of it cannot be read."""
        self.lost.append(lost)
        for kind in LINES:
            between = numbers_between(kind, lost.first, lost.last)
            if between is not None:
                low, high = between
                self.numbers.append((low, min(high, lost.sessions - 1) if lost.sessions else high))

    def limit(self, sessions: int, messages: int) -> bool:
        """Sessions and messages that begin now have at least these numbers; True if that was not known."""
        lost = self.lost
        if all(each.sessions for each in lost):
            return False
        self.lost, self.numbers = [], []
        for each in lost:
            self.add(each if each.sessions else each._replace(sessions=sessions, messages=messages))
        return True

    def covers(self, key: bytes) -> bool:
        """Whether a record that is not found may be one that is lost."""
        return any(each.covers(key) for each in self.lost)

    def touches(self, kind: bytes) -> bool:
        """Whether records of a kind may be lost."""
        behind = bytes((kind[0] + 1,))
        return any(each.first < behind and each.last >= kind for each in self.lost)

    def concerns(self, session: bytes) -> bool:
        """Whether something of a session's lines may be lost."""
        number = int.from_bytes(session, "big")
        return any(low <= number <= high for low, high in self.numbers)

    def concerns_nodes(self) -> bool:
        """Whether it may be something that a node of a cluster has, and that others count on."""
        return any(self.touches(bytes((kind,))) for kind in OF_NODES)


def numbers_between(kind: int, first: bytes, last: bytes) -> tuple[int, int] | None:
    """The numbers of the sessions of whose line of a kind keys are in a range; None: of no session."""
    low, high = 0, (1 << 64) - 1
    if first[0] > kind or last[0] < kind:
        return None
    if first[0] == kind:
        low = int.from_bytes(first[1:9].ljust(8, b"\0"), "big")
        if first[9:].startswith(END):
            low += 1  # it begins behind the end of that one's line
    if last[0] == kind:
        high = int.from_bytes(last[1:9].ljust(8, b"\0"), "big")
        if len(last) <= 9:
            high -= 1  # keys of this number would be longer, and sort behind it
    return (low, high) if low <= high else None


class Isolation:
    """Finds and notes damage of the store in a folder.

    Args:
        folder: where it is.
        is_node: the broker is a node of a cluster; then damage that concerns its records as a node is left alone.
    """

    def __init__(self, folder: Path, is_node: bool) -> None:
        self.folder = folder
        self.is_node = is_node

    def survey(self) -> list[tuple[Path, Block]]:
        """Reads every table; may run in a thread, while nothing is merged.

        Raises:
            OSError: one cannot be read.
        """
        for _ in range(TRIES):
            try:
                return self._survey()
            except FileNotFoundError:
                continue  # LevelDB has merged it with others meanwhile
            except StoreFlawError:
                break
        return []  # more is wrong than this can help

    def _survey(self) -> list[tuple[Path, Block]]:
        tables = read_version(self.folder).tables
        paths = {int(each.stem): each for each in self.folder.iterdir() if is_table(each.name)}
        found = []
        for number, table in sorted(tables.items()):
            path = paths.get(number)
            if path is None:
                raise FileNotFoundError(number)
            found += [(path, block) for block in bad_blocks(path, table)]
        return found

    def limit(self, damage: Damage, sessions: int, messages: int) -> None:
        """Notes which numbers new sessions and messages have, once that is known."""
        if damage.limit(sessions, messages):
            save(self.folder, damage)

    def apply(
        self, found: list[tuple[Path, Block]], sessions: int = 0, messages: int = 0
    ) -> Damage | None:
        """Notes and blanks what a survey has found; None if there is nothing, or it is to be left alone.

        Args:
            found: what it has found.
            sessions: the number that the next session gets, if that is known.
            messages: the same of messages.

        Raises:
            OSError: the disk.
        """
        fresh = [
            LostKeys(path.name, block.first, block.last, sessions, messages)
            for path, block in found
        ]
        if not fresh or (self.is_node and Damage(fresh).concerns_nodes()):
            return None
        try:
            damage = load(self.folder)
        except StoreFlawError:
            return None  # whoever opens the store is told
        for path in dict.fromkeys(path for path, _ in found):
            kept = path.with_name(path.name + KEPT)
            if not kept.exists():
                replace_file(kept, path.read_bytes())
        for each in fresh:
            damage.add(each)
        save(self.folder, damage)
        for path, block in found:
            blank(path, block)
        return damage

    def isolate(self) -> Damage | None:
        """Both, at the start of a broker.

        Raises:
            OSError: the disk.
        """
        return self.apply(self.survey())


def load(folder: Path) -> Damage:
    """What is noted in the folder of a store; nothing, most often.

    Raises:
        StoreFlawError: the note cannot be read.
    """
    try:
        plain = json.loads((folder / FILE).read_bytes())
        return Damage(
            LostKeys(
                str(each["table"]),
                bytes.fromhex(each["first"]),
                bytes.fromhex(each["last"]),
                int(each["sessions"]),
                int(each["messages"]),
            )
            for each in plain["lost"]
        )
    except FileNotFoundError:
        return Damage()
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreFlawError(f"{FILE}, which says what is lost, cannot be read: {error}") from None


def save(folder: Path, damage: Damage) -> None:
    """Notes it, in one step; what is noted is on the disk before it is blanked."""
    plain = [
        {**each._asdict(), "first": each.first.hex(), "last": each.last.hex()}
        for each in damage.lost
    ]
    note = json.dumps({"version": 1, "lost": plain}, indent=1)
    replace_file(folder / FILE, note.encode())


def forget(folder: Path) -> None:
    """What is left of a store is whole, and this is a copy of it: neither the note nor the damaged tables count."""
    (folder / FILE).unlink(missing_ok=True)
    for each in folder.glob("*" + KEPT):
        each.unlink()
