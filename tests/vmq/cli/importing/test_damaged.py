"""Values that cannot be read: each a problem with its place and what is accepted; the rest is imported."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vmq.cli.program import here
from vmq.cli.importing import emqx, mosquitto, vernemq
from vmq.cli.importing.rules import Imported, ImportProblem
from vmq.cli.importing.write import READERS, problems, write

SAMPLES = Path(__file__).parent / "samples"
_BRIDGE = "connection c\naddress 127.0.0.1\n"


def wrong(read: Callable[[Path], Imported], path: Path, text: str) -> tuple[Imported, list[str]]:
    path.write_text(text)
    found = read(path)
    return found, [str(each) for each in found.notes if each.is_wrong]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("port abc", "port abc: accepted: a port"),
        ("port", "port: accepted: a port"),
        ("sys_interval x", "sys_interval x: accepted: a whole number"),
        ("allow_anonymous maybe", "allow_anonymous maybe: accepted: true, "),
        ("listener 99999", "listener 99999: accepted: a port"),
        ("protocol smtp", "protocol smtp: the listener is left out; accepted: mqtt, websockets"),
        ("max_inflight_messages 1_0", "max_inflight_messages 1_0: accepted: a whole number"),
        ("certfile", "certfile: accepted: a path"),
        ("topic a", "topic a: there is no connection before it"),
        (f"{_BRIDGE}topic b\naddress :x", "address :x: accepted: a port"),
        (
            f'{_BRIDGE}topic b\ntopic # out 1 site/ "" extra words here',
            "accepted: PATTERN [in, out",
        ),
        (f"{_BRIDGE}topic b\ntopic x/# both two", "topic x/# both two: accepted: PATTERN"),
        (f"{_BRIDGE}topic b\nrestart_timeout", "restart_timeout: accepted: a number"),
        (f"{_BRIDGE}topic b\nbridge_protocol_version 9", "accepted: mqttv31, mqttv311, mqttv50"),
        ("connection c\naddress 127.0.0.1", "connection c: left out: it has no topic"),
        (
            "include_dir nowhere",
            "include_dir nowhere: No such file or directory; accepted: a folder",
        ),
        ("include_dir empty", "include_dir empty: there is no *.conf in it"),
        (
            "password_file nowhere",
            "password_file nowhere: No such file or directory: copy the file",
        ),
    ],
)
def test_mosquitto(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    path = tmp_path / "mosquitto.conf"
    found, notes = wrong(
        mosquitto.read, path, f"max_queued_messages 7\n{line}\nmax_packet_size 99\n"
    )
    (note,) = notes
    assert said in note
    assert note.startswith(f"{path}:")
    assert note.removeprefix(f"{path}:")[0].isdigit()
    assert found.tree["queue"]["max_online_messages"] == 7
    assert found.tree["session"]["max_packet_size"] == 99


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vmq_bridge.tcp.br0 = 127.0.0.1:abc", "accepted: a port"),
        ("vmq_bridge.tcp.br0.topic.1 = # out two", "accepted: PATTERN"),
        ("vmq_bridge.tcp.br0.restart_timeout = x", "accepted: a number"),
        ("vmq_bridge.tcp.br0.cleansession = perhaps", "accepted: true, "),
        ("vmq_bridge.foo = 1", "accepted: vmq_bridge.tcp.NAME"),
        ("plugins.vmq_acl = maybe", "accepted: true, "),
        ("systree_enabled = maybe", "accepted: true, "),
        ("vmq_webhooks.w1.no_payload = x", "accepted: true, "),
        ("listener.tcp.default = 127.0.0.1:x", "accepted: a port"),
        ("listener.tcp.default.tls_version = tlsv1", "accepted: tlsv1.2, tlsv1.3"),
    ],
)
def test_vernemq(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "vernemq.conf"
    for name in ("vmq.passwd", "vmq.acl"):
        (tmp_path / name).touch()
    found, notes = wrong(
        vernemq.read,
        path,
        "plugins.vmq_bridge = on\nvmq_bridge.tcp.br0 = 127.0.0.1\nvmq_bridge.tcp.br0.topic.9 = a\n"
        f"listener.tcp.default = 127.0.0.1:1883\n{line}\nmax_inflight_messages = 7\n",
    )
    assert any(note.startswith(f"{path}:5: ") and said in note for note in notes), notes
    assert found.tree["queue"]["max_inflight_messages"] == 7


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'listeners.tcp.default { bind = "127.0.0.1:x" }',
            "listeners.tcp.default.bind 127.0.0.1:x: accepted: a port",
        ),
        ('authentication = "x"', "authentication x: accepted: a list of tables"),
        ("listeners = 3", "listeners 3: accepted: a table"),
        ("authorization = 3", "accepted: a table"),
        ("listeners.tcp.default = 3", "listeners.tcp.default 3: accepted: a table"),
        ("mqtt.max_inflight = many", "mqtt.max_inflight many: accepted: a whole number"),
        ("mqtt.max_packet_size = huge", "mqtt.max_packet_size huge: accepted: a size"),
        ("listeners.ws.default.enable = perhaps", "accepted: true, "),
    ],
)
def test_emqx(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "emqx.conf"
    found, notes = wrong(emqx.read, path, f"mqtt {{\n  max_mqueue_len = 7\n}}\n{line}\n")
    (note,) = notes
    assert note.startswith(f"{path}:4: ")
    assert said in note
    assert found.tree["queue"]["max_online_messages"] == 7


def test_emqx_s_rules(tmp_path: Path) -> None:
    path = tmp_path / "emqx.conf"
    _, notes = wrong(emqx.read, path, 'authorization.sources=[{type=file,rules="{allow}. foo."}]')
    assert len(notes) == 2
    assert all("accepted: {allow or deny, WHO}" in each for each in notes)


def damaged(text: str, chosen: random.Random) -> str:
    """The text with some of its lines cut, doubled, mixed with others or filled with junk."""
    lines = text.splitlines()
    for _ in range(chosen.randint(1, 6)):
        place = chosen.randrange(len(lines))
        line = lines[place]
        cut = chosen.randint(0, len(line))
        junk = "".join(
            chosen.choice('x :=.{}[]",#$%\0\x1b\t9-/ü\u2028\\') for _ in range(chosen.randint(0, 6))
        )
        lines[place] = chosen.choice(
            (
                line[:cut],
                line[cut:],
                line[:cut] + junk,
                line[:cut] + junk + line[cut:],
                line.partition(" ")[0] + " " + junk,
                line.partition("=")[0] + "= " + junk,
                line + "\n" + line,
                line.partition(" ")[0] + " " + chosen.choice(lines).partition(" ")[2],
            )
        )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", READERS)
def test_damaged_lines_raise_nothing_but_what_the_command_reports(
    kind: str, seed: int, tmp_path: Path
) -> None:
    chosen = random.Random(f"{kind}{seed}")
    for each in SAMPLES.iterdir():
        text = each.read_text()
        is_changed = each.name in (f"{kind}.conf", "acl.conf")
        (tmp_path / each.name).write_text(damaged(text, chosen) if is_changed else text)
    path = tmp_path / f"{kind}.conf"
    try:
        found = READERS[kind](path)
        written = write(found, path, tmp_path / "to")
    except ImportProblem:
        return
    problems(written[0])
    assert all(str(each).isprintable() for each in found.notes)


def test_the_command_says_so_and_exits_with_1(tmp_path: Path) -> None:
    file = tmp_path / "mosquitto.conf"
    file.write_text("listener 24990 127.0.0.1\nmax_queued_messages many\n")
    done = here("config", "import", str(file), "--to", str(tmp_path / "to"))
    assert (done.code, done.err) == (1, "")
    assert f"\nNeeds a hand:\n  {file}:2: max_queued_messages many: accepted: " in done.out.decode()


def test_the_command_checks_what_config_check_does(tmp_path: Path) -> None:
    file = tmp_path / "mosquitto.conf"
    file.write_text("listener 24990 127.0.0.1\ncertfile certs/a.pem\nkeyfile certs/a.key\n")
    done = here("config", "import", str(file), "--to", str(tmp_path / "to"))
    done.tells(1, str(tmp_path / "certs" / "a.pem"))
    assert f"certfile certs/a.pem: taken for {tmp_path / 'certs' / 'a.pem'}" in done.out.decode()


def test_websockets_of_mosquitto_have_a_path_here(tmp_path: Path) -> None:
    file = tmp_path / "mosquitto.conf"
    file.write_text("listener 9001\nprotocol websockets\n")
    found = mosquitto.read(file)
    assert found.tree["listeners"]["port9001"]["url"] == "ws://0.0.0.0:9001/mqtt"
    notes = "\n".join(map(str, found.notes))
    assert "here it is /mqtt, and pages that other servers send need `allowed_origins`" in notes
