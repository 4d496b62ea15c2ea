"""Certificates for one test cluster: a CA, a server and a client it vouches for, and a CA nobody should trust.

Files are for loopback names only and expire after a day. Keys are unencrypted PKCS#8: etcd, ZooKeeper (3.8, PEM
stores) and Python's `ssl` all read that form.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=1)
_CLOCK_SLACK = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of one cluster. `ca`, `cert` and `key` are the client's; `other_ca` signed none of them."""

    ca: Path
    cert: Path
    key: Path
    other_ca: Path
    server_cert: Path
    server_key: Path
    server_store: Path
    mutual: bool


def make_tls_files(directory: Path, *, mutual: bool) -> TlsFiles:
    """Write a fresh set of certificates into `directory` and name the files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = _files_in(directory, mutual=mutual)
    authority = _Authority("tenure test CA")
    files.ca.write_bytes(authority.pem())
    files.other_ca.write_bytes(_Authority("tenure untrusted CA").pem())
    _write_pair(authority.issue("localhost"), files.server_cert, files.server_key)
    _write_pair(authority.issue("tenure-client"), files.cert, files.key)
    files.server_store.write_bytes(files.server_key.read_bytes() + files.server_cert.read_bytes())
    return files


def _files_in(directory: Path, *, mutual: bool) -> TlsFiles:
    return TlsFiles(
        ca=directory / "ca.pem",
        cert=directory / "client.pem",
        key=directory / "client.key",
        other_ca=directory / "other-ca.pem",
        server_cert=directory / "server.pem",
        server_key=directory / "server.key",
        server_store=directory / "server-store.pem",
        mutual=mutual,
    )


def _write_pair(pair: tuple[x509.Certificate, ec.EllipticCurvePrivateKey], cert: Path, key: Path) -> None:
    certificate, private = pair
    cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    # World-readable on purpose: a container's server runs as another user, and the key guards nothing.
    key.chmod(0o644)


class _Authority:
    """A self-signed CA that lives only while the files are written."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = self._sign_itself()

    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, common_name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """A certificate for loopback, good for both roles: etcd's gateway dials its own server with the server's."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(subject=_name(common_name), issuer=self._name, public=key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_loopback_names(), critical=False)
            .add_extension(usages, critical=False)
            .add_extension(issuer, critical=False)
        )
        return builder.sign(self._key, hashes.SHA256()), key

    def _sign_itself(self) -> x509.Certificate:
        public = self._key.public_key()
        return (
            _builder(subject=self._name, issuer=self._name, public=public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_signing_only(), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(*, subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + _LIFE)
    )


def _loopback_names() -> x509.SubjectAlternativeName:
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return x509.SubjectAlternativeName([x509.DNSName("localhost"), address])


def _signing_only() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
