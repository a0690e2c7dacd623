"""TLS contexts out of a listener's files."""

import ssl
from collections.abc import Callable
from pathlib import Path

from vmq_hooks.tls import TlsFileError, load_authorities, load_pair, load_revocations, outdated

from vmq.config.options import ListenerOptions

#: Modification time, size and inode of each file; None where there is none.
Stamp = tuple[tuple[int, int, int] | None, ...]


class CertificateError(Exception):
    """An option of a listener's TLS cannot be used: `option` says which, `what` the file and what is wrong with it."""

    def __init__(self, option: str, what: str) -> None:
        super().__init__(f"{option}: {what}")
        self.option = option
        self.what = what


def files_of(options: ListenerOptions) -> list[str]:
    """Every file that the listener's TLS is made of."""
    own = (options.certfile, options.keyfile, options.cafile, options.crlfile)
    files = [path for path in own if path is not None]
    for each in options.sni.values():
        files += (each.certfile, each.keyfile)
    return files


def outdated_of(options: ListenerOptions) -> list[str]:
    """What of the files is out of date, a line each with the option's name; clients refuse it, OpenSSL does not."""
    named = [
        ("certfile", options.certfile),
        ("cafile", options.cafile),
        ("crlfile", options.crlfile),
    ]
    named += [(f"sni.{host}.certfile", each.certfile) for host, each in options.sni.items()]
    return [
        line for option, path in named if path is not None for line in outdated(option, Path(path))
    ]


def stamp_of(options: ListenerOptions) -> Stamp:
    """Changes when one of the files does."""
    return tuple(_stamp(path) for path in files_of(options))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def build_context(options: ListenerOptions, alpn: str) -> ssl.SSLContext:
    """A fresh context out of what the files hold now.

    Fresh, not an old one changed: its tickets and sessions are new too, so nobody whose certificate
    was revoked meanwhile resumes a session that was verified before.

    Args:
        options: the listener's, whose certfile and keyfile are set.
        alpn: the protocol that is spoken inside, for clients that ask.

    Raises:
        CertificateError: a file cannot be used.
    """
    assert options.certfile is not None
    assert options.keyfile is not None
    context = _context(options, alpn, "", options.certfile, options.keyfile)
    others = {
        host.lower(): _context(options, alpn, f"sni.{host}.", each.certfile, each.keyfile)
        for host, each in options.sni.items()
    }
    if others:
        # (The stubs know sockets only; what comes here is an SSLObject, and a context is all that is set.)
        context.sni_callback = _chooser(others)
    return context


def _chooser(
    others: dict[str, ssl.SSLContext],
) -> Callable[[ssl.SSLObject, str | None, ssl.SSLContext], None]:
    def choose(connection: ssl.SSLObject, host: str | None, _context: ssl.SSLContext) -> None:
        if host is None:
            return
        name = host.lower()
        found = others.get(name) or others.get("*." + name.partition(".")[2])
        if found is not None:
            connection.context = found

    return choose


def _context(
    options: ListenerOptions, alpn: str, option: str, certfile: str, keyfile: str
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    newest = options.tls_version == "1.3"
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if newest else ssl.TLSVersion.TLSv1_2
    # A client may renegotiate at little cost to itself and much to us.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # A ticket resumes one session, and an MQTT client has one connection: OpenSSL's second is for nobody.
    context.num_tickets = 1
    context.set_alpn_protocols([alpn])
    if options.ciphers is not None:
        try:
            context.set_ciphers(options.ciphers)
        except ssl.SSLError as error:
            what = f"{options.ciphers!r}: {reason_of(error)}"
            raise CertificateError("ciphers", what) from None
    try:
        load_pair(
            context,
            Path(certfile),
            Path(keyfile),
            options.keypasswd,
            prefix=option,
            unlocked_by="keypasswd",
        )
        if options.cafile is not None:
            load_authorities(context, Path(options.cafile))
            if options.crlfile is not None:
                load_revocations(context, Path(options.crlfile))
            if options.require_certificate:
                context.verify_mode = ssl.CERT_REQUIRED
    except TlsFileError as error:
        raise CertificateError(error.option, error.what) from None
    return context


def reason_of(error: Exception) -> str:
    """What OpenSSL says, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    reason = getattr(error, "reason", None)  # Python's own SSLErrors have none
    if isinstance(reason, str):
        return reason.lower().replace("_", " ")
    return str(error.args[0] if len(error.args) == 1 else error)
