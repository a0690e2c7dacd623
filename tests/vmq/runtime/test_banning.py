"""Bans of a running broker, as clients and the operator meet them."""

from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import RegisterModifiers

from tests.vmq.plugins.doors import Doors
from tests.vmq.plugins.support import serving
from tests.vmq.sockets import login, session_of
from vmq.admin.bans import add_ban, list_bans, remove_ban
from vmq.admin.errors import AdminError, NotFoundError
from vmq.runtime.bans import FILE, Bans
from vmq.runtime.errors import StartError


async def test_a_banned_client_has_to_go_and_comes_back_when_it_may(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        async with session_of(broker, "c") as banned, session_of(broker, "d"):
            row = add_ban(broker, client_id="c", seconds=3600, reason="floods")
            assert row.disconnected == 1
            assert row.until is not None
            assert await banned.rest() == b""
            assert await login(broker) == 5
            assert len(list(broker.connections or ())) == 1
        assert [(each.kind, each.value, each.reason) for each in list_bans(broker)] == [
            ("client_id", "c", "floods")
        ]
        assert broker.metrics.counters()["banned_refused"] == 1
        assert remove_ban(broker, client_id="c").value == "c"
        assert await login(broker) == 0


@pytest.mark.parametrize("ban", ({"user": "ann"}, {"address": "127.0.0.0/8"}))
async def test_users_and_addresses(tmp_path: Path, ban: dict[str, Any]) -> None:
    async with serving(tmp_path) as broker:
        add_ban(broker, **ban)
        assert await login(broker, username="ann") == 5
        assert (await login(broker, username="bob") == 5) is ("address" in ban)
        remove_ban(broker, **ban)
        assert await login(broker, username="ann") == 0


async def test_who_a_plugin_says_it_is_may_be_banned_too(tmp_path: Path) -> None:
    doors = Doors(auth_on_register=RegisterModifiers(username="ann"))
    async with serving(tmp_path, {"doors": doors}, anonymous=False) as broker:
        assert await login(broker, username="token") == 0
        add_ban(broker, user="ann")
        assert await login(broker, username="token") == 5


async def test_who_is_banned_costs_no_plugin_anything(tmp_path: Path) -> None:
    doors = Doors()
    async with serving(tmp_path, {"doors": doors}, anonymous=False) as broker:
        add_ban(broker, user="ann")
        assert await login(broker, username="ann") == 5
        assert doors.calls == []


async def test_what_another_worker_wrote_holds_within_a_second(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, session_of(broker, "c") as peer:
        Bans(Path(broker.config.broker.data_dir)).add("client_id", "c")
        assert await peer.rest() == b""
        assert await login(broker) == 5


async def test_bans_outlive_a_restart_and_a_broken_file_lets_nobody_slip_in(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        add_ban(broker, client_id="c")
        folder = Path(broker.config.broker.data_dir)
    async with serving(tmp_path) as broker:
        assert await login(broker) == 5
        (folder / FILE).write_text("{")
        assert await login(broker) == 5
    with pytest.raises(StartError, match=r"bans cannot be read.*mend or remove"):
        async with serving(tmp_path):
            pass


async def test_a_ban_is_of_one_thing(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        wrongs: list[dict[str, Any]] = [{}, {"client_id": "c", "user": "u"}, {"address": "moon"}]
        for wrong in wrongs:
            with pytest.raises(AdminError, match="accepted"):
                add_ban(broker, **wrong)
        with pytest.raises(AdminError, match="reason"):
            add_ban(broker, client_id="c", reason="x" * 201)
        with pytest.raises(NotFoundError, match="vmq ban list"):
            remove_ban(broker, client_id="c")


async def test_who_was_ended_by_a_ban_is_remembered_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may ban without end: nobody asks here how many that ended."""
    now = [1000.0]
    async with serving(tmp_path) as broker:
        banning = broker.parts.banning
        monkeypatch.setattr(banning.bans, "_clock", lambda: now[0])
        async with session_of(broker, "c") as banned:
            banning.bans.add("client_id", "c", 3600, "")
            banning.apply()
            assert await banned.rest() == b""
        assert len(banning._ended) == 1
        now[0] += 10
        banning.apply()
        assert not banning._ended
