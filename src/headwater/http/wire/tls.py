"""TLS: the server's certificate, which can be replaced while connections are open.

Listening sockets keep one context for good. The certificate is chosen for each handshake, so a new
one applies from the next connection on, and open connections do not notice. Files that do not match
change nothing.
"""

from __future__ import annotations

import ssl
from pathlib import Path


class CertificateError(Exception):
    """The certificate cannot be used; the message says why in one line."""


class Certificate:
    def __init__(self, chain: Path, key: Path) -> None:
        self.chain = chain
        self.key = key
        # This one stays with the sockets; each handshake is passed on to the current one.
        self.context = self.load()
        self.context.sni_callback = self._choose
        self._current = self.load()

    def use(self, context: ssl.SSLContext) -> None:
        """Applies from the next handshake on."""
        self._current = context

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        connection.context = self._current

    def load(self) -> ssl.SSLContext:
        """Load the current files; raises if they cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A key with a passphrase would wait for someone to type it; nobody is there.
            context.load_cert_chain(self.chain, self.key, password=_no_passphrase)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise CertificateError(
                f"cannot use the certificate {self.chain} with the key {self.key}: {reason}"
            ) from None
        return context


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase; give one without")
