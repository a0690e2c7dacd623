"""What the old broker keeps closed, the written configuration does not open."""

from pathlib import Path

import pytest

from vmq.cli.importing import emqx, mosquitto, vernemq
from vmq.cli.importing.rules import Imported
from vmq.cli.importing.write import write
from vmq.config.load import load
from vmq.config.options import Config


class Old:
    """Configurations of other brokers in a folder, and what becomes of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found = Imported()

    def file(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def imported(self, name: str, text: str) -> Config:
        self.file(name, text)
        path = self.folder / name
        readers = {"mosquitto": mosquitto.read, "vernemq": vernemq.read, "emqx": emqx.read}
        self.found = readers[path.stem](path)
        return load(write(self.found, path, self.folder / "to")[0]).config

    @property
    def notes(self) -> str:
        return "\n".join(map(str, self.found.notes))

    @property
    def wrong(self) -> list[str]:
        return [str(each) for each in self.found.notes if each.is_wrong]


@pytest.fixture
def old(tmp_path: Path) -> Old:
    return Old(tmp_path)


def open_of(config: Config) -> dict[str, bool]:
    return {name: config.anonymous_allowed(name) for name in config.listeners}


# mosquitto; what it does itself was looked at with mosquitto 2.0


def test_with_settings_of_each_listener_those_at_the_top_are_no_other_s(old: Old) -> None:
    old.file("pw", "alice:x\n")
    config = old.imported(
        "mosquitto.conf",
        "per_listener_settings true\nallow_anonymous true\nlistener 1884 127.0.0.1\npassword_file pw\n",
    )
    assert open_of(config) == {"port1884": False}
    assert not config.anonymous_until_hook("port1884")


def test_listeners_with_settings_of_their_own_keep_their_users_apart(old: Old) -> None:
    old.file("pw", "alice:x\n")
    old.file("other", "bob:x\n")
    old.file("acl", "topic a\n")
    old.file("acl2", "topic b\n")
    config = old.imported(
        "mosquitto.conf",
        "per_listener_settings true\n"
        "listener 1884 127.0.0.1\npassword_file pw\nacl_file acl\n"
        "listener 1885 127.0.0.1\nallow_anonymous true\n"
        "listener 1886 127.0.0.1\nallow_anonymous false\n"
        "listener 1887 127.0.0.1\npassword_file other\nacl_file acl2\n",
    )
    found = open_of(config)
    assert found == {"port1884": False, "port1885": True, "port1886": False, "port1887": False}
    chosen = {name: each.auth_plugins for name, each in config.listeners.items()}
    assert chosen == {"port1884": None, "port1885": None, "port1886": [], "port1887": []}
    assert config.listeners["port1887"].authz_plugins == []
    assert len(old.wrong) == 2
    assert "the listener port1885 too" in old.notes


def test_without_them_the_last_word_on_anonymous_clients_counts_for_all(old: Old) -> None:
    config = old.imported(
        "mosquitto.conf",
        "listener 1884 127.0.0.1\nallow_anonymous true\nlistener 1885 127.0.0.1\nallow_anonymous false\n",
    )
    assert open_of(config) == {"port1884": False, "port1885": False}
    assert [each.allow_anonymous for each in config.listeners.values()] == [None, None]


def test_anonymous_clients_beside_passwords_would_let_in_wrong_ones(old: Old) -> None:
    old.file("pw", "alice:x\n")
    old.file("acl", "user alice\ntopic home/#\n")
    config = old.imported(
        "mosquitto.conf",
        "listener 1884 127.0.0.1\nallow_anonymous true\npassword_file pw\nacl_file acl\n",
    )
    assert config.auth.allow_anonymous is False
    assert "mosquitto.conf:2: allow_anonymous true: left out: " in old.notes


def test_who_denies_anonymous_clients_on_this_machine_alone_is_heard(old: Old) -> None:
    assert old.imported("mosquitto.conf", "allow_anonymous false\n").auth.allow_anonymous is False


@pytest.mark.parametrize(
    "text", ["listener 8883\npsk_hint h\n", "listener 1884\nprotocol http_api\n", "listener x\n"]
)
def test_a_listener_that_cannot_be_is_left_out(old: Old, text: str) -> None:
    config = old.imported("mosquitto.conf", f"listener 1885\nallow_anonymous true\n{text}")
    assert set(config.listeners) == {"port1885"}


def test_a_plugin_of_mosquitto_may_have_decided_about_topics(old: Old) -> None:
    old.file("pw", "alice:x\n")
    config = old.imported("mosquitto.conf", "listener 1884\npassword_file pw\nplugin /x.so\n")
    assert config.plugins["vmq_acl"].own_options == {"file": "acl"}
    assert (old.folder / "to" / "acl").read_bytes() == b""


def test_vernemq_s_listeners_on_loopback_stay_closed(old: Old) -> None:
    config = old.imported(
        "vernemq.conf",
        "listener.tcp.default = 127.0.0.1:1883\nplugins.vmq_passwd = off\nplugins.vmq_acl = off\n"
        "plugins.vmq_diversity = on\n",
    )
    assert open_of(config) == {"tcp": False}
    # There, what no plugin allows is refused.
    assert config.plugins["vmq_acl"].own_options == {"file": "acl"}
    assert (old.folder / "to" / "acl").read_bytes() == b""


def test_an_unreadable_word_of_vernemq_opens_nothing(old: Old) -> None:
    config = old.imported(
        "vernemq.conf",
        "allow_anonymous = perhaps\nplugins.vmq_acl = maybe\nlistener.tcp.default = 127.0.0.1:1883\n"
        "listener.ssl.default = 127.0.0.1:8883\nlistener.ssl.default.certfile = /c\n"
        "listener.ssl.default.keyfile = /k\nlistener.ssl.default.cafile = /a\n"
        "listener.ssl.default.require_certificate = x\n",
    )
    assert config.auth.allow_anonymous is False
    assert "vmq_acl" in config.plugins
    assert config.listeners["ssl"].require_certificate
    places = [each.split(": ")[0].rpartition("vernemq.conf")[2] for each in old.wrong]
    assert {":1", ":2", ":8"} <= set(places)


_LISTENER = 'listeners.tcp.default.bind = "127.0.0.1:1883"\nlisteners.ws.default.enable = false\n'


@pytest.mark.parametrize("backend", ["http", "ldap", "postgresql"])
def test_emqx_with_an_authentication_that_is_not_here_stays_closed(old: Old, backend: str) -> None:
    config = old.imported(
        "emqx.conf",
        _LISTENER + f"authentication = [{{mechanism = password_based, backend = {backend}}}]\n",
    )
    assert open_of(config) == {"tcp": False}


def test_emqx_with_an_authentication_of_one_listener_keeps_that_closed(old: Old) -> None:
    config = old.imported(
        "emqx.conf",
        _LISTENER
        + 'listeners.tcp.b { bind = "127.0.0.1:1884", authentication = [{backend = http}] }\n',
    )
    assert open_of(config) == {"tcp": True, "tcp_b": False}


def test_emqx_s_sources_that_are_not_here_decide_before_those_behind_them(old: Old) -> None:
    old.file("acl.conf", "{allow, all}.\n")
    config = old.imported(
        "emqx.conf",
        _LISTENER + 'authorization.sources = [{type = http}, {type = file, path = "acl.conf"}]\n',
    )
    assert config.plugins["vmq_acl"].own_options == {"file": "acl"}
    assert (old.folder / "to" / "acl").read_bytes() == b""


def test_emqx_without_sources_has_the_rules_that_come_with_it(old: Old) -> None:
    old.imported("emqx.conf", _LISTENER)
    assert "pattern deny vmq-import-nobody" in (old.folder / "to" / "acl").read_text()


def test_emqx_s_listeners_that_keep_addresses_or_topics_apart_are_left_out(old: Old) -> None:
    config = old.imported(
        "emqx.conf",
        _LISTENER
        + 'listeners.tcp.b { bind = "127.0.0.1:1884", access_rules = ["deny 10.0.0.0/8", "allow all"] }\n'
        + 'listeners.tcp.c { bind = "127.0.0.1:1885", mountpoint = "${username}/" }\n',
    )
    assert set(config.listeners) == {"tcp"}
    assert len(old.wrong) == 2


@pytest.mark.parametrize(
    "text",
    [
        "listener.ssl.default = 127.0.0.1:8883\nlistener.ssl.default.keypasswd = s3cret\n",
        "plugins.vmq_webhooks = on\nvmq_webhooks.a.endpoint = http://user:s3cret@127.0.0.1/x\n",
    ],
)
def test_a_configuration_with_a_secret_is_read_by_its_owner_alone(old: Old, text: str) -> None:
    old.file("vernemq.conf", text)
    found = vernemq.read(old.folder / "vernemq.conf")
    written = write(found, old.folder / "vernemq.conf", old.folder / "to")[0]
    assert "s3cret" in written.read_text()
    assert written.stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in "\n".join(map(str, found.notes))


def test_one_without_may_be_read_by_all(old: Old) -> None:
    old.imported("mosquitto.conf", "listener 1884\nallow_anonymous true\n")
    assert (old.folder / "to" / "vmq.toml").stat().st_mode & 0o777 == 0o644
