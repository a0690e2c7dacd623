"""What is wrong, and whether new clients are served all the same."""

from vmq.runtime.health import Health


def test_what_keeps_clients_out_comes_first() -> None:
    assert (Health([], []).status, Health([], []).reasons) == ("ok", [])
    assert Health([], ["slow"]).status == "degraded"
    both = Health(["full"], ["slow"])
    assert (both.status, both.reasons) == ("failing", ["full", "slow"])
