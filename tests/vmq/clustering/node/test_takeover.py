"""Clients that come to another node, by thousands. What becomes of each is told in tests of running nodes."""

from types import SimpleNamespace
from typing import Any, cast

from tests.vmq.clustering.fakes import FakeLanes
from vmq.clustering.directory.records import Record
from vmq.clustering.messages.clients import ClaimSession
from vmq.clustering.node.takeover import ClientTakeover


class Elsewhere:
    """A directory in which all clients are connected to node b, but for some."""

    def __init__(self) -> None:
        self.here: set[str] = set()
        self.asked: list[str] = []
        self.tell: Any = None

    def on_owner(self, callback: object) -> None:
        self.tell = callback

    def record(self, _: str, client_id: str) -> Record | None:
        self.asked.append(client_id)
        return None if client_id in self.here else Record("b", 1, True, {})


async def test_word_of_one_client_is_of_no_other_that_waits() -> None:
    directory, lanes = Elsewhere(), FakeLanes()
    machine, members = (
        SimpleNamespace(membership=SimpleNamespace(belongs=False)),
        {"a": "", "b": ""},
    )
    node = SimpleNamespace(name="a", is_running=True, up=["b"], members=members, machine=machine)
    node.on = lambda *_: None
    core = SimpleNamespace(claims=None, outbox=SimpleNamespace(flush=lambda: None))
    given: list[Any] = [core, {}, node, lanes, directory]
    takeover = ClientTakeover(*given)
    takeover.start()
    registry = cast("Any", SimpleNamespace(mountpoint=""))
    waiting = {name: takeover.claim(registry, name, True) for name in ("c0", "c1", "c2")}
    assert None not in waiting.values()
    assert [type(message) for _, message, _ in lanes.sent] == [ClaimSession] * 3
    directory.here.add("c1")
    directory.asked.clear()
    directory.tell("", "c1", Record("b", 1, True, {}), None)
    assert {*directory.asked} == {"c1"}
    assert {*takeover._waiting} == {("", "c0"), ("", "c2")}
    takeover.stop()
