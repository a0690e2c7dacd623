"""Waiting for what a cluster does once in its life, which is not to be measured with what it does all the time."""

from tests.support.until import reach
from vmq.cli.admin.client import AdminClient
from vmq.testing.process import BrokerProcess


def wait_settled(broker: BrokerProcess, nodes: int) -> None:
    """So many nodes, or workers, have shared out the slots of durable sessions, as one of them tells."""
    client = AdminClient(None, str(broker.data_dir), {"limit": 0})

    def is_settled() -> bool:
        rows = client.get("/cluster/members")["rows"]
        owned = [each["slots_owned"] or 0 for each in rows]
        return len(owned) == nodes and min(owned) * 2 * nodes > sum(owned)

    reach(is_settled, timeout=60, rest=4)
