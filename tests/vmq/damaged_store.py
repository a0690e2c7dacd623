"""A store with damage, for tests of what is done about it."""

import random
from pathlib import Path

from tests.support.flipped import flip
from vmq.mqtt.message import Delivery, Message
from vmq.store.files import read_version
from vmq.store.opening import open_store
from vmq.store.store import Store
from vmq.store.tables import blocks_of


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def q(session: int, place: int) -> bytes:
    return b"q" + number(session) + number(place)


SHARED = 100


def start(data: Path) -> Store:
    return open_store(data / "store", "os", lambda: None)


def make(data: Path) -> None:
    """Three sessions with 100 messages of their own each, then 100 that all have; in a table."""
    rng = random.Random(1)
    store = start(data)
    common = [Message(b"t", rng.randbytes(100), 1, False) for _ in range(SHARED)]
    for message in common:
        message.share = True
    for index in range(3):
        session = store.create_session(f"dev-{index}")
        store.put_subscription(session, "t", 1)
        own = [Message(b"t", rng.randbytes(100), 1, False) for _ in range(100)]
        for place, message in enumerate([*own, *common], 1):
            delivery = Delivery(message, 1, False, "")
            delivery.seq = place
            store.put_waiting(session, delivery)
    store.begin_commit()
    store.write()
    store.end_commit()
    store.db.close()
    start(data).db.close()


def hurt(data: Path, key: bytes) -> Path:
    """Damages the block that has a record."""
    ((table_number, table),) = read_version(data / "store").tables.items()
    path = data / "store" / f"{table_number:06}.ldb"
    blocks = blocks_of(path.read_bytes(), table)
    (block,) = [each for each in blocks if each.first <= key <= each.last]
    flip(path, block.offset + block.size // 2)
    return path
