"""What is wrong with files of TLS. (tests/vmq/startup/test_preflight.py has them in a configuration.)"""

import ssl
from pathlib import Path

import pytest
from vmq_hooks import tls

from vmq.testing.authority import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def test_good_files_are_loaded(authority: Authority) -> None:
    issued = authority.issue("good", password=b"word")
    made = context()
    tls.load_pair(made, issued.certfile, issued.keyfile, "word")
    tls.load_authorities(made, authority.cafile)
    tls.load_revocations(made, authority.crlfile)
    assert made.verify_flags & ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    assert made.cert_store_stats() == {"x509": 1, "crl": 1, "x509_ca": 1}


def test_a_certificate_and_its_key_may_share_a_file(authority: Authority, tmp_path: Path) -> None:
    issued, other = authority.issue("one"), authority.issue("two")
    both = tmp_path / "both.pem"
    both.write_bytes(issued.certfile.read_bytes() + issued.keyfile.read_bytes())
    tls.load_pair(context(), both)
    both.write_bytes(issued.certfile.read_bytes() + other.keyfile.read_bytes())
    with pytest.raises(tls.TlsFileError) as refused:
        tls.load_pair(context(), both)
    assert str(refused.value) == (
        f"certfile: {both}: this key does not belong to the certificate in {both}"
    )


def test_a_password_is_never_asked_for(authority: Authority) -> None:
    issued = authority.issue("locked", password=b"word")
    with pytest.raises(tls.TlsFileError, match="the key is encrypted; accepted: one that is not"):
        tls.client_context(authority.cafile, issued.certfile, issued.keyfile)


def test_the_whole_path_is_named(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tls.TlsFileError) as refused:
        tls.load_authorities(context(), Path("gone.pem"))
    found = (refused.value.option, refused.value.what)
    assert found == ("cafile", f"{tmp_path}/gone.pem: No such file or directory")


def test_a_client_trusts_whom_it_is_told_to(authority: Authority, tmp_path: Path) -> None:
    made = tls.client_context(authority.cafile)
    assert made.verify_mode == ssl.CERT_REQUIRED
    assert made.check_hostname
    assert len(made.get_ca_certs()) == 1
    assert tls.client_context().verify_mode == ssl.CERT_REQUIRED
    (tmp_path / "none.pem").write_text("none")
    with pytest.raises(tls.TlsFileError, match=r"cafile: .*none\.pem: not PEM"):
        tls.client_context(tmp_path / "none.pem")


def test_a_damaged_key_is_said_to_be(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue("cut")
    lines = issued.keyfile.read_text().splitlines(keepends=True)
    cut = tmp_path / "cut.key"
    cut.write_text("".join((lines[0], lines[-1])))
    with pytest.raises(tls.TlsFileError, match=r"keyfile: .*cut\.key: the key in it is damaged"):
        tls.load_pair(context(), issued.certfile, cut)


def test_what_is_out_of_date_is_told(authority: Authority, tmp_path: Path) -> None:
    late = authority.issue("late", expired=True)
    assert list(tls.outdated("certfile", authority.issue("fine").certfile)) == []
    (line,) = tls.outdated("certfile", late.certfile)
    assert f"{late.certfile}: the certificate CN=late" in line
    assert "expired on" in line
    assert list(tls.outdated("crlfile", authority.crlfile)) == []
    assert list(tls.outdated("certfile", tmp_path / "gone")) == []
