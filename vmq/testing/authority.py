"""A throw-away certificate authority."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_YEAR = timedelta(days=365)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate and its key, as files."""

    certfile: Path
    keyfile: Path
    certificate: x509.Certificate

    def load_into(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Have a context show this certificate."""
        context.load_cert_chain(self.certfile, self.keyfile)
        return context


class Authority:
    """Issues certificates into a folder, and revokes them."""

    def __init__(self, folder: Path, name: str = "vmq test authority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.cafile = folder / "ca.pem"
        self.crlfile = folder / "crl.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        now = datetime.now(UTC)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _YEAR)
            .not_valid_after(now + _YEAR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.cafile.write_bytes(self._certificate.public_bytes(_PEM))
        self._revoked: list[x509.RevokedCertificate] = []
        self._write_crl()

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        file: str | None = None,
        password: bytes | None = None,
        expired: bool = False,
    ) -> IssuedCertificate:
        """A certificate with this common name and these host names and addresses, in files named `file`."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _YEAR)
            .not_valid_after(now - timedelta(days=1) if expired else now + _YEAR)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(each) for each in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        stem = file or name.replace("*", "_") or "empty"
        certfile, keyfile = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        certfile.write_bytes(certificate.public_bytes(_PEM))
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password)
        keyfile.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, encryption))
        return IssuedCertificate(certfile, keyfile, certificate)

    def revoke(self, issued: IssuedCertificate) -> None:
        """Add a certificate to the revocation list."""
        self._revoked.append(
            x509.RevokedCertificateBuilder()
            .serial_number(issued.certificate.serial_number)
            .revocation_date(datetime.now(UTC))
            .build()
        )
        self._write_crl()

    def _write_crl(self) -> None:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - timedelta(hours=1))
            .next_update(now + _YEAR)
        )
        for each in self._revoked:
            builder = builder.add_revoked_certificate(each)
        crl = builder.sign(self._key, hashes.SHA256())
        self.crlfile.write_bytes(crl.public_bytes(_PEM))

    def client_context(self, issued: IssuedCertificate | None = None) -> ssl.SSLContext:
        """What a client needs that trusts this authority, and shows a certificate if it has one."""
        context = ssl.create_default_context(cafile=self.cafile)
        return issued.load_into(context) if issued is not None else context


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _named(name: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "vmq tests")]
    if name:
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    return x509.Name(parts)
