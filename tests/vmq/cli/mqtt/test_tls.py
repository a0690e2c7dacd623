"""`vmq pub` and `vmq sub` over TLS, wss and Unix sockets, against real listeners."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.vmq.cli.program import Finished, here, subscribed
from vmq.cli.mqtt.tls import TlsFiles, explain
from vmq.cli.terminal.console import UsageError
from vmq.testing.authority import Authority, IssuedCertificate
from vmq.testing.process import BrokerProcess


@dataclass(frozen=True)
class Stage:
    """A broker, and what its clients may show and trust."""

    broker: BrokerProcess
    authority: Authority
    client: IssuedCertificate
    revoked: IssuedCertificate
    stranger: IssuedCertificate
    folder: Path

    def url(self, number: int, scheme: str, host: str = "localhost") -> str:
        port = self.broker.urls[number].split(":")[2].partition("/")[0]
        return f"{scheme}://{host}:{port}" + ("/mqtt" if scheme == "wss" else "")

    @property
    def cafile(self) -> tuple[str, str]:
        return "--cafile", str(self.authority.cafile)


def shown(issued: IssuedCertificate) -> tuple[str, ...]:
    return "--cert", str(issued.certfile), "--key", str(issued.keyfile)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Listeners: 0 TLS, 1 TLS with client certificates, 2 wss with them, 3 a Unix socket, 4 plain TCP."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "ca")
    server = authority.issue("localhost", ["localhost"])
    revoked = authority.issue("revoked")
    authority.revoke(revoked)
    files = f'certfile = "{server.certfile}"\nkeyfile = "{server.keyfile}"\n'
    wants = (
        f'{files}cafile = "{authority.cafile}"\ncrlfile = "{authority.crlfile}"\n'
        "require_certificate = true\n"
    )
    socket = f'[listeners.local]\nurl = "unix://{folder}/mqtt.sock"\n'
    (folder / "vmq.toml").write_text(
        f'[listeners.open]\nurl = "tls://127.0.0.1:0"\n{files}'
        f'[listeners.strict]\nurl = "tls://127.0.0.1:0"\n{wants}'
        f'[listeners.web]\nurl = "wss://127.0.0.1:0/mqtt"\n{wants}'
        f'{socket}[listeners.tcp]\nurl = "tcp://127.0.0.1:0"\n'
    )
    stranger = Authority(folder / "other", "another authority").issue("stranger")
    with BrokerProcess.start((), args=("--config", str(folder / "vmq.toml"))) as broker:
        client = authority.issue("client")
        yield Stage(broker, authority, client, revoked, stranger, folder)


def pub(url: str, *words: str) -> Finished:
    return here("pub", "-L", url, "-t", "t", "-m", "x", "-q", "1", *words)


@pytest.mark.parametrize(("number", "scheme"), [(1, "mqtts"), (2, "wss")])
def test_messages_go_both_ways_with_client_certificates(
    stage: Stage, number: int, scheme: str
) -> None:
    url = stage.url(number, scheme)
    files = (*stage.cafile, *shown(stage.client))
    with subscribed("-L", url, "-t", "t", "-C", "1", *files) as program:
        assert pub(url, *files) == (0, b"", "")
        done = program.finish()
    assert (done.code, done.out) == (0, b"x\n")


def test_certificate_and_key_may_be_one_file(stage: Stage) -> None:
    both = stage.folder / "both.pem"
    both.write_bytes(stage.client.certfile.read_bytes() + stage.client.keyfile.read_bytes())
    assert pub(stage.url(1, "mqtts"), *stage.cafile, "--cert", str(both)).code == 0


def test_host_and_port_with_a_tls_option_mean_tls(stage: Stage) -> None:
    port = stage.url(0, "mqtts").rpartition(":")[2]
    where = ("-h", "localhost", "-p", port, "-t", "t", "-m", "x")
    assert here("pub", *where, *stage.cafile).code == 0
    assert here("pub", *where, "--insecure").code == 0


def test_a_unix_socket(stage: Stage) -> None:
    url = f"unix://{stage.folder}/mqtt.sock"
    with subscribed("-L", url, "-t", "t", "-C", "1") as program:
        assert pub(url) == (0, b"", "")
        assert program.finish().out == b"x\n"
    gone = pub(url + "x")
    assert gone == (1, b"", f"vmq: error: cannot connect to {url}x: no such file or directory\n")


@pytest.mark.parametrize(("number", "scheme"), [(0, "mqtts"), (2, "wss")])
def test_an_unknown_authority_is_told_with_the_remedy(
    stage: Stage, number: int, scheme: str
) -> None:
    url = stage.url(number, scheme)
    done = pub(url)
    assert (done.code, done.out) == (1, b"")
    assert done.err == (
        f"vmq: error: cannot connect to {url}: the server's certificate is from an authority that "
        "is not trusted here; name its certificate with --cafile\n"
    )


@pytest.mark.parametrize(("number", "scheme"), [(0, "mqtts"), (2, "wss")])
def test_another_host_name_is_told(stage: Stage, number: int, scheme: str) -> None:
    done = pub(stage.url(number, scheme, "127.0.0.1"), *stage.cafile)
    done.tells(1, "the server's certificate is for another host name")


@pytest.mark.parametrize(("number", "scheme"), [(1, "mqtts"), (2, "wss")])
def test_a_certificate_that_is_missing_or_refused_is_told(
    stage: Stage, number: int, scheme: str
) -> None:
    url = stage.url(number, scheme)
    for words, said in (
        ((), "the server wants a client certificate (--cert and --key)"),
        (shown(stage.revoked), "the server refuses our certificate: it is revoked"),
        (
            shown(stage.stranger),
            "the server refuses our certificate: it does not know its authority",
        ),
    ):
        done = pub(url, *stage.cafile, *words)
        assert (done.code, done.err) == (1, f"vmq: error: cannot connect to {url}: {said}\n")


def test_tls_to_a_port_without_it_is_told(stage: Stage) -> None:
    done = pub(stage.url(4, "mqtts"), *stage.cafile)
    done.tells(1, "cannot connect")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-L", "mqtt://localhost", "--insecure"), "go with mqtts:// or wss://"),
        (("-L", "unix:///x", "--cafile", "CA"), "the URL says unix://"),
        (("--key", "KEY"), "--key needs --cert"),
        (("--insecure", "--cafile", "CA"), "--insecure checks nothing"),
        (("--cafile", "/nowhere"), "--cafile /nowhere: cannot read it: No such file"),
        (("--cafile", "KEY"), "there is no PEM certificate in it"),
        (("--cert", "/nowhere"), "--cert /nowhere: cannot read it"),
        (("--cert", "CERT", "--key", "/nowhere"), "--key /nowhere: cannot read it"),
        (("--cert", "CERT", "--key", "OTHER"), "the key is not that of the certificate"),
        (("--cert", "CA"), "expected a certificate and its key (PEM)"),
        (("--cert", "CERT", "--key", "LOCKED"), "there is no terminal to ask for its password"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_sent(
    stage: Stage, words: tuple[str, ...], said: str
) -> None:
    locked = stage.authority.issue("locked", password=b"secret")
    names = {
        "CA": stage.authority.cafile,
        "CERT": stage.client.certfile,
        "KEY": stage.client.keyfile,
        "OTHER": stage.stranger.keyfile,
        "LOCKED": locked.keyfile,
    }
    done = here("pub", "-t", "t", "-m", "x", *(str(names.get(word, word)) for word in words))
    done.fails(2, said)
    assert len(done.err.splitlines()) == 1


def test_whoever_says_nothing_has_the_systems_authorities_checked() -> None:
    context = TlsFiles().context()
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED


def test_only_a_given_authority_counts(stage: Stage) -> None:
    context = TlsFiles(cafile=stage.authority.cafile).context()
    assert len(context.get_ca_certs()) == 1
    with pytest.raises(UsageError):
        TlsFiles(cafile=stage.folder).context()


def test_what_nobody_foresaw_is_told_in_the_words_of_the_library() -> None:
    problem = ssl.SSLError(1, "[SSL: INAPPROPRIATE_FALLBACK] inappropriate fallback")
    problem.reason = "INAPPROPRIATE_FALLBACK"
    assert explain(problem) == "TLS failed: inappropriate fallback"
