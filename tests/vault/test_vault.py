"""Vault: what it keeps secret, keeps apart, and keeps through a rotation of SECRET_KEY."""

from __future__ import annotations

import pytest

from app.vault.vault import Vault, VaultError

OLD = "old entry, thirty-two characters"
NEW = "new entry, thirty-two characters"


@pytest.fixture
def vault() -> Vault:
    return opened(OLD)


def opened(*secret_keys: str) -> Vault:
    vault = Vault(secret_keys)
    vault.open(vault.new_data_key())
    return vault


# --- the data key -------------------------------------------------------------------------------


def test_every_data_key_is_new() -> None:
    vault = Vault([OLD])
    assert vault.new_data_key() != vault.new_data_key()


def test_the_data_key_opens_with_any_entry_of_secret_key() -> None:
    wrapped = Vault([OLD]).new_data_key()
    sealed = Vault([OLD], wrapped).encrypt("secret", b"plain", "ws_1")
    assert Vault([NEW, OLD], wrapped).decrypt("secret", sealed, "ws_1") == b"plain"


def test_a_data_key_that_no_entry_opens_is_refused_with_a_sentence() -> None:
    wrapped = Vault([OLD]).new_data_key()
    with pytest.raises(VaultError, match="No entry of SECRET_KEY opens the data key"):
        Vault([NEW], wrapped)


@pytest.mark.parametrize("wrapped", [b"", b"short", bytes(100)])
def test_a_damaged_data_key_is_refused(wrapped: bytes) -> None:
    with pytest.raises(VaultError):
        Vault([OLD], wrapped)


def test_before_the_data_key_is_open_nothing_is_encrypted_with_another() -> None:
    with pytest.raises(VaultError):
        Vault([OLD]).encrypt("secret", b"plain")


# --- encryption ---------------------------------------------------------------------------------


def test_what_was_encrypted_is_decrypted(vault: Vault) -> None:
    sealed = vault.encrypt("secret", b"plain", "ws_1", "wfl_1")
    assert vault.decrypt("secret", sealed, "ws_1", "wfl_1") == b"plain"
    assert b"plain" not in sealed


def test_the_same_text_never_looks_the_same(vault: Vault) -> None:
    assert vault.encrypt("secret", b"plain") != vault.encrypt("secret", b"plain")


@pytest.mark.parametrize(
    ("purpose", "bound_to"),
    [
        ("other purpose", ("ws_1", "wfl_1")),
        ("secret", ("ws_2", "wfl_1")),
        ("secret", ("ws_1", "wfl_2")),
        ("secret", ("ws_1wfl_1",)),
        ("secret", ("ws_1w", "fl_1")),
        ("secret", ("wfl_1", "ws_1")),
        ("secret", ()),
    ],
)
def test_a_ciphertext_moved_elsewhere_does_not_open(
    vault: Vault, purpose: str, bound_to: tuple[str, ...]
) -> None:
    sealed = vault.encrypt("secret", b"plain", "ws_1", "wfl_1")
    with pytest.raises(VaultError):
        vault.decrypt(purpose, sealed, *bound_to)


def test_a_ciphertext_with_any_bit_flipped_or_any_byte_missing_does_not_open(vault: Vault) -> None:
    sealed = vault.encrypt("secret", b"plain", "ws_1")
    flipped = [
        sealed[:at] + bytes([sealed[at] ^ 1 << bit]) + sealed[at + 1 :]
        for at in range(len(sealed))
        for bit in range(8)
    ]
    for damaged in [*flipped, *(sealed[:length] for length in range(len(sealed)))]:
        with pytest.raises(VaultError):
            vault.decrypt("secret", damaged, "ws_1")


# --- keyed hashes -------------------------------------------------------------------------------


def test_a_keyed_hash_is_the_same_for_the_same_value_and_differs_by_purpose_and_key(
    vault: Vault,
) -> None:
    hashed = vault.keyed_hash("suppression", b"a@b.test")
    assert hashed == vault.keyed_hash("suppression", b"a@b.test")
    assert hashed != vault.keyed_hash("suppression", b"c@b.test")
    assert hashed != vault.keyed_hash("other", b"a@b.test")
    assert hashed != opened(OLD).keyed_hash("suppression", b"a@b.test")


# --- signed tokens ------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"con_1", bytes(range(256))])
def test_a_signed_token_gives_its_payload_back(vault: Vault, payload: bytes) -> None:
    token = vault.sign("cursor", payload)
    assert vault.unsign("cursor", token) == payload
    assert token.isascii()
    assert token.replace("-", "").replace("_", "").isalnum()


def test_a_token_for_one_purpose_is_none_for_another(vault: Vault) -> None:
    assert vault.unsign("unsubscribe", vault.sign("cursor", b"con_1")) is None


def test_a_token_of_another_installation_is_none(vault: Vault) -> None:
    assert vault.unsign("cursor", opened(OLD).sign("cursor", b"con_1")) is None


def test_a_token_survives_a_rotation() -> None:
    wrapped = Vault([OLD]).new_data_key()
    token = Vault([OLD], wrapped).sign("cursor", b"con_1")
    assert Vault([NEW, OLD], wrapped).unsign("cursor", token) == b"con_1"


@pytest.mark.parametrize(
    "token", ["", "A", "=", "é", "\0", "\ud800", "AAAA", "A" * 21, "A" * 22, "A" * 1_000_000, "a b"]
)
def test_garbage_is_none(vault: Vault, token: str) -> None:
    assert vault.unsign("cursor", token) is None


def test_a_token_has_one_spelling(vault: Vault) -> None:
    """Neither padding nor the unused bits of the last character make a second one."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    token = vault.sign("cursor", b"con_1")
    spellings = [token[:-1] + character for character in alphabet] + [token + "=", token + "\n"]
    assert [text for text in spellings if vault.unsign("cursor", text) is not None] == [token]


def test_a_concealed_payload_is_the_same_each_time_and_opens_for_its_purpose(vault: Vault) -> None:
    token = vault.conceal("number", b"+4915112345678")
    assert token == vault.conceal("number", b"+4915112345678")
    assert vault.reveal("number", token) == b"+4915112345678"
    assert vault.reveal("other", token) is None
    assert opened(OLD).reveal("number", token) is None
    assert vault.reveal("number", ("B" if token[0] == "A" else "A") + token[1:]) is None


@pytest.mark.parametrize("token", ["", "A", "=", "é", "\ud800", "A" * 21, "A" * 22, "A" * 100_000])
def test_garbage_conceals_nothing(vault: Vault, token: str) -> None:
    assert vault.reveal("number", token) is None


# --- JWT keys -----------------------------------------------------------------------------------


def test_each_entry_of_secret_key_has_a_jwt_key_in_the_same_order() -> None:
    old, new = Vault([OLD]).jwt_keys.keys[0], Vault([NEW]).jwt_keys.keys[0]
    assert [key.kid for key in Vault([NEW, OLD]).jwt_keys] == [new.kid, old.kid]
    assert new.kid != old.kid


def test_a_key_id_tells_nothing_of_the_key() -> None:
    key = Vault([OLD]).jwt_keys.keys[0]
    assert key.kid is not None
    assert isinstance(key.raw_value, bytes)
    assert bytes.fromhex(key.kid) not in key.raw_value
    assert OLD.encode() not in key.raw_value
