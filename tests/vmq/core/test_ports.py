"""The ports of the core: they do nothing, and whoever subclasses one is asked instead."""

from tests.support.wire import PINGREQ_BYTES, PINGRESP_BYTES, connect_packet
from tests.vmq.support import Client, House
from vmq.core import ports


def test_the_bases_answer_as_if_nobody_were_there() -> None:
    assert ports.Claims().claim(None, "c", True) is None
    assert ports.Propagation().wait(None, None, ["t"]) is None
    assert not ports.Elsewhere().give(None, "g", None, True)
    assert not ports.Elsewhere().has_member(None, "g", True)
    assert ports.StreamFinder().appenders("t") == []
    receipts = ports.ReceiptsPort()
    assert not receipts.gives
    assert not receipts.lacks(b"s", 1)
    assert receipts.begin(b"s", 1, True) is None
    assert ports.BanList().is_empty
    assert ports.BanList().refusal("c", None, "host") == ""
    assert ports.RegistryFinder().find("") is None
    assert ports.SessionOptionsPort().of(None) is None


class Seen(ports.Traffic):
    """Keeps what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.is_on = True
        self.bytes: list[tuple[bool, bytes]] = []

    def see(self, connection: object, incoming: bool, data: bytes) -> None:
        self.bytes.append((incoming, data))


class OneBan(ports.BanList):
    """Bans one client."""

    def refusal(self, client_id: str, user: str | None, host: str) -> str:
        return "no" if client_id == "bad" else ""


def test_who_subclasses_a_port_is_asked_by_the_compiled_core(house: House, client: Client) -> None:
    house.core.traffic = seen = Seen()
    client.ping()
    house.core.traffic = ports.Traffic()
    client.ping()
    assert seen.bytes == [(True, PINGREQ_BYTES), (False, PINGRESP_BYTES)]
    house.core.bans = bans = OneBan()
    bans.is_empty = False
    assert house.client("good").connection.session.subscriber is not None
    bad = house.client()
    bad.send(connect_packet("bad"))
    assert bad.is_closed()
