"""A plugin may put a client into the tree of another mountpoint."""

from vmq_hooks import RegisterModifiers, SubscriberId

from tests.vmq.support import Client, House
from vmq.core.registry import Registry
from vmq.runtime.registries import BrokerRegistries


def test_a_client_goes_into_the_tree_that_the_broker_finds(house: House) -> None:
    made: dict[str, Registry] = {}

    def find(mountpoint: str) -> Registry:
        return made.setdefault(
            mountpoint, Registry(house.core, house.on_wake, house.purged.append, mountpoint)
        )

    house.core.registries = BrokerRegistries(find)
    house.core.hooks.auth_on_register = lambda *_: RegisterModifiers(
        subscriber_id=SubscriberId("c", "m")
    )
    client = Client(house)
    client.connection.session.anonymous = False
    client.connect("c")
    assert list(made) == ["m"]
    assert list(made["m"].subscribers) == ["c"]
    assert house.registry.subscribers == {}
