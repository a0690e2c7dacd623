"""What docs/cluster.md says: its commands work, its tests and options exist."""

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster_processes.cluster import ENV
from tests.vmq.cli.program import Finished, run
from vmq.config.cluster import ClusterOptions
from vmq.testing.ports import lasting_ports
from vmq.testing.process import BrokerProcess

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cluster.md"
#: Rows that a table has at most: who has to read more does not.
LONGEST = {"What holds": 25, "What nodes do": 40}


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def commands(folder: Path) -> Iterator[list[str]]:
    """The arguments of each `vmq` of the page, with other ports, and with files below a folder."""
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text(), re.DOTALL))
    ports = sorted(set(re.findall(r"(?<=-p )\d+|(?<=127\.0\.0\.1:)\d+", blocks)))
    free = dict(zip(ports, map(str, lasting_ports(len(ports))), strict=True))
    for port, other in free.items():
        blocks = re.sub(rf"\b{port}\b", other, blocks)
    for line in blocks.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "vmq"
        yield [re.sub(r"^(data/.|cluster\.key)$", rf"{folder}/\1", each) for each in arguments]


def test_the_commands_make_a_cluster(tmp_path: Path) -> None:
    done: list[Finished] = []
    with ExitStack() as stack:
        nodes: list[BrokerProcess] = []
        for arguments in commands(tmp_path):
            if arguments[0] == "start":
                nodes.append(stack.enter_context(started(arguments)))
                continue
            for node, name in zip(nodes[1:], "bc", strict=False):
                nodes[0].wait_log(f"node up name={name}", 30)
                node.wait_log("node up name=a", 30)
            done.append(run(*arguments))
            errors = [each for each in done[-1].err.splitlines() if "still here" not in each]
            assert (done[-1].code, errors) == (0, []), arguments
    status, received, left = done[1].out.decode(), done[3].out, done[4].out.decode()
    assert [line.split()[:2] for line in status.splitlines()[1:]] == [
        [name, "joined"] for name in "abc"
    ]
    assert received == b"hello\n"
    assert "b" in left


def started(arguments: list[str]) -> BrokerProcess:
    listen = arguments[arguments.index("--listen") + 1]
    folder = arguments[arguments.index("--data-dir") + 1]
    rest = arguments[1:]
    for option in ("--listen", "--data-dir"):
        at = rest.index(option)
        del rest[at : at + 2]
    return BrokerProcess.start((listen,), Path(folder), ENV, rest)


@pytest.mark.parametrize(("section", "columns"), [("What holds", 5), ("What nodes do", 4)])
def test_each_guarantee_names_a_test(section: str, columns: int) -> None:
    table = text().split(f"## {section}\n")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert 0 < len(rows) <= LONGEST[section]
    for row in rows:
        assert row.count("|") == columns + 1
        shown = row.split("|")[columns].strip()
        assert shown == "the same" or "`tests/" in shown, row


def test_the_options_exist() -> None:
    named = set(re.findall(r"`cluster\.(\w+)`", text()))
    assert named <= set(ClusterOptions.__struct_fields__)
