"""Who is not to be in a cluster."""

from contextlib import ExitStack
from pathlib import Path

from tests.cluster_processes.cluster import ENV, TIMEOUT
from vmq.clustering.node.key import write_key
from vmq.testing.process import BrokerProcess


def test_who_lacks_the_key_gets_nowhere_and_is_logged(tmp_path: Path) -> None:
    """With another one; with none it is as in `tests/cluster/test_link.py`."""
    # Nobody answers the one outside: it lets clients in once this is over.
    env = {**ENV, "VMQ_CLUSTER__SYNC_TIMEOUT": "1"}
    with ExitStack() as stack:

        def node(name: str, *more: str) -> BrokerProcess:
            write_key(key := tmp_path / name)
            args = ("--node-name", name, "--cluster-listen", "tcp://127.0.0.1:0", *more)
            args += ("--cluster-key", str(key))
            return stack.enter_context(BrokerProcess.start(env=env, args=args))

        inside = node("inside")
        address = inside.wait_log(r"cluster node name=inside address=(\S+)")[1]
        outside = node("outside", "--join", address)
        inside.wait_log("another cluster key than this", TIMEOUT)
        for each in (inside, outside):
            assert "node up" not in each.stderr_text()
            assert "members of the cluster: inside outside" not in each.stderr_text()
