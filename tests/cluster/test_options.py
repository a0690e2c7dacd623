"""Options that make no sense are refused, with what they are and what they must be."""

import pytest

from vmq_cluster.errors import ClusterError
from vmq_cluster.options import Options


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"heartbeat_interval": 0}, "heartbeat_interval is 0, and must be above 0"),
        ({"sync_entries": -1}, "sync_entries is -1"),
        ({"dead_node_timeout": -1.0}, "dead_node_timeout is -1.0"),
        ({"heartbeat_interval": 3.0}, "must be at least twice heartbeat_interval, which is 3.0"),
    ],
)
def test_a_bad_option_is_refused(chosen: dict[str, float], message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        Options(**chosen)  # type: ignore[arg-type]


def test_never_is_no_bad_timeout() -> None:
    assert Options(dead_node_timeout=0.0).dead_node_timeout == 0
