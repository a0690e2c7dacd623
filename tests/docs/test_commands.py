"""The commands of every page, run as somebody runs them who follows it."""

import asyncio
import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.reader import Command, Reader, commands, unmarked
from tests.docs.test_links import pages
from tests.support.pages import ROOT, blocks
from tests.vmq.cli.program import here
from tests.vmq.clustering.raft.replicas import replicated
from vmq.testing import BrokerProcess, MqttClient

pytestmark = pytest.mark.skipif(
    not (ROOT / "README.md").is_file(), reason="a copy of the tests alone"
)

#: Commands that are not run, and why.
EXCEPTIONS: Final = {
    "pip install .": "`make test-wheel` builds and installs it",
    "vmq start --serve docs/examples/chat": "its port is fixed; tests/page/test_chat.py serves the folder",
    "vmq start --config docs/examples/chat-members.toml": "after the one before; tests/page/test_chat.py starts it",
    "vmq bench compare --scenarios fleet0,seldom1,connects --runs 3": "minutes; tests/vmq/cli/test_bench.py",
    "vmq spark run sensors -o window=10s -o threshold=28.5 --config config/vmq.toml": "Spark; tests/spark",
}
#: Those for a stream with copies.
OF_A_CLUSTER: Final = tuple(
    each.line for each in commands(ROOT / "docs" / "streams.md") if " orders" in each.line
)
#: Pages whose commands need more than a broker, and where they are run.
ELSEWHERE: Final = {
    "docs/cluster.md": "tests/cluster_processes/test_docs.py",
    "docs/readers.md": "tests/vmq/streams/test_readers_page.py",
}
#: What is measured for long, made short.
SHORTER: Final = {
    "vmq bench --pid PID": "vmq bench --pid {pid} --pubs 20 --seconds 0.2",
    "vmq bench storm --clients 10000": "vmq bench storm --clients 100 --seconds 1",
}
PROGRAMS: Final = ("vmq", "make", "pip", "python", "curl", "docker", "redis-cli", "mosquitto_sub")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


COMMANDS: Final = {
    name_of(page): [each for each in commands(page) if each.line.strip()]
    for page in pages()
    if name_of(page) not in ELSEWHERE
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker of the pages that start none, with the stream of docs/streams.md."""
    folder = tmp_path_factory.mktemp("docs")
    stream = blocks(ROOT / "docs" / "streams.md", "toml")[0].replace(":8815", ":0")
    (folder / "vmq.toml").write_text(LISTENERS + stream)
    args = ("--config", str(folder / "vmq.toml"))
    with BrokerProcess.start((), folder / "data", args=args) as broker:
        with MqttClient(broker.url) as client:
            for number in range(8):
                client.publish(f"sensors/{number}/temp", "20.5", qos=1)
        yield broker


LISTENERS: Final = """
[listeners.tcp]
url = "tcp://127.0.0.1:0"
[listeners.ws]
url = "ws://127.0.0.1:0/mqtt"
[listeners.http]
url = "http://127.0.0.1:0"
"""


# What a reader has when the commands begin.


def has_a_configuration(reader: Reader) -> None:
    reader.write("my.toml", LISTENERS)


def has_the_listener_of_jobs(reader: Reader) -> None:
    reader.write("vmq.toml", blocks(ROOT / "docs" / "jobs.md", "toml")[0])


def has_mosquitto_and_a_key(reader: Reader) -> None:
    reader.write("mosquitto.conf", "listener 1883 127.0.0.1\nallow_anonymous true\n")
    key = json.loads(here("api-key", "create", "--json").out)["key"]
    reader.patch.setenv("KEY", key)


def has_rights_and_a_sensor_that_is_away(reader: Reader) -> None:
    reader.write("config/acl", "topic readwrite #\nuser alice\ntopic read news/#\n")
    reader.write("config/vmq.toml", LISTENERS + '[plugins.vmq_acl]\nfile = "acl"\n')
    broker = reader.start_broker("config/vmq.toml")
    with MqttClient(broker.url, "sensor-17", clean=False) as client:
        client.subscribe("to/17", qos=1)
    with MqttClient(broker.url) as client:
        client.publish("to/17", "on", qos=1)
    reader.keep(MqttClient(broker.url, "alice", username="alice").open())


def has_the_chat(reader: Reader) -> None:
    place = "docs/examples"
    shutil.copytree(ROOT / place, reader.folder / place)
    reader.write(f"{place}/chat.toml", (ROOT / place / "chat.toml").read_text())


def has_a_folder(reader: Reader) -> None:
    reader.write("config/vmq.toml", LISTENERS)


def has_the_key_of_a_lamp(reader: Reader) -> None:
    has_a_folder(reader)
    reader.write("key", "that of the lamp\n")


BEFORE: Final[dict[str, Callable[[Reader], None]]] = {
    "docs/examples/chat/README.md": has_the_chat,
    "docs/configuration.md": has_a_configuration,
    "docs/jobs.md": has_the_listener_of_jobs,
    "docs/migrating.md": has_mosquitto_and_a_key,
    "docs/operating.md": has_rights_and_a_sensor_that_is_away,
    "docs/security.md": has_a_folder,
    "plugins/vmq_passwd/README.md": has_the_key_of_a_lamp,
    "plugins/vmq_spark/README.md": has_a_folder,
}


@pytest.mark.parametrize("page", [page for page, found in COMMANDS.items() if found])
def test_the_commands_of_a_page(
    page: str, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts_one = any(each.line.startswith("vmq start") for each in COMMANDS[page])
    with Reader(tmp_path, monkeypatch, None if starts_one else broker) as reader:
        if page in BEFORE:
            BEFORE[page](reader)
        for each in COMMANDS[page]:
            if each.line not in EXCEPTIONS and each.line not in OF_A_CLUSTER:
                reader.run(shortened(each, broker))
        reader.finish()


def shortened(command: Command, broker: BrokerProcess) -> Command:
    """The command; what is measured for long is made short."""
    line = command.line
    for long, short in SHORTER.items():
        line = line.replace(long, short.format(pid=broker.pid))
    return command._replace(line=line)


def test_an_own_acl_as_the_page_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/security.md, followed to where alice is let in."""
    page = ROOT / "docs" / "security.md"
    with Reader(tmp_path, monkeypatch) as reader:
        for name in ("vmq.toml", "acl", "passwd"):
            reader.write(f"config/{name}", (ROOT / "config" / name).read_text("utf-8"))
        for each in commands(page):
            reader.run(each)
        reader.write("config/acl", unmarked(page)[0])
        text = (tmp_path / "config" / "vmq.toml").read_text() + blocks(page, "toml")[0]
        reader.write("config/vmq.toml", text + '[listeners.tcp]\nurl = "tcp://127.0.0.1:0"\n')
        url = reader.start_broker("config/vmq.toml").url
        for user, password in ((None, None), ("alice", "guessed")):
            with pytest.raises(ConnectionRefusedError):
                MqttClient(url, username=user, password=password).open()
        with MqttClient(url, username="alice", password="secret") as alice:
            alice.subscribe("news/#", "home/alice/#")
            alice.publish("home/alice/lamp", "on", qos=1)
            assert alice.receive().topic == "home/alice/lamp"
            with pytest.raises(PermissionError):
                alice.subscribe("home/bob/#")
            with pytest.raises(ConnectionError):
                alice.publish("news/local", "mine", qos=1)


async def test_the_commands_of_a_replicated_stream(tmp_path: Path) -> None:
    """Four nodes, as the page has it; each command waits until what the one before asked for has come about."""
    async with replicated(tmp_path, *"abcd", admin=True) as brokers:
        folder = brokers["a"].config.broker.data_dir
        for line in OF_A_CLUSTER:
            done = await asyncio.to_thread(
                here, *shlex.split(line, comments=True)[1:], "--data-dir", folder
            )
            assert done.code == 0, f"{line}: {done.err}"


def test_what_is_said_of_commands_is_true() -> None:
    lines = {each.line for found in COMMANDS.values() for each in found}
    for line in (*EXCEPTIONS, *OF_A_CLUSTER):
        assert line in lines, "an exception that is needed no more"
    for page, test in ELSEWHERE.items():
        assert [*commands(ROOT / page)]
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", COMMANDS)
def test_blocks_of_commands_say_that_they_are(page: str) -> None:
    for block in unmarked(ROOT / page):
        for line in block.splitlines():
            first, _, rest = line.removeprefix("$ ").partition(" ")
            assert first not in PROGRAMS or rest.startswith(("ready:", "page:")), line
