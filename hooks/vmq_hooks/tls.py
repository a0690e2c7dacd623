"""TLS out of files: certificates, keys, authorities. What is wrong with a file is said in words, with its whole path.

OpenSSL says "no start line" or "bad decrypt", and of no file; so what it refuses is looked at once more. For the broker
and for plugins that connect by TLS.
"""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

#: More is no file of certificates: a path to a device would be read for ever.
MAX_BYTES: Final = 64 << 20

_CERTIFICATE: Final = b"CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_CRL: Final = b"-----BEGIN X509 CRL-----"
_BEGIN: Final = b"-----BEGIN "
_DER: Final = b"\x30\x82"

#: What OpenSSL says of files that are what they should be, and that it does not take all the same.
_REASONS: Final = {
    "EE_KEY_TOO_SMALL": "its key is too short to be safe; accepted: RSA of 2048 bits or more, or ECDSA",
    "CA_KEY_TOO_SMALL": "the key of an authority in it is too short to be safe",
    "CA_MD_TOO_WEAK": "it is signed with an outdated hash; accepted: SHA-256 or better",
    "UNKNOWN_CERTIFICATE_TYPE": "its kind of key is not one for TLS",
}


class TlsFileError(ValueError):
    """A file that cannot be used.

    Args:
        option: which option names the file.
        what: what is wrong, with the file's whole path.
    """

    def __init__(self, option: str, what: str) -> None:
        super().__init__(f"{option}: {what}")
        self.option = option
        self.what = what


def load_pair(
    context: ssl.SSLContext,
    certfile: Path,
    keyfile: Path | None = None,
    password: str | None = None,
    *,
    prefix: str = "",
    unlocked_by: str = "",
) -> None:
    """Has a context show a certificate. Reads files, and never asks the terminal for a password.

    Args:
        context: whose it will be.
        certfile: the certificate and its chain, in PEM.
        keyfile: its private key, in PEM; None: in the same file.
        password: the key's, if it is encrypted.
        prefix: what stands before `certfile` and `keyfile` in the names of the options.
        unlocked_by: the option that has the password; "": there is none.

    Raises:
        TlsFileError: a file cannot be used.
    """
    read(prefix + "certfile", certfile)
    if keyfile is not None:
        read(prefix + "keyfile", keyfile)
    try:
        context.load_cert_chain(certfile, keyfile, password or "")
    except (ssl.SSLError, OSError, ValueError) as error:
        certificate = _certificates(prefix + "certfile", certfile)[0]
        _check_key(certificate, certfile, keyfile, password, prefix, unlocked_by)
        raise TlsFileError(prefix + "certfile", f"{_whole(certfile)}: {_reason(error)}") from None


def load_authorities(context: ssl.SSLContext, path: Path, option: str = "cafile") -> None:
    """Has a context trust the authorities in a file of PEM certificates.

    Raises:
        TlsFileError: it cannot be used.
    """
    read(option, path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise _no_authorities(option, path, error) from None


def load_revocations(context: ssl.SSLContext, path: Path, option: str = "crlfile") -> None:
    """Has a context know the revocation lists in a file of PEM, and check certificates of clients against them.

    Raises:
        TlsFileError: it cannot be used, or there is no list in it.
    """
    data = read(option, path)
    if _CRL not in data:
        what = f"not PEM, or no revocation list: there is no {_CRL.decode()} in it"
        raise TlsFileError(option, f"{_whole(path)}: {what}")
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        what = f"the revocation list in it is damaged ({_reason(error)})"
        raise TlsFileError(option, f"{_whole(path)}: {what}") from None
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def client_context(
    cafile: Path | None = None, certfile: Path | None = None, keyfile: Path | None = None
) -> ssl.SSLContext:
    """A context for connections to a server, which is verified.

    Args:
        cafile: who signed the server's certificate; None: whom the system trusts.
        certfile: our own certificate; None: we show none.
        keyfile: its key; None: in the same file.

    Raises:
        TlsFileError: a file cannot be used.
    """
    if cafile is not None:
        read("cafile", cafile)
    try:
        context = ssl.create_default_context(cafile=cafile)
    except (ssl.SSLError, OSError) as error:
        assert cafile is not None
        raise _no_authorities("cafile", cafile, error) from None
    if certfile is not None:
        load_pair(context, certfile, keyfile)
    return context


def _no_authorities(option: str, path: Path, error: Exception) -> TlsFileError:
    try:
        _certificates(option, path)
    except TlsFileError as found:
        return found
    return TlsFileError(option, f"{_whole(path)}: {_reason(error)}")


def read(option: str, path: Path) -> bytes:
    """The bytes of the file that an option names.

    Raises:
        TlsFileError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TlsFileError(option, f"{_whole(path)}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise TlsFileError(option, f"{_whole(path)}: larger than {MAX_BYTES} bytes")
    return data


def outdated(option: str, path: Path) -> Iterator[str]:
    """What of a file's certificates and revocation lists is out of date, a line each; nothing if it cannot be read.

    OpenSSL loads such a file; who verifies it refuses.
    """
    from cryptography import x509

    try:
        data = read(option, path)
        certificates = x509.load_pem_x509_certificates(data) if _CERTIFICATE in data else []
        lists = [x509.load_pem_x509_crl(data)] if _CRL in data else []
    except ValueError:
        return
    now = datetime.now(UTC)
    for each in certificates:
        name = each.subject.rfc4514_string() or "without a name"
        if each.not_valid_after_utc < now:
            yield f"{option}: {_whole(path)}: the certificate {name} expired on {_day(each.not_valid_after_utc)}"
        elif each.not_valid_before_utc > now:
            since = _day(each.not_valid_before_utc)
            yield f"{option}: {_whole(path)}: the certificate {name} is not valid before {since}"
    for found in lists:
        until = found.next_update_utc
        if until is not None and until < now:
            what = (
                f"the revocation list expired on {_day(until)}, and nobody is let in by certificate"
            )
            yield f"{option}: {_whole(path)}: {what}"


def _day(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC")


def _whole(path: Path) -> Path:
    return path.absolute()


def _certificates(option: str, path: Path) -> "list[Certificate]":
    from cryptography import x509

    data = read(option, path)
    if _CERTIFICATE not in data:
        raise TlsFileError(option, f"{_whole(path)}: {_lacks(data, 'CERTIFICATE', 'x509')}")
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        what = f"a certificate in it is damaged ({error})"
        raise TlsFileError(option, f"{_whole(path)}: {what}") from None


def _check_key(
    certificate: "Certificate",
    certfile: Path,
    keyfile: Path | None,
    password: str | None,
    prefix: str,
    unlocked_by: str,
) -> None:
    """Raises TlsFileError if it is the key that keeps a pair from being used."""
    option, path = (
        (prefix + "keyfile", keyfile) if keyfile is not None else (prefix + "certfile", certfile)
    )
    key = _private_key(option, path, password, unlocked_by)
    if key.public_key() != certificate.public_key():
        what = f"this key does not belong to the certificate in {_whole(certfile)}"
        raise TlsFileError(option, f"{_whole(path)}: {what}")


def _private_key(
    option: str, path: Path, password: str | None, unlocked_by: str
) -> "PrivateKeyTypes":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = read(option, path)
    where = _whole(path)
    if _KEY not in data:
        raise TlsFileError(option, f"{where}: {_lacks(data, 'PRIVATE KEY', 'pkey')}")
    is_encrypted = b"ENCRYPTED" in data
    if is_encrypted and not password:
        hint = f"; {unlocked_by} is its password" if unlocked_by else "; accepted: one that is not"
        raise TlsFileError(option, f"{where}: the key is encrypted{hint}")
    try:
        return load_pem_private_key(data, password.encode() if is_encrypted and password else None)
    except UnsupportedAlgorithm as error:
        raise TlsFileError(option, f"{where}: {error}") from None
    except (ValueError, TypeError) as error:
        if is_encrypted:
            raise TlsFileError(
                option, f"{where}: {unlocked_by} is not the key's password"
            ) from None
        raise TlsFileError(option, f"{where}: the key in it is damaged ({error})") from None


def _lacks(data: bytes, wanted: str, command: str) -> str:
    """What to say of a file in which PEM of one kind is missing."""
    if data.startswith(_DER):
        return (
            f"not PEM, but DER: `openssl {command} -inform der -in FILE -out FILE.pem` converts it"
        )
    if _BEGIN not in data:
        return (
            f"not PEM: there is no -----BEGIN {wanted}----- in it"
            if data.strip()
            else "it is empty"
        )
    kind = data.partition(_BEGIN)[2].partition(b"-----")[0].decode("ascii", "replace")[:40]
    return f"there is no {wanted} in it, but: {kind}"


def _reason(error: Exception) -> str:
    """What OpenSSL says, without the place in its source."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, str):
        return _REASONS.get(reason) or reason.lower().replace("_", " ")
    return str(error.args[0] if len(error.args) == 1 else error)
