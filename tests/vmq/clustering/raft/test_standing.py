"""How the replicas of a node stand, as its other rooms are told."""

from types import SimpleNamespace
from typing import cast

from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.standing import Observer


def test_what_is_as_it_was_is_told_as_it_was() -> None:
    """Groups at rest are looked at, too: of thousands a few each second."""
    about = {"term": 1, "uncertain": (), "given_up": (), "leader": "b", "abstains": False}
    replica = SimpleNamespace(**about, members=SimpleNamespace(voters=("a",)))
    opened = {"g": SimpleNamespace(group=SimpleNamespace(replica=replica, leading=None))}
    host = SimpleNamespace(take_touched=lambda: {"g"})
    thread = cast("GroupThread", SimpleNamespace(name="a", opened=opened, host=host))
    observer = Observer()
    found, _ = observer.look(thread, ())
    assert found.current == {"g"}
    assert observer.look(thread, ())[0] is found
    replica.abstains = True
    assert observer.look(thread, ())[0].abstaining == {"g"}
