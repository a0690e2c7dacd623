"""The operations of the API, each as a program asks for it."""

from tests.support.peer import Peer
from tests.support.until import until
from tests.vmq.http.conftest import Site, ask


async def test_sessions(local: Site) -> None:
    peer = Peer(local.broker.registry(), "me", clean=False)
    await until(lambda: "me" in local.broker.registry().subscribers)
    peer.subscribe(("t/#", 1))
    await until(lambda: b"\x90\x03" in peer.received)
    _, answer = await ask(local, "GET", "/sessions", params={"where": "subscriptions = 1"})
    assert [row["client_id"] for row in answer["rows"]] == ["me"]
    assert answer["more"] is False
    _, shown = await ask(local, "GET", "/session", params={"client_id": "me"})
    assert shown["filters"] == [{"filter": "t/#", "qos": 1}]
    _, gone = await ask(
        local, "DELETE", "/session/subscription", params={"client_id": "me", "filter": "t/#"}
    )
    assert gone == {"client_id": "me", "filter": "t/#", "mountpoint": ""}
    _, done = await ask(local, "DELETE", "/session", params={"client_id": "me", "cleanup": "true"})
    assert done == {
        "client_id": "me",
        "mountpoint": "",
        "was_online": True,
        "session_ended": True,
    }
    status, answer = await ask(local, "GET", "/session", params={"client_id": "me"})
    assert (status, answer) == (404, {"error": "there is no session of client 'me'"})


async def test_listeners_options_and_metrics(local: Site) -> None:
    _, answer = await ask(local, "POST", "/listener/stop", json={"name": "tcp"})
    assert answer["status"] == "stopped"
    assert (await ask(local, "POST", "/listener/stop", json={"name": "tcp"}))[0] == 409
    _, answer = await ask(local, "POST", "/listener/start", json={"name": "tcp"})
    assert answer["status"] == "running"
    _, answer = await ask(local, "GET", "/listeners")
    assert answer["rows"][0]["url"] == local.broker.addresses[0]
    changed = {"option": "queue.drop", "value": "oldest"}
    _, answer = await ask(local, "POST", "/option", json=changed)
    assert answer == {**changed, "before": "newest", "configured": "newest"}
    _, answer = await ask(local, "GET", "/options", params={"where": 'option = "queue.drop"'})
    assert answer["rows"][0]["value"] == "oldest"
    number = {"option": "queue.max_online_messages", "value": 7}
    assert (await ask(local, "POST", "/option", json=number))[1]["value"] == 7
    _, answer = await ask(local, "DELETE", "/option", params={"option": "queue.drop"})
    assert answer["value"] == "newest"
    _, answer = await ask(local, "GET", "/metrics", params={"where": 'name = "socket_open"'})
    assert answer["rows"] == [{"name": "socket_open", "value": 0.0}]
