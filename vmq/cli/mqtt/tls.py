"""TLS of `vmq pub` and `vmq sub`: what to trust, what to show, and what a failed handshake means."""

import getpass
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vmq.cli.terminal.console import UsageError, is_terminal

#: OpenSSL's codes of verification (X509_V_ERR_...): self-signed, or signed by nobody whom we trust.
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
#: HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH.
_OTHER_HOST: Final = frozenset({62, 64})

#: What the server's alerts and our own library mean, by the ends of OpenSSL's names for them.
_MEANINGS: Final = {
    "CERTIFICATE_REQUIRED": "the server wants a client certificate (--cert and --key)",
    "HANDSHAKE_FAILURE": "the server refuses the handshake; it may want a client certificate (--cert and --key)",
    "UNKNOWN_CA": "the server refuses our certificate: it does not know its authority",
    "CERTIFICATE_REVOKED": "the server refuses our certificate: it is revoked",
    "CERTIFICATE_EXPIRED": "the server refuses our certificate: it has expired",
    "BAD_CERTIFICATE": "the server refuses our certificate",
    "CERTIFICATE_UNKNOWN": "the server refuses our certificate",
    "WRONG_VERSION_NUMBER": "the server speaks no TLS at this port",
    "PROTOCOL_VERSION": "the server and we have no version of TLS in common",
}


@dataclass(frozen=True)
class TlsFiles:
    """What the options say of TLS."""

    cafile: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False

    @property
    def is_given(self) -> bool:
        """Whether they say anything."""
        return self != TlsFiles()

    def context(self) -> ssl.SSLContext:
        """The settings of a connection.

        Raises:
            UsageError: a file cannot be used, or options are at odds.
        """
        if self.key is not None and self.cert is None:
            raise UsageError("--key needs --cert")
        if self.insecure and self.cafile is not None:
            raise UsageError("--insecure checks nothing, so --cafile has no use with it")
        context = ssl.create_default_context()
        if self.cafile is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._trust(context, self.cafile)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            self._show(context, self.cert)
        return context

    def _trust(self, context: ssl.SSLContext, file: Path) -> None:
        try:
            context.load_verify_locations(cafile=file)
        except ssl.SSLError:
            raise UsageError(f"--cafile {file}: there is no PEM certificate in it") from None
        except OSError as problem:
            raise UsageError(f"--cafile {file}: cannot read it: {problem.strerror}") from None

    def _show(self, context: ssl.SSLContext, cert: Path) -> None:
        for option, file in (("--cert", cert), ("--key", self.key)):
            try:
                if file is not None:
                    file.read_bytes()
            except OSError as problem:
                raise UsageError(f"{option} {file}: cannot read it: {problem.strerror}") from None
        try:
            context.load_cert_chain(cert, self.key, self._password)
        except ssl.SSLError as problem:
            files = f"--cert {cert}" if self.key is None else f"--cert {cert} --key {self.key}"
            if problem.reason == "KEY_VALUES_MISMATCH":
                raise UsageError(f"{files}: the key is not that of the certificate") from None
            raise UsageError(
                f"{files}: expected a certificate and its key (PEM), or the password is wrong"
            ) from None

    def _password(self) -> str:
        """That of an encrypted key: a person is asked for it."""
        if not is_terminal(sys.stdin):
            raise UsageError(
                "the key is encrypted, and there is no terminal to ask for its password"
            )
        return getpass.getpass(f"Password of {self.key or self.cert}: ")


def explain(problem: ssl.SSLError) -> str:
    """Why a TLS connection failed, and what may help."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        if problem.verify_code in _UNKNOWN_AUTHORITY:
            return (
                "the server's certificate is from an authority that is not trusted here; "
                "name its certificate with --cafile"
            )
        if problem.verify_code in _OTHER_HOST:
            return "the server's certificate is for another host name"
        return f"the server's certificate is not good: {problem.verify_message}"
    reason = problem.reason or ""
    for end, meaning in _MEANINGS.items():
        if reason.endswith(end):
            return meaning
    return f"TLS failed: {(reason or str(problem)).lower().replace('_', ' ')}"
