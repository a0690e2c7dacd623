"""What a CONNECT must pass before it is accepted."""

from typing import Any

from vmq_hooks import Refuse

from tests.support.wire import Will, connect_packet
from tests.vmq.hook_sites import listen
from tests.vmq.support import Client, House
from vmq.core.context import CoreOptions


def test_the_longest_client_id_is_counted_in_bytes(house: House) -> None:
    house.options.max_client_id_size = 30
    house.client("ä" * 15)
    client = Client(house)
    client.ask(connect_packet("ä" * 15 + "b"), b"\x20\x02\x00\x02")
    assert client.is_closed()


def test_nobody_new_enters_while_memory_is_short(house: House) -> None:
    present = house.client("present")
    house.core.memory_is_high = True
    client = Client(house)
    client.ask(connect_packet("c"), b"\x20\x02\x00\x03")
    assert client.is_closed()
    assert house.core.counters.memory_refused == 1
    present.ping()


def test_who_connects_too_often_is_refused_for_a_while() -> None:
    house = House(change=allow_two_connects)
    for _ in range(2):
        house.client("c").disconnect()
    client = Client(house)
    client.ask(connect_packet("c"), b"\x20\x02\x00\x03")
    assert house.core.counters.flapping_refused == 1
    house.client("other").ping()
    house.clock.advance(61)
    house.client("c").ping()


def test_a_wrong_password_is_no_connect_of_the_client_whose_id_it_names() -> None:
    house = House(change=allow_two_connects)
    listen(house, auth_on_register=by_password)
    for _ in range(10):
        attacker = Client(house, anonymous=False)
        attacker.ask(connect_packet("c", username="ann", password=b"wrong"), b"\x20\x02\x00\x04")
    for _ in range(2):
        client = Client(house, anonymous=False)
        client.ask(connect_packet("c", username="ann", password=b"right"), b"\x20\x02\x00\x00")
        client.disconnect()


def test_another_user_s_connects_are_not_counted_for_a_client_id() -> None:
    house = House(change=allow_two_connects)
    for _ in range(3):
        Client(house).send(connect_packet("c", username="eve"))
    assert house.core.counters.flapping_refused == 1
    ann = Client(house)
    ann.ask(connect_packet("c", username="ann"), b"\x20\x02\x00\x00")


def test_a_long_user_name_takes_no_more_memory_than_a_short_one() -> None:
    house = House(change=allow_two_connects)
    Client(house).send(connect_packet("c", username="x" * 10_000))
    assert [len(each) for each in house.registry.flapping.young] == [32]


def test_a_will_that_could_not_be_published_is_refused(house: House) -> None:
    house.options.topic_max_depth, house.options.max_message_size = 3, 100
    for topic, size, code in (("a/b/c", 100, 0), ("a/b/c/d", 100, 5), ("a/b/c", 101, 5)):
        client, will = Client(house), Will(topic, bytes(size))
        client.ask(connect_packet("c", will=will), bytes((0x20, 2, 0, code)))
        assert client.is_closed() == (code > 0)


def by_password(*arguments: Any) -> Refuse | None:
    return None if arguments[3] == b"right" else Refuse("wrong", bad_credentials=True)


def allow_two_connects(options: CoreOptions) -> None:
    options.flapping_limit = 2
    options.flapping_window = options.flapping_ban = 60.0


def test_a_verified_certificate_is_let_in_and_its_name_is_the_user(house: House) -> None:
    client = Client(house, anonymous=False)
    client.connection.session.identity = "device-7"
    client.ask(connect_packet("c", username="somebody else"), b"\x20\x02\x00\x00")
    assert client.connection.session.username == "device-7"
    other = Client(house, anonymous=False)
    other.ask(connect_packet("d", username="device-7"), b"\x20\x02\x00\x05")
