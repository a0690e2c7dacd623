"""What waits for commits without a connection: in order, never before, and also after a commit that failed."""

from hypothesis import given
from hypothesis import strategies as st

from vmq.core.on_commit import OnCommit
from vmq.core.output import Outbox
from vmq.store.store import Store


class Disk:
    """A store whose commits are made by hand."""

    def __init__(self, durability: str = "os") -> None:
        self.outbox = Outbox()
        self.store = Store(None, durability, lambda: None)
        self.checkpoint = OnCommit(self.outbox, self.store)
        self.done: list[int] = []

    def write(self, number: int) -> None:
        self.store.put(b"k", b"%d" % number)
        self.checkpoint.after(lambda: self.done.append(number))

    def commit(self, fails: bool = False) -> None:
        number = self.store.begin_commit()
        if fails:
            self.store.retry_commit()
            self.outbox.fail("disk full")
            self.outbox.flush()
        else:
            self.store.end_commit()
            self.outbox.release(number)


def test_without_anything_to_commit_it_is_done_at_the_end_of_the_pass() -> None:
    disk = Disk()
    disk.checkpoint.after(lambda: disk.done.append(1))
    assert disk.done == []
    disk.outbox.flush()
    assert disk.done == [1]


def test_nobody_waits_for_a_store_in_memory() -> None:
    disk = Disk("memory")
    disk.write(1)
    disk.outbox.flush()
    assert disk.done == [1]


def test_an_action_may_ask_for_another() -> None:
    disk = Disk()

    def first() -> None:
        disk.done.append(1)
        disk.write(2)

    disk.store.put(b"k", b"")
    disk.checkpoint.after(first)
    disk.commit()
    assert disk.done == [1]
    disk.commit()
    assert disk.done == [1, 2]


def test_an_action_that_fails_harms_no_other() -> None:
    disk = Disk()
    disk.store.put(b"k", b"")
    disk.checkpoint.after(lambda: disk.done.remove(0))
    disk.write(1)
    disk.commit()
    disk.outbox.flush()
    assert disk.done == [1]


@given(st.lists(st.sampled_from(["write", "pass", "commit", "fail"]), max_size=30))
def test_a_failed_commit_is_waited_out(steps: list[str]) -> None:
    """Against an oracle that knows what was written before each commit that succeeded."""
    disk = Disk()
    written = safe = 0
    for step in steps:
        if step == "write":
            written += 1
            disk.write(written)
        elif step == "pass":
            disk.outbox.flush()
        elif disk.store.dirty:
            disk.commit(fails=step == "fail")
            safe = safe if step == "fail" else written
        assert disk.done == list(range(1, safe + 1))
    if disk.store.dirty:
        disk.commit()
    assert disk.done == list(range(1, written + 1))


def test_the_disk_is_waited_for_also_where_nobody_else_waits_for_it() -> None:
    disk = Disk("memory")
    checkpoint = OnCommit(disk.outbox, disk.store, on_disk=True)
    disk.store.put(b"k", b"")
    checkpoint.after(lambda: disk.done.append(1))
    disk.outbox.flush()
    assert disk.done == []
    disk.commit()
    assert disk.done == [1]
    checkpoint.after(lambda: disk.done.append(2))
    disk.outbox.flush()
    assert disk.done == [1, 2]


def test_who_waits_for_room_is_called() -> None:
    disk = Disk()
    disk.checkpoint.resume()
    OnCommit(disk.outbox, disk.store, lambda: disk.done.append(1)).resume()
    assert disk.done == [1]
