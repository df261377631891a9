"""The certificate and the key of a service that answers over TLS; both can be read again while it runs."""

import ssl
from pathlib import Path

from pesto.core.errors import UsageError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import shown

MOST_BYTES = 1 << 24
"""Of each file."""


class _EncryptedKeyError(Exception):
    """The key asks for a password."""


class Certificate:
    """A certificate chain with its private key, both PEM files."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Read both. FileError for one that cannot be read; UsageError for what is none, or do not belong together."""
        self._chain, self._key = chain, key
        self.context = self._read()
        """For handshakes from now on."""

    def reload(self) -> None:
        """Read both again; errors as at first, and what was read before stays."""
        self.context = self._read()

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        for path in (self._chain, self._key):
            read_bytes(path, MOST_BYTES)
        key, chain = shown(self._key), shown(self._chain)
        try:
            context.load_cert_chain(self._chain, self._key, _no_password)
        except _EncryptedKeyError:
            raise UsageError.build(
                f"the key {key} is encrypted", remedy=f"decrypt it: openssl pkey -in {key} -out server.key"
            ) from None
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                what = f"the key {key} is not that of the certificate {chain} - give the key that it was made with"
            else:
                what = f"{chain} and {key} are no certificate and key - give PEM files, the server's certificate first"
            raise UsageError(what) from error
        return context


def _no_password() -> str:
    raise _EncryptedKeyError
