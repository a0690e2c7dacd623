"""`vmq config import`, on configurations written after the documentation of the three brokers."""

import shutil
from pathlib import Path

import pytest

from tests.vmq.cli.program import here
from vmq.cli.importing import emqx, emqx_acl, mosquitto, mosquitto_rules, vernemq
from vmq.cli.importing.page import TABLES, with_tables
from vmq.cli.importing.rules import Imported, ImportProblem, Rule
from vmq.cli.importing.write import READERS, as_text, write
from vmq.config.load import load
from vmq.config.options import Config, value_of
from vmq.plugins.checking import Checked

SAMPLES = Path(__file__).parent / "samples"
PAGE = Path(__file__).parents[4] / "docs" / "migrating.md"


def imported(kind: str, folder: Path) -> tuple[Imported, Config]:
    """What came of a sample, and the configuration as a start would read it."""
    path = SAMPLES / f"{kind}.conf"
    found = READERS[kind](path)
    written = write(found, path, folder)
    return found, load(written[0]).config


def lost(found: Imported) -> str:
    return "\n".join(str(note) for note in found.notes if note.is_lost)


def test_mosquitto(tmp_path: Path) -> None:
    found, config = imported("mosquitto", tmp_path)
    urls = {name: each.url for name, each in config.listeners.items()}
    assert urls == {
        "port1883": "tcp://127.0.0.1:1883",
        "port8883": "tls://0.0.0.0:8883",
        "port9001": "ws://0.0.0.0:9001/mqtt",
        "socket4": "unix:///run/mosquitto/mosquitto.sock",
    }
    tls = config.listeners["port8883"]
    assert (tls.max_connections, tls.require_certificate, tls.tls_version) == (1000, True, "1.2")
    assert tls.use_identity_as_username
    queue = config.queue
    assert (queue.max_inflight_messages, queue.max_offline_messages) == (40, 500)
    assert queue.max_bytes == -1
    assert config.session.persistent_client_expiration == "14d"
    assert config.session.max_packet_size == 65536
    assert config.auth.allow_anonymous is False
    assert (config.log.file, config.log.level) == ("/var/log/mosquitto/mosquitto.log", "info")
    bridge = config.plugins["vmq_bridge"].own_options["bridges"]["cloud_1"]
    assert bridge["url"] == "mqtts://mqtt.example.org:8883"
    assert bridge["topics"] == [
        {
            "pattern": "#",
            "direction": "out",
            "qos": 1,
            "local_prefix": "sensors/",
            "remote_prefix": "house/sensors/",
        },
        {"pattern": "+/set", "direction": "in", "qos": 2, "remote_prefix": "house/"},
    ]
    assert config.plugins["vmq_systree"].own_options == {"interval": 30.0}
    assert (tmp_path / "acl").read_bytes() == (SAMPLES / "mosquitto.acl").read_bytes()
    assert (tmp_path / "passwd").stat().st_mode & 0o777 == 0o600
    text = lost(found)
    for said in (
        "mosquitto.conf:3: pid_file",
        "auth_plugin /usr/lib/mosquitto-auth.so: no counterpart: plugins are Python",
        "dhparamfile",
        "log_dest topic",
        "notifications",
        "persistence_location",
    ):
        assert said in text
    assert "hunter2" not in text
    assert "secret-of-the-house" not in text
    assert "0badc0de" not in text


def test_mosquitto_without_a_listener_serves_its_own_machine(tmp_path: Path) -> None:
    file = tmp_path / "mosquitto.conf"
    file.write_text("max_queued_messages 0\nsys_interval 0\n")
    found = mosquitto.read(file)
    config = load(write(found, file, tmp_path / "to")[0]).config
    assert [each.url for each in config.listeners.values()] == ["tcp://127.0.0.1:1883"]
    assert config.auth.allow_anonymous == "loopback"
    assert config.queue.max_online_messages == -1
    assert "vmq_systree" not in config.plugins


def test_mosquitto_s_included_folder_is_read_and_a_circle_is_none(tmp_path: Path) -> None:
    file = tmp_path / "mosquitto.conf"
    file.write_bytes(b"\xef\xbb\xbfinclude_dir conf.d\n")  # a byte order mark is no part of it
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.conf").write_text("listener 1884 ::1\n")
    found = mosquitto.read(file)
    assert found.tree["listeners"]["port1884"]["url"] == "tcp://[::1]:1884"
    (tmp_path / "conf.d" / "b.conf").write_text(f"include_dir {tmp_path / 'conf.d'}\n")
    with pytest.raises(ImportProblem, match="circle"):
        mosquitto.read(file)


def test_vernemq(tmp_path: Path) -> None:
    found, config = imported("vernemq", tmp_path)
    urls = {name: each.url for name, each in config.listeners.items()}
    assert urls == {
        "tcp": "tcp://127.0.0.1:1883",
        "tcp_tenants": "tcp://0.0.0.0:1884",
        "ssl": "tls://0.0.0.0:8883",
        "ws": "ws://127.0.0.1:8080/mqtt",
        "http": "http://127.0.0.1:8888",
    }
    tenants = config.listeners["tcp_tenants"]
    assert (tenants.mountpoint, tenants.proxy_protocol) == ("tenants", True)
    assert (tenants.max_connections, tenants.allowed_protocol_versions) == (10000, [3, 4])
    assert config.listeners["ssl"].require_certificate
    assert config.session.mqtt_connect_timeout == 10
    assert config.session.shared_subscription_policy == "local_only"
    assert config.session.persistent_client_expiration == "1w"
    assert (config.queue.max_online_messages, config.queue.max_offline_messages) == (2000, -1)
    assert config.cluster.allow_publish_during_netsplit is False
    plugins = {name: each.own_options for name, each in config.plugins.items()}
    seen = plugins["vmq_acl"]
    assert seen == {"file": "acl", "reload_interval": 15.0, "general": "everybody"}
    seen = plugins["vmq_webhooks"]["endpoints"]["accounts"]
    assert seen == {"hooks": ["auth_on_register"], "url": "http://127.0.0.1:5000/register"}
    assert plugins["vmq_systree"] == {"interval": 20.0}
    assert "vmq_graphite" not in plugins
    assert "vmq_bridge" not in plugins
    assert (tmp_path / "acl").read_bytes() == (SAMPLES / "vmq.acl").read_bytes()
    text = lost(found)
    for said in ("nodename", "distributed_cookie", "erlang.async_threads", "nr_of_acceptors"):
        assert said in text
    assert "vmq_diversity" not in text


def test_emqx(tmp_path: Path) -> None:
    found, config = imported("emqx", tmp_path)
    urls = {name: each.url for name, each in config.listeners.items()}
    assert urls == {
        "tcp": "tcp://0.0.0.0:1883",
        "tcp_proxied": "tcp://127.0.0.1:1884",
        "ssl": "tls://0.0.0.0:8883",
        "ws": "ws://0.0.0.0:8083/mqtt",
    }
    assert config.listeners["tcp"].max_connections == 1024000
    assert config.listeners["ssl"].max_connections == 0
    assert config.listeners["ssl"].cafile == "/etc/emqx/ca.pem"
    assert config.listeners["tcp_proxied"].proxy_protocol
    assert config.listeners["tcp_proxied"].mountpoint == "proxied/"
    assert config.session.max_packet_size == 1 << 20
    assert config.session.retry_interval == 30
    assert config.session.persistent_client_expiration == "30min"
    limits = config.limits
    assert (limits.flapping_limit, limits.flapping_window, limits.flapping_ban) == (15, 60, 300)
    assert config.log.level == "warning"
    assert (tmp_path / "acl").read_text().splitlines() == [
        "pattern readwrite devices/%c/#",
        "",
        "user dashboard",
        "topic read $SYS/#",
        "",
        "user alice",
        "topic write home/%rooms",
        "topic write home/lamp",
    ]
    text = lost(found)
    for said in (
        "built_in_database: no counterpart: its users are in EMQX's database",
        "ipaddr",
        "node.cookie",
        "rule_engine.*: no counterpart: a plugin",
        "dashboard.*",
    ):
        assert said in text
    assert "emqxsecretcookie" not in text
    assert "node.cookie (hidden): " in text


@pytest.mark.parametrize("kind", READERS)
def test_what_was_written_is_what_vmq_starts_with(kind: str, tmp_path: Path) -> None:
    """Files of users and rules as vmq's own plugins read them; certificates are not part of the samples."""
    _, config = imported(kind, tmp_path)
    problems = [each for each in Checked(config).problems if "No such file" not in each]
    assert problems == []


def test_the_command(tmp_path: Path) -> None:
    for each in SAMPLES.iterdir():
        shutil.copy(each, tmp_path)
    folder = tmp_path / "to"
    done = here("config", "import", str(tmp_path / "mosquitto.conf"), "--to", str(folder))
    # The files of TLS and the folder of the log are not part of the sample.
    done.tells(1, "/etc/mosquitto/certs/server.pem")
    assert all("No such file" in e or "no folder" in e for e in done.err.splitlines())
    out = done.out.decode()
    assert out.startswith(f"{folder / 'vmq.toml'}\n")
    assert "\nWithout a counterpart:\n" in out
    assert "\nDifferent here:\n" in out
    again = here("config", "import", str(tmp_path / "mosquitto.conf"), "--to", str(folder))
    again.tells(1, "is there already")
    other = here("config", "import", str(tmp_path / "vmq.acl"), "--to", str(tmp_path / "x"))
    other.tells(2, "accepted: mosquitto, vernemq, emqx")
    none = here("config", "import", str(tmp_path / "no-mosquitto.conf"))
    none.tells(1, "No such file")


def test_a_configuration_that_needs_a_hand_says_so(tmp_path: Path) -> None:
    file = tmp_path / "mosquitto.conf"
    file.write_text("listener 1883\nmax_packet_size 10\n")
    done = here("config", "import", str(file), "--to", str(tmp_path / "to"))
    done.tells(1, "session.max_packet_size = 10: accepted: ")


def test_every_option_that_a_rule_names_exists() -> None:
    tables = (
        (mosquitto_rules.GLOBAL, mosquitto_rules.PER_LISTENER),
        (vernemq._GLOBAL, vernemq._PER_LISTENER),
        (emqx._GLOBAL, emqx._PER_LISTENER),
    )
    config = Config()
    for of_all, of_one in tables:
        for option in options_of(of_all):
            if not option.startswith("plugins."):
                value_of(config, option)
        for option in options_of(of_one):
            value_of(config, f"listeners.{next(iter(config.listeners))}.{option}")


def options_of(rules: dict[str, Rule]) -> list[str]:
    return [option for rule in rules.values() for option in rule.to.split()]


def test_every_rule_without_an_option_says_what_to_do_instead() -> None:
    for table in TABLES.values():
        assert [key for key, rule in table.items() if not rule.to and not rule.note] == []


@pytest.mark.skipif(not PAGE.is_file(), reason="a copy of the tests alone")
def test_the_page_has_the_tables_as_they_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text) == text, "make reference"


def test_no_hocon_and_no_terms_are_told(tmp_path: Path) -> None:
    file = tmp_path / "emqx.conf"
    file.write_text("mqtt { max_inflight = ")
    with pytest.raises(ImportProblem, match="no HOCON"):
        emqx.read(file)
    for text in ("{allow, all", "}.", "{allow, all}"):
        with pytest.raises(ImportProblem):
            emqx_acl.acl([(text, "acl.conf")], Imported())


def test_text_is_toml_again(tmp_path: Path) -> None:
    found = Imported()
    found.set("listeners.a-b.url", 'tcp://127.0.0.1:1 "x"')
    found.set("plugins.vmq_bridge.bridges.a.topics", [{"pattern": "a\\b"}])
    import tomllib

    assert tomllib.loads(as_text(found, "x")) == found.tree
