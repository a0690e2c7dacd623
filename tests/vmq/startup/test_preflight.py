"""`vmq config check` and `vmq start` agree: what a start would not take, with what words."""

import errno
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tests.vmq.cli.program import here
from vmq.broker import Broker, StartError
from vmq.config.load import load
from vmq.config.sources import ConfigError
from vmq.startup.preflight import Preflight
from vmq.testing.authority import Authority

TCP = '[listeners.a]\nurl = "tcp://127.0.0.1:0"\n'
TLS = '[listeners.a]\nurl = "tls://127.0.0.1:0"\n'
GRPC = '[listeners.f]\nurl = "grpc+tls://127.0.0.1:0"\n'
BRIDGE = '[plugins.vmq_bridge.bridges.far]\nurl = "mqtts://127.0.0.1:1"\n'
TOPICS = 'topics = [{ pattern = "a" }]\n'
HOOK = (
    '[plugins.vmq_webhooks.endpoints.web]\nurl = "https://127.0.0.1:1/"\nhooks = ["on_publish"]\n'
)
NODE = '[cluster]\nnode_name = "n"\nlisten = "tcp://127.0.0.1:0"\n'

OWN_CHECK = """
from vmq_hooks import Mistake, Plugin

class Mine(Plugin):
    def check(self, broker, config):
        yield Mistake("", f"{broker.config_dir}: no licence")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad files."""
    folder = tmp_path_factory.mktemp("files")
    authority = Authority(folder)
    good = authority.issue("good")
    authority.issue("other")
    authority.issue("locked", password=b"right word")
    authority.issue("late", expired=True)
    (folder / "good.der").write_bytes(good.certificate.public_bytes(Encoding.DER))
    pem = good.certfile.read_text()
    (folder / "cut.pem").write_text(pem[: len(pem) // 2] + "\n-----END CERTIFICATE-----\n")
    (folder / "text").write_text("nothing of the kind\n")
    (folder / "empty").write_text("")
    (folder / "acl").write_text("user alice\ntopic raed news/#\n")
    (folder / "passwd").write_text("alice:plain\n")
    (folder / "folder").mkdir()
    (folder / "mine.py").write_text(OWN_CHECK)
    (folder / "raises.py").write_text(OWN_CHECK.replace("yield Mistake", "raise OSError"))
    return folder


class Wrong(NamedTuple):
    """A configuration that cannot start, and its one line (FILES stands for the folder of files)."""

    text: str
    line: str


def pair(cert: str, key: str) -> str:
    return f'certfile = "FILES/{cert}"\nkeyfile = "FILES/{key}"\n'


def of_cert(file: str, why: str) -> Wrong:
    """A listener of TLS, and what is wrong with its certificate."""
    name = f"FILES/{file}"
    return Wrong(TLS + pair(file, "good.key"), f'listeners.a.certfile = "{name}": {name}: {why}')


def of_key(cert: str, file: str, why: str) -> Wrong:
    """A listener of TLS, and what is wrong with its key."""
    name = f"FILES/{file}"
    return Wrong(TLS + pair(cert, file), f'listeners.a.keyfile = "{name}": {name}: {why}')


def of_file(section: str, option: str, file: str, why: str) -> Wrong:
    """An option that names a file, and what is wrong with that."""
    name = f"FILES/{file}"
    return Wrong(
        f'{TCP}[{section}]\n{option} = "{name}"\n', f'{section}.{option} = "{name}": {why}'
    )


WRONG = {
    "certificate missing": of_cert("no.pem", "No such file or directory"),
    "certificate is a folder": of_cert("folder", "Is a directory"),
    "certificate is text": of_cert(
        "text", "not PEM: there is no -----BEGIN CERTIFICATE----- in it"
    ),
    "certificate is empty": of_cert("empty", "it is empty"),
    "certificate is DER": of_cert(
        "good.der",
        "not PEM, but DER: `openssl x509 -inform der -in FILE -out FILE.pem` converts it",
    ),
    "certificate is cut": of_cert("cut.pem", "a certificate in it is damaged ("),
    "key for certificate": of_cert("good.key", "there is no CERTIFICATE in it, but: PRIVATE KEY"),
    "certificate for key": of_key(
        "good.pem", "good.pem", "there is no PRIVATE KEY in it, but: CERTIFICATE"
    ),
    "another key": of_key(
        "good.pem", "other.key", "this key does not belong to the certificate in FILES/good.pem"
    ),
    "no password": of_key(
        "locked.pem", "locked.key", "the key is encrypted; keypasswd is its password"
    ),
    "wrong password": Wrong(
        TLS + pair("locked.pem", "locked.key") + 'keypasswd = "wrong word"\n',
        'listeners.a.keyfile = "FILES/locked.key": FILES/locked.key: keypasswd is not the key\'s password',
    ),
    "ciphers": Wrong(
        TLS + pair("good.pem", "good.key") + 'ciphers = "NONE"\n', 'listeners.a.ciphers = "NONE": '
    ),
    "cafile": Wrong(
        TLS + pair("good.pem", "good.key") + 'cafile = "FILES/text"\nrequire_certificate = true\n',
        'listeners.a.cafile = "FILES/text": FILES/text: not PEM: there is no -----BEGIN CERTIFICATE----- in it',
    ),
    "crlfile": Wrong(
        TLS
        + pair("good.pem", "good.key")
        + 'cafile = "FILES/ca.pem"\ncrlfile = "FILES/ca.pem"\nrequire_certificate = true\n',
        'listeners.a.crlfile = "FILES/ca.pem": FILES/ca.pem: not PEM, or no revocation list: '
        "there is no -----BEGIN X509 CRL----- in it",
    ),
    "sni": Wrong(
        TLS
        + pair("good.pem", "good.key")
        + 'sni = { "b.example" = { certfile = "FILES/good.pem", keyfile = "FILES/other.key" } }\n',
        "listeners.a.sni.b.example.keyfile: FILES/other.key: this key does not belong to the certificate in ",
    ),
    "flight's key": Wrong(
        TCP + GRPC + pair("good.pem", "other.key") + '[streams.s]\nfilters = ["a"]\n',
        'listeners.f.keyfile = "FILES/other.key": FILES/other.key: this key does not belong to the certificate in ',
    ),
    "host unknown": Wrong(
        '[listeners.a]\nurl = "tcp://nowhere.invalid:1"\nallow_anonymous = true\n',
        'listeners.a.url = "tcp://nowhere.invalid:1": cannot listen there: ',
    ),
    "address of another machine": Wrong(
        '[listeners.a]\nurl = "tcp://192.0.2.1:1883"\nallow_anonymous = true\n',
        'listeners.a.url = "tcp://192.0.2.1:1883": cannot listen there: Cannot assign requested address',
    ),
    "the address of another listener": Wrong(
        TCP.replace("0.0.1:0", "0.0.1:21883")
        + '[listeners.b]\nurl = "ws://0.0.0.0:21883"\nallow_anonymous = true\n',
        'listeners.b.url = "ws://0.0.0.0:21883": cannot listen there: listeners.a has this address; ',
    ),
    "the address of a listener for other nodes": Wrong(
        TCP.replace("0.0.1:0", "0.0.1:21883") + NODE.replace("127.0.0.1:0", "127.0.0.1:21883"),
        'cluster.listen = "tcp://127.0.0.1:21883": cannot listen there: listeners.a has this address; ',
    ),
    "unix folder": Wrong(
        '[listeners.a]\nurl = "unix:///no/such/s.sock"\n',
        'listeners.a.url = "unix:///no/such/s.sock": cannot listen there: there is no folder /no/such',
    ),
    "unix owner": Wrong(
        '[listeners.a]\nurl = "unix:///tmp/vmq-test.sock"\nunix_owner = "nobody-at-all"\n',
        'listeners.a.unix_owner = "nobody-at-all": there is no such user or group: nobody-at-all',
    ),
    "data directory is a file": of_file(
        "broker", "data_dir", "text", "FILES/text: it is no folder"
    ),
    "data directory below a file": of_file(
        "broker", "data_dir", "text/data", "FILES/text/data: FILES/text is no folder"
    ),
    "log file": of_file("log", "file", "folder", "FILES/folder: it is a folder"),
    "cluster key missing": Wrong(
        TCP + NODE + 'key_file = "FILES/no.key"\n',
        'cluster.key_file = "FILES/no.key": cannot read the key: FILES/no.key: No such file or directory',
    ),
    "cluster key wrong": Wrong(
        TCP + NODE + 'key_file = "FILES/text"\n',
        'cluster.key_file = "FILES/text": FILES/text: this is no cluster key, which has 40 characters of Z85; ',
    ),
    "rules": of_file("plugins.vmq_acl", "file", "acl", "FILES/acl, line 2: "),
    "passwords": of_file("plugins.vmq_passwd", "file", "passwd", "FILES/passwd, line 1: "),
    "default file of a plugin": Wrong(
        TCP + "[plugins.vmq_acl]\n", "plugins.vmq_acl.file: HERE/acl: No such file or directory"
    ),
    "a plugin's own check": Wrong(
        TCP + '[plugins.mine]\npath = "FILES/mine.py"\n', "plugins.mine: HERE: no licence"
    ),
    "a check that raises": Wrong(
        TCP + '[plugins.mine]\npath = "FILES/raises.py"\n', "plugin mine: check: OSError: "
    ),
    "a bridge's files": Wrong(
        TCP + BRIDGE + TOPICS + pair("good.pem", "other.key"),
        "plugins.vmq_bridge.bridges.far.keyfile: FILES/other.key: this key does not belong to ",
    ),
    "a bridge's encrypted key": Wrong(
        TCP + BRIDGE + TOPICS + pair("locked.pem", "locked.key"),
        "plugins.vmq_bridge.bridges.far.keyfile: FILES/locked.key: the key is encrypted; "
        "accepted: one that is not",
    ),
    "a bridge's topics": Wrong(
        TCP + BRIDGE + 'topics = [{ pattern = "a" }, { pattern = "b", qos = 3 }]\n',
        "plugins.vmq_bridge.bridges.far.topics[1].qos = 3: accepted: 0, 1, 2",
    ),
    "a bridge's pattern": Wrong(
        TCP + BRIDGE + 'topics = [{ pattern = "a/#/b" }]\n',
        'plugins.vmq_bridge.bridges.far.topics[0].pattern = "a/#/b": with its prefix, ',
    ),
    "an endpoint's authorities": Wrong(
        TCP + HOOK + 'cafile = "FILES/text"\n',
        'plugins.vmq_webhooks.endpoints.web.cafile = "FILES/text": FILES/text: not PEM: ',
    ),
    "an endpoint's hooks": Wrong(
        TCP + HOOK.replace("on_publish", "on_acked"),
        'plugins.vmq_webhooks.endpoints.web.hooks = ["on_acked"]: accepted: a list of names, one at least, of auth_on_',
    ),
    "a user's name": Wrong(
        TCP + '[plugins.vmq_passwd]\npasswords = { "a:b" = "x" }\n',
        "plugins.vmq_passwd.passwords: 'a:b': a user name has no colon or line break",
    ),
    "a stream of Spark's": Wrong(
        TCP + '[plugins.vmq_spark.streams.s]\nfilters = ["a/#/b"]\n',
        "plugins.vmq_spark.streams.s: streams.s.filters: ",
    ),
}


def written(folder: Path, files: Path, wrong: Wrong) -> tuple[Path, str]:
    path = folder / "vmq.toml"
    text = wrong.text.replace("FILES", str(files))
    if "[broker]" not in text:
        text += f'[broker]\ndata_dir = "{folder / "data"}"\n'
    path.write_text(text)
    line = wrong.line.replace("FILES", str(files)).replace("HERE", str(folder))
    return path, line


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_check_and_start_agree(tmp_path: Path, files: Path, wrong: Wrong) -> None:
    path, line = written(tmp_path, files, wrong)
    checked = here("config", "check", "--config", str(path))
    started = here("start", "--config", str(path))
    assert (checked.code, checked.out) == (2, b"")
    assert started == checked
    (said,) = checked.err.splitlines()
    assert said.removeprefix("vmq: error: ").removeprefix(f"{path}: ").startswith(line)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", [each for each in WRONG if each != "log file"])
async def test_nothing_is_refused_that_a_broker_would_take(
    tmp_path: Path, files: Path, name: str
) -> None:
    path, _ = written(tmp_path, files, WRONG[name])
    try:
        config = load(path).config
    except ConfigError:
        return
    with pytest.raises(StartError):
        await Broker(config).start()


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path, files: Path) -> None:
    several = [WRONG[each] for each in ("another key", "rules", "cluster key missing")]
    text = "".join(each.text.removeprefix(TCP) for each in several)
    path, _ = written(tmp_path, files, Wrong(text, ""))
    checked, started = (
        here(*words, "--config", str(path)) for words in (("config", "check"), ("start",))
    )
    assert checked == started
    said = [line.partition(f"{path}: ")[2].partition(" = ")[0] for line in checked.err.splitlines()]
    assert said == ["listeners.a.keyfile", "cluster.key_file", "plugins.vmq_acl.file"]


def look(path: Path) -> Preflight:
    return Preflight(load(path))


def test_what_has_expired_is_a_warning(tmp_path: Path, files: Path) -> None:
    path, _ = written(tmp_path, files, Wrong(TLS + pair("late.pem", "late.key"), ""))
    found = look(path)
    assert found.problems == []
    (line,) = found.warnings
    assert line.startswith(
        f"listeners.a.certfile: {files}/late.pem: the certificate CN=late,O=vmq tests expired on "
    )
    done = here("config", "check", "--config", str(path))
    assert done.code == 0
    assert done.err == f"vmq: warning: {line}\n"


def test_a_span_in_months_is_told_as_what_it_is(tmp_path: Path, files: Path) -> None:
    text = '[session]\npersistent_client_expiration = "30m"\n[queue]\nmax_age = "30min"\n'
    path, _ = written(tmp_path, files, Wrong(text, ""))
    said = "session.persistent_client_expiration: 30m is 900d, not 30min: m is a month"
    assert look(path).warnings == [said]


def test_a_port_or_a_directory_in_use_is_no_problem(tmp_path: Path, files: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "s.sock"))
        local.listen()
        port = taken.getsockname()[1]
        text = f'[listeners.a]\nurl = "tcp://127.0.0.1:{port}"\n'
        text += f'[listeners.b]\nurl = "unix://{tmp_path}/s.sock"\n'
        path, _ = written(tmp_path, files, Wrong(text, ""))
        assert look(path).problems == []
        assert (tmp_path / "s.sock").exists()


def test_a_file_in_the_way_of_a_socket_is_one(tmp_path: Path, files: Path) -> None:
    (tmp_path / "s.sock").write_text("")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "admin.sock").write_text("")
    path, _ = written(
        tmp_path, files, Wrong(f'[listeners.b]\nurl = "unix://{tmp_path}/s.sock"\n', "")
    )
    first, second = look(path).problems
    assert f"{tmp_path}/data/admin.sock is in the way" in first
    assert second.endswith("cannot listen there: a file that is no socket is in the way")


def test_a_stream_keeps_its_partitions(tmp_path: Path, files: Path) -> None:
    path, _ = written(tmp_path, files, Wrong(TCP + '[streams.s]\nfilters = ["a"]\n', ""))
    folder = tmp_path / "data" / "streams" / "s"
    folder.mkdir(parents=True)
    definition = {"version": 1, "origin": "config", "options": {"filters": ["a"], "partitions": 3}}
    (folder / "stream.json").write_text(json.dumps(definition))
    assert look(path).problems == [
        "streams.s.partitions = 1: there are 3, and messages in them; accepted: as many or more"
    ]
    definition["options"] = {"filters": ["a"], "colour": "red"}
    (folder / "stream.json").write_text(json.dumps(definition))
    (problem,) = look(path).problems
    assert "broker.data_dir = " in problem
    assert problem.endswith(
        "stream.json cannot be used: it has options of a later version of vmq: colour"
    )


@pytest.mark.parametrize(
    ("name", "flags", "reason"),
    [
        ("data", 0, "permission denied"),
        ("data/deep", 0, "permission denied in "),
        ("data", os.ST_RDONLY, "the file system is read-only"),
    ],
)
def test_a_folder_without_rights(
    tmp_path: Path, files: Path, name: str, flags: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # (Root may write everywhere, so the system's answer is another one here.)
    (tmp_path / "data").mkdir()
    real = os.access

    def access(path: Path, mode: int) -> bool:
        return real(path, mode) and not (mode & os.W_OK and Path(path) == tmp_path / "data")

    monkeypatch.setattr(os, "access", access)
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=flags))
    look_up = os.stat

    # Nor may anybody look at what lies in it.
    def stat(path: str | Path, **options: bool) -> os.stat_result:
        if not flags and name == "data" and tmp_path / "data" in Path(path).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look_up(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    path, _ = written(tmp_path, files, Wrong(TCP, ""))
    path.write_text(path.read_text().replace(f"{tmp_path}/data", f"{tmp_path}/{name}"))
    (line,) = look(path).problems
    assert f'broker.data_dir = "{tmp_path}/{name}": {tmp_path}/{name}: {reason}' in line


def test_a_folder_in_which_not_even_root_can_make_anything(tmp_path: Path, files: Path) -> None:
    path, _ = written(tmp_path, files, Wrong(TCP, ""))
    path.write_text(path.read_text().replace(f"{tmp_path}/data", "/proc/vmq"))
    (line,) = look(path).problems
    assert 'broker.data_dir = "/proc/vmq": /proc/vmq: ' in line
    assert "in /proc" in line


def test_the_number_of_workers_is_looked_at(tmp_path: Path, files: Path) -> None:
    text = TCP + '[broker]\nworkers = 2\ndata_dir = "FILES/data"\n'
    text += '[plugins.vmq_spark.streams.s]\nfilters = ["a"]\n'
    path, _ = written(tmp_path, files, Wrong(text, ""))
    (line,) = look(path).problems
    assert line.endswith("streams are kept by one process; accepted: broker.workers = 1")
