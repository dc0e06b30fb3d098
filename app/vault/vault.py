"""The keeper of secrets: encryption, keyed hashes and signed tokens; reads no database.

Two kinds of key. The entries of SECRET_KEY sign JWTs (the first signs, every one verifies) and wrap
the data key; the data key, random and kept wrapped in the database, does everything that must
survive a rotation of SECRET_KEY. Every purpose has its own key, derived by HKDF (RFC 5869), so what
was made for one is worthless for another.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Sequence
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from joserfc.jwk import KeySet, OctKey

KEY_BYTES = 32
KEY_ID_BYTES = 4
NONCE_BYTES = 12  # 96 bits: what GCM is made for (NIST SP 800-38D §8.2)


class VaultError(Exception):
    """A secret cannot be opened: another key made it, or it was changed or moved."""


class Vault:
    def __init__(self, secret_keys: Sequence[str], wrapped: bytes | None = None) -> None:
        """`wrapped` is the data key from the database; without it only JWTs work until `open`."""
        self._entries = [entry.encode() for entry in secret_keys]
        self._data_key: bytes | None = None
        self._subkeys: dict[str, bytes] = {}
        derived = [_derive(entry, "jwt") for entry in self._entries]
        self.jwt_keys = KeySet(
            [
                OctKey.import_key(key, {"kid": _key_id(key).hex(), "use": "sig", "alg": "HS256"})
                for key in derived
            ]
        )
        if wrapped is not None:
            self.open(wrapped)

    def new_data_key(self) -> bytes:
        """A fresh data key, wrapped by the first entry of SECRET_KEY."""
        return _seal(_derive(self._entries[0], "wrap"), secrets.token_bytes(KEY_BYTES), b"data key")

    def open(self, wrapped: bytes) -> None:
        """Raises VaultError when no entry of SECRET_KEY wrapped this data key."""
        for entry in self._entries:
            try:
                self._data_key = _unseal(_derive(entry, "wrap"), wrapped, b"data key")
            except VaultError:
                continue
            self._subkeys.clear()
            return
        raise VaultError(
            "No entry of SECRET_KEY opens the data key in the database: set SECRET_KEY to the value"
            " that this database was used with, or append that value to it after a comma."
        )

    def wrapped_by_first(self, wrapped: bytes) -> bool:
        """Return whether the first entry of SECRET_KEY alone opens the data key. Then the others
        may go as far as it is concerned."""
        try:
            _unseal(_derive(self._entries[0], "wrap"), wrapped, b"data key")
        except VaultError:
            return False
        return True

    def rewrap(self) -> bytes:
        """The data key, wrapped anew by the first entry of SECRET_KEY."""
        if self._data_key is None:
            raise VaultError("The data key has not been opened yet.")
        return _seal(_derive(self._entries[0], "wrap"), self._data_key, b"data key")

    def encrypt(self, purpose: str, plaintext: bytes, *bound_to: str) -> bytes:
        """Encrypt what opens again only for the same purpose and ids: those of its row."""
        return _seal(self._key(f"encrypt {purpose}"), plaintext, _joined(bound_to))

    def decrypt(self, purpose: str, ciphertext: bytes, *bound_to: str) -> bytes:
        """Raises VaultError when the ciphertext was made elsewhere, moved, cut or changed."""
        return _unseal(self._key(f"encrypt {purpose}"), ciphertext, _joined(bound_to))

    def keyed_hash(self, purpose: str, value: bytes) -> bytes:
        """32 bytes that only this installation can compute: equal values can be found, not read."""
        return hmac.digest(self._key(f"hash {purpose}"), value, "sha256")

    def sign(self, purpose: str, payload: bytes) -> str:
        """A token of URL-safe characters that carries the payload in the clear."""
        return _to_text(self._tag(purpose, payload) + payload)

    def unsign(self, purpose: str, token: str) -> bytes | None:
        """The payload of a token that `sign` made for the same purpose, else None."""
        sealed = _to_bytes(token)
        tag, payload = sealed[:16], sealed[16:]
        return payload if hmac.compare_digest(tag, self._tag(purpose, payload)) else None

    def conceal(self, purpose: str, payload: bytes) -> str:
        """A token of URL-safe characters that hides the payload, and is the same whenever it is
        made (RFC 5297)."""
        return _to_text(AESSIV(self._key(f"conceal {purpose}")).encrypt(payload, None))

    def reveal(self, purpose: str, token: str) -> bytes | None:
        """The payload of a token that `conceal` made for the same purpose, else None."""
        try:
            return AESSIV(self._key(f"conceal {purpose}")).decrypt(_to_bytes(token), None)
        except (InvalidTag, ValueError):  # ValueError: too short to be one
            return None

    def _tag(self, purpose: str, payload: bytes) -> bytes:
        return hmac.digest(self._key(f"sign {purpose}"), payload, "sha256")[:16]

    def _key(self, purpose: str) -> bytes:
        if self._data_key is None:
            raise VaultError("The data key has not been opened yet.")
        if purpose not in self._subkeys:
            self._subkeys[purpose] = _derive(self._data_key, purpose)
        return self._subkeys[purpose]


def _derive(secret: bytes, purpose: str) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=f"tidings {purpose}".encode()).derive(secret)


def _key_id(key: bytes) -> bytes:
    """Names a key without telling anything about it."""
    return sha256(b"tidings key id" + key).digest()[:KEY_ID_BYTES]


def _seal(key: bytes, plaintext: bytes, bound_to: bytes) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return _key_id(key) + nonce + AESGCM(key).encrypt(nonce, plaintext, bound_to)


def _unseal(key: bytes, sealed: bytes, bound_to: bytes) -> bytes:
    key_id, nonce = sealed[:KEY_ID_BYTES], sealed[KEY_ID_BYTES : KEY_ID_BYTES + NONCE_BYTES]
    if not hmac.compare_digest(key_id, _key_id(key)):
        raise VaultError("The ciphertext was made with another key, or for another purpose.")
    try:
        return AESGCM(key).decrypt(nonce, sealed[KEY_ID_BYTES + NONCE_BYTES :], bound_to)
    except (InvalidTag, ValueError) as error:  # ValueError: cut so short that no nonce is left
        raise VaultError("The ciphertext was changed, or moved from another row.") from error


def _joined(parts: Sequence[str]) -> bytes:
    """Each part with its length before it, so that ("ab", "c") and ("a", "bc") differ."""
    texts = [part.encode() for part in parts]
    return b"".join(len(text).to_bytes(4, "big") + text for text in texts)


def _to_text(token: bytes) -> str:
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def _to_bytes(text: str) -> bytes:
    """Empty unless `text` is exactly what `_to_text` writes: one token has one spelling."""
    try:
        token = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
    return token if _to_text(token) == text else b""


def digest(token: str) -> bytes:
    """The stored digest of a token: it is random and long, so a fast hash is enough."""
    return sha256(token.encode()).digest()
