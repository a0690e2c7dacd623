"""Contexts out of files. (tests/listeners/test_tls.py has the errors of a start.)"""

from pathlib import Path

import pytest

from vmq.config.options import Certificate, ListenerOptions
from vmq.listeners.certificates import CertificateError, build_context, files_of, stamp_of
from vmq.testing.authority import Authority


def test_every_file_is_watched(tmp_path: Path) -> None:
    options = ListenerOptions(
        url="tls://127.0.0.1:0",
        certfile=str(tmp_path / "a"),
        keyfile=str(tmp_path / "b"),
        cafile=str(tmp_path / "c"),
        crlfile=str(tmp_path / "d"),
        sni={"h": Certificate(certfile=str(tmp_path / "e"), keyfile=str(tmp_path / "f"))},
    )
    assert [Path(path).name for path in files_of(options)] == list("abcdef")
    seen = [stamp_of(options)]
    for path in files_of(options):
        Path(path).write_text("x")
        seen.append(stamp_of(options))
    Path(files_of(options)[0]).write_text("longer")
    seen.append(stamp_of(options))
    assert len(set(seen)) == len(seen)
    assert stamp_of(options) == seen[-1]


def test_an_authority_file_or_revocation_list_that_is_none_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("localhost")
    empty = tmp_path / "empty.pem"
    empty.write_text("")

    def build(**files: str) -> None:
        build_context(
            ListenerOptions(
                url="tls://127.0.0.1:0",
                certfile=str(server.certfile),
                keyfile=str(server.keyfile),
                require_certificate=True,
                **files,  # type: ignore[arg-type]
            ),
            "mqtt",
        )

    build(cafile=str(authority.cafile), crlfile=str(authority.crlfile))
    with pytest.raises(CertificateError, match=r"cafile: .*empty\.pem: it is empty"):
        build(cafile=str(empty))
    with pytest.raises(
        CertificateError, match=r"crlfile: .*ca\.pem: not PEM, or no revocation list"
    ):
        build(cafile=str(authority.cafile), crlfile=str(authority.cafile))
