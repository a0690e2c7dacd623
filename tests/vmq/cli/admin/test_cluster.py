"""`vmq cluster` and the options of `vmq start`, as programs."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import reach
from tests.vmq.cli.program import here, run
from vmq.admin.cluster import MemberRow
from vmq.cli.admin.client import AdminClient
from vmq.cli.admin.cluster import COLUMNS
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess


def members(broker: BrokerProcess) -> dict[str, dict[str, Any]]:
    done = here("cluster", "status", "--json", "--data-dir", str(broker.data_dir))
    assert (done.code, done.err) == (0, "")
    return {row["node"]: row for row in json.loads(done.out)}


def node(name: str, key: Path, *more: str, data_dir: Path | None = None) -> BrokerProcess:
    port = lasting_port(2)  # workers have one each
    listen = ("--cluster-listen", f"tcp://127.0.0.1:{port}", "--cluster-key", str(key))
    # Nodes that were taken out wait for each other so long.
    env = {"VMQ_CLUSTER__SYNC_TIMEOUT": "1"}
    args = ("--node-name", name, *listen, *more)
    return BrokerProcess.start(args=args, env=env, data_dir=data_dir)


def test_the_columns_are_those_of_the_api() -> None:
    assert set(COLUMNS.every) == set(MemberRow.__struct_fields__)


def test_a_key_is_made_once(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    assert run("cluster", "keygen", str(key)).code == 0
    assert key.stat().st_mode & 0o777 == 0o600
    again = here("cluster", "keygen", str(key))
    assert (again.code, again.err) == (1, f"vmq: error: cannot write {key}: File exists\n")
    assert len(here("cluster", "keygen").out.strip()) == len(key.read_text().strip()) == 40


def test_two_processes_become_one_cluster_and_part(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    run("cluster", "keygen", str(key))
    with node("a", key) as a:
        seed = members(a)["a"]["address"]
        with node("b", key) as b:
            there = ("--data-dir", str(b.data_dir))
            joined = here("cluster", "join", seed, "--json", *there)
            assert json.loads(joined.out) == {"address": seed, "status": "joined"}
            assert sorted(members(b)) == ["a", "b"]
            table = here("cluster", "status", *there).out.decode().splitlines()
            found = [line.split()[:2] for line in table]
            assert found == [["node", "status"], ["a", "joined"], ["b", "joined"]]
            drained = here("cluster", "drain", "--json", *there)
            assert json.loads(drained.out) == {"node": "b", "drained": True, "complete": True}
            undone = here("cluster", "drain", "--undo", "--json", *there)
            assert json.loads(undone.out) == {"node": "b", "drained": False, "complete": True}
            refused = here("cluster", "remove", "c", *there)
            assert (refused.code, "accepted: a" in refused.err) == (1, True)
            left = here("cluster", "leave", "--timeout", "20", "--json", *there)
            assert json.loads(left.out) == {"node": "b", "complete": True}
            assert b.wait() == 0
            b.restart()
            b.wait_out(
                "^vmq serves nobody: tcp://.* .this node has left its cluster: `vmq cluster jo"
            )
            assert here("cluster", "join", seed, *there).code == 0
            b.wait_out("^vmq ready: tcp://")


def test_workers_that_were_taken_out_say_so_and_are_let_in_again(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    run("cluster", "keygen", str(key))
    with node("a", key) as a:
        seed = members(a)["a"]["address"]
        folder = tmp_path / "b"
        with node("b", key, "--workers", "2", "--join", seed, data_dir=folder):
            reach(lambda: sorted(members(a)) == ["a", "b-1", "b-2"])
        for name in ("b-1", "b-2"):
            run("cluster", "remove", name, "--force", "--data-dir", str(a.data_dir))
        with node("b", key, "--workers", "2", data_dir=folder) as b:
            b.wait_out("^vmq serves nobody: tcp://.* .worker 1: this node was taken out")
            joined = here("cluster", "join", seed, "--json", "--data-dir", str(folder))
            assert json.loads(joined.out)["status"] == "joined"
            b.wait_out("^vmq ready: tcp://")
            reach(lambda: {each["status"] for each in members(a).values()} == {"joined"})


@pytest.mark.parametrize("command", ["leave", "drain"])
def test_what_was_not_handed_over_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    answer = {"node": "b", "complete": False}
    monkeypatch.setattr(AdminClient, "post", lambda *_, **__: answer)
    done = here("cluster", command, "--json")
    assert (done.code, json.loads(done.out)) == (1, answer)


def test_a_broker_that_is_no_node_says_so(tmp_path: Path) -> None:
    with BrokerProcess.start(data_dir=tmp_path) as broker:
        done = here("cluster", "status", "--data-dir", str(broker.data_dir))
        done.tells(1, "cluster.listen is not set")
