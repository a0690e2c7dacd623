"""Messages whose session nothing names any more are kept where they can be read."""

import base64
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.vmq.damaged_store import SHARED, make, number, start
from vmq.mqtt.message import Delivery, Message
from vmq.store.orphans import FILE, Orphans
from vmq.store.tools import repair


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_repair_keeps_the_messages_of_a_session_whose_record_is_gone(tmp_path: Path) -> None:
    make(tmp_path)
    store = start(tmp_path)
    expected = []
    for place in range(1, 101 + SHARED):
        delivery = store.load_waiting(number(2), place)
        if delivery is not None:
            expected.append(delivery.message.payload)
    store.db.delete(b"sdev-1")
    store.db.close()
    report = repair(tmp_path)
    assert report.ok
    assert report.sessions == 2
    kept = tmp_path / "store.damaged-1" / FILE
    assert any(str(kept) in note for note in report.notes)
    found = lines(kept)
    assert [base64.b64decode(each["payload_base64"]) for each in found] == expected
    assert {(each["session"], each["topic"], each["qos"], each["retain"]) for each in found} == {
        (2, "t", 1, False)
    }
    assert not (tmp_path / "store" / FILE).exists()


def test_what_is_no_message_is_left_out(tmp_path: Path) -> None:
    make(tmp_path)
    store = start(tmp_path)
    released = Delivery(Message(b"", b"", 2, False), 2, False, "")
    released.packet_id, released.released = 3, True
    missing = b"\x09\0\0" + number(9999)
    with closing(store.db), Orphans(tmp_path, store.db) as orphans:
        orphans.save(b"i" + number(1) + number(1), store.entry(released))
        orphans.save(b"q" + number(1) + number(1), missing)
        assert orphans.count == 0
    assert not (tmp_path / FILE).exists()


def test_without_orphans_there_is_no_file(tmp_path: Path) -> None:
    make(tmp_path)
    store = start(tmp_path)
    store.db.put(b"zz", b"")
    store.db.close()
    assert repair(tmp_path).ok
    assert not list(tmp_path.rglob(FILE))
