"""Identity: who is let in, as whom, and for how long."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from app.accounts import registration as accounts
from app.accounts import signing_in
from app.accounts.signing_in import SignIn
from app.audience import addresses
from app.audit.trail import Where
from app.config.settings import Settings
from app.database.db import Database
from app.errors import Problem
from app.identity import identity, keyring, roles
from app.jobs.hints import Hints, connector
from app.net.egress import Egress
from app.process import Process
from app.providers import api
from app.providers.own import Own
from app.store import api_keys, users
from app.vault.vault import Vault

PASSWORD = "correct horse battery"
HERE = Where("192.0.2.1", "a request of these tests")


async def registered(process: Process, name: str = "olivia") -> tuple[users.User, SignIn]:
    return await accounts.register(
        process,
        HERE,
        email=addresses.email(f"{name}@acme.example"),
        password=PASSWORD,
        name=name.title(),
        workspace_name="Acme",
    )


async def signed_in(process: Process, **given: Any) -> SignIn:
    defaults = {"password": PASSWORD, "workspace_id": None}
    return await signing_in.with_password(
        process, HERE, email=addresses.email("olivia@acme.example"), **{**defaults, **given}
    )


async def key_of(
    process: Process, user: users.User, signed: SignIn, role: str = "editor", **given: Any
) -> tuple[api_keys.ApiKey, str]:
    async with process.database.write() as db:
        return await keyring.create(
            process,
            db,
            workspace_id=signed.workspace.id,
            made_by=user.id,
            name="CRM",
            role=role,
            **given,
        )


async def execute(process: Process, sql: str, **values: Any) -> None:
    async with process.database.write() as db:
        await db.execute(sql, **values)


async def refusal(awaitable: Awaitable[object]) -> str:
    """The code that it is refused with."""
    with pytest.raises(Problem) as caught:
        await awaitable
    return caught.value.code


# --- registration and sign-in -------------------------------------------------------------------


async def test_who_registers_owns_the_new_workspace(process: Process) -> None:
    user, signed = await registered(process)
    member = await identity.authenticate(process, signed.access_token)
    assert (member.role, member.via, member.name) == ("owner", "session", "Olivia")
    assert (member.user_id, member.workspace_id) == (user.id, signed.workspace.id)
    assert member.permissions == roles.PERMISSIONS["owner"]
    assert not member.super_admin


async def test_an_address_registers_once_however_it_is_written(process: Process) -> None:
    await registered(process, "olivia")
    assert await refusal(registered(process, "OLIVIA")) == "conflict"


async def test_of_many_who_register_one_address_at_once_one_succeeds(process: Process) -> None:
    outcomes = await asyncio.gather(
        *(registered(process) for _ in range(5)), return_exceptions=True
    )
    refused = [outcome.code for outcome in outcomes if isinstance(outcome, Problem)]
    assert refused == ["conflict"] * 4
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM workspaces") == 1


async def test_a_closed_registration_is_forbidden(process: Process) -> None:
    closed = replace(process, settings=replace(process.settings, registration="closed"))
    assert await refusal(registered(closed)) == "forbidden"


async def test_sign_in_is_refused_alike_for_an_unknown_address_and_a_wrong_password(
    process: Process,
) -> None:
    await registered(process)
    refusals = []
    for name, password in (("olivia", "wrong password"), ("nobody", PASSWORD)):
        with pytest.raises(Problem) as caught:
            await signing_in.with_password(
                process,
                HERE,
                email=addresses.email(f"{name}@acme.example"),
                password=password,
                workspace_id=None,
            )
        refusals.append(caught.value)
    assert refusals[0].code == refusals[1].code == "unauthenticated"
    assert refusals[0].detail == refusals[1].detail
    assert refusals[0].headers == refusals[1].headers


async def test_sign_in_is_to_the_oldest_membership_or_to_the_one_asked_for(
    process: Process,
) -> None:
    user, first = await registered(process, "olivia")
    _, other = await registered(process, "mallory")
    first_id, other_id = first.workspace.id, other.workspace.id
    assert await refusal(signed_in(process, workspace_id=other_id)) == "not_found"
    await execute(
        process,
        """
        INSERT INTO memberships (workspace_id, id, user_id, role, created_at)
        VALUES (:workspace_id, 'mem_zzz', :user_id, 'viewer', :now)
        """,
        workspace_id=other_id,
        user_id=user.id,
    )
    assert (await signed_in(process)).workspace.id == first_id
    signed = await signed_in(process, workspace_id=other_id)
    member = await identity.authenticate(process, signed.access_token)
    assert (member.workspace_id, member.role) == (other_id, "viewer")


# --- refresh and sign-out -----------------------------------------------------------------------


async def test_a_refresh_gives_new_tokens_of_the_same_session(process: Process) -> None:
    _, signed = await registered(process)
    renewed = await signing_in.refresh(process, HERE, signed.refresh_token)
    before = await identity.authenticate(process, signed.access_token)
    assert await identity.authenticate(process, renewed.access_token) == before
    assert renewed.workspace == signed.workspace
    assert renewed.refresh_token != signed.refresh_token


@pytest.mark.parametrize("generation", [0, 1, 2])
async def test_a_refresh_token_of_any_age_used_twice_ends_the_session(
    process: Process, generation: int
) -> None:
    """Also one that the thief has refreshed past: its owner is the second to show it."""
    _, signed = await registered(process)
    tokens = [signed.refresh_token]
    for _ in range(3):
        newest = await signing_in.refresh(process, HERE, tokens[-1])
        tokens.append(newest.refresh_token)
    assert await refusal(signing_in.refresh(process, HERE, tokens[generation])) == "unauthenticated"
    assert await refusal(signing_in.refresh(process, HERE, tokens[-1])) == "unauthenticated"
    refused = identity.authenticate(process, newest.access_token)
    assert await refusal(refused) == "unauthenticated"


async def test_of_two_refreshes_at_once_one_succeeds_and_the_session_ends(process: Process) -> None:
    _, signed = await registered(process)
    outcomes = await asyncio.gather(
        *(signing_in.refresh(process, HERE, signed.refresh_token) for _ in range(2)),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Problem", "SignIn"]
    refused = identity.authenticate(process, signed.access_token)
    assert await refusal(refused) == "unauthenticated"


async def test_a_refresh_of_one_session_leaves_the_others_alone(process: Process) -> None:
    _, signed = await registered(process)
    other = await signed_in(process)
    await signing_in.refresh(process, HERE, signed.refresh_token)
    await refusal(signing_in.refresh(process, HERE, signed.refresh_token))
    assert await identity.authenticate(process, other.access_token)


async def test_a_session_ends_after_thirty_days(process: Process) -> None:
    _, signed = await registered(process)
    await execute(process, "UPDATE sessions SET expires_at = :now")
    assert (
        await refusal(signing_in.refresh(process, HERE, signed.refresh_token)) == "unauthenticated"
    )
    assert await refusal(identity.authenticate(process, signed.access_token)) == "unauthenticated"


async def test_of_too_many_sessions_of_a_user_the_one_used_longest_ago_ends(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each workspace counts its own, and what has ended does not count."""
    monkeypatch.setattr(signing_in, "MOST_SESSIONS", 3)
    user, first = await registered(process)
    async with process.database.write() as db:
        other = await accounts.new_workspace(process, db, HERE.user(user), "Other")
    there = await signed_in(process, workspace_id=other.id)
    here = [await signed_in(process, workspace_id=first.workspace.id) for _ in range(2)]
    assert await identity.authenticate(process, first.access_token)
    here.append(await signed_in(process, workspace_id=first.workspace.id))
    assert await refusal(identity.authenticate(process, first.access_token)) == "unauthenticated"
    refreshing = signing_in.refresh(process, HERE, first.refresh_token)
    assert await refusal(refreshing) == "unauthenticated"
    member = await identity.authenticate(process, here.pop().access_token)
    async with process.database.write() as db:
        await signing_in.end(db, member)
    here.append(await signed_in(process, workspace_id=first.workspace.id))
    for one in (there, *here):
        assert await identity.authenticate(process, one.access_token)
    renewed = await signing_in.refresh(process, HERE, here[0].refresh_token)
    await signed_in(process, workspace_id=first.workspace.id)
    assert await identity.authenticate(process, renewed.access_token)
    assert await refusal(identity.authenticate(process, here[1].access_token)) == "unauthenticated"


async def test_signing_out_ends_both_tokens(process: Process) -> None:
    _, signed = await registered(process)
    member = await identity.authenticate(process, signed.access_token)
    async with process.database.write() as db:
        await signing_in.end(db, member)
    assert await refusal(identity.authenticate(process, signed.access_token)) == "unauthenticated"
    assert (
        await refusal(signing_in.refresh(process, HERE, signed.refresh_token)) == "unauthenticated"
    )


async def test_the_database_holds_no_token_and_no_password(process: Process) -> None:
    user, signed = await registered(process)
    _, key = await key_of(process, user, signed)
    async with process.database.read() as db:
        tables = [
            await db.fetch_all(f"SELECT * FROM {table}")
            for table in ("users", "sessions", "api_keys", "memberships", "workspaces")
        ]
    dump = repr(tables).encode() + b"".join(
        value
        for rows in tables
        for row in rows
        for value in row.values()
        if isinstance(value, bytes)
    )
    for secret in (PASSWORD, signed.refresh_token, signed.access_token, key):
        assert secret.encode() not in dump


# --- what counts on the very next request -------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("UPDATE sessions SET ended_at = :now", "unauthenticated"),
        ("UPDATE sessions SET expires_at = :now", "unauthenticated"),
        ("DELETE FROM memberships", "unauthenticated"),
    ],
)
async def test_a_session_loses_its_force_at_once(process: Process, sql: str, code: str) -> None:
    _, signed = await registered(process)
    await execute(process, sql)
    assert await refusal(identity.authenticate(process, signed.access_token)) == code


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("UPDATE api_keys SET revoked_at = :now", "unauthenticated"),
        ("UPDATE api_keys SET expires_at = :now", "unauthenticated"),
        ("DELETE FROM memberships", "unauthenticated"),
    ],
)
async def test_a_key_loses_its_force_at_once(process: Process, sql: str, code: str) -> None:
    _, key = await key_of(process, *await registered(process))
    await execute(process, sql)
    assert await refusal(identity.authenticate(process, key)) == code


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE sessions SET ended_at = :now",
        "UPDATE api_keys SET revoked_at = :now",
        "DELETE FROM memberships",
    ],
)
async def test_nor_does_who_was_let_in_before_give_a_role_any_more(
    process: Process, sql: str
) -> None:
    user, signed = await registered(process)
    _, key = await key_of(process, user, signed)
    given = signed.access_token if "sessions" in sql else key
    member = await identity.authenticate(process, given)
    async with process.database.write() as db:
        assert await identity.lock_role(db, member) == member
    await execute(process, sql)
    async with process.database.write() as db:
        assert await refusal(identity.lock_role(db, member)) == "unauthenticated"


@pytest.mark.parametrize(
    ("makers", "keys", "effective"),
    [
        ("owner", "viewer", "viewer"),
        ("owner", "owner", "owner"),
        ("editor", "admin", "editor"),
        ("viewer", "owner", "viewer"),
    ],
)
async def test_a_key_acts_with_its_role_capped_by_its_maker_s(
    process: Process, makers: str, keys: str, effective: str
) -> None:
    user, signed = await registered(process)
    row, key = await key_of(process, user, signed, keys)
    await execute(process, "UPDATE memberships SET role = :role", role=makers)
    member = await identity.authenticate(process, key)
    assert (member.role, member.permissions) == (effective, roles.PERMISSIONS[effective])
    assert (member.via, member.via_id, member.name) == ("key", row.id, "CRM")
    assert (member.user_id, member.workspace_id) == (user.id, signed.workspace.id)
    session = await identity.authenticate(process, signed.access_token)
    assert session.role == makers


async def test_a_super_admin_is_one_as_a_person_and_never_as_a_key(process: Process) -> None:
    user, signed = await registered(process)
    _, key = await key_of(process, user, signed, "owner")
    assert await accounts.grant_super_admin(process, "Olivia@ACME.example", unverified=True)
    assert (await identity.authenticate(process, signed.access_token)).super_admin
    assert not (await identity.authenticate(process, key)).super_admin


async def test_nobody_is_made_super_admin_by_an_address_that_was_not_verified(
    process: Process,
) -> None:
    """A stranger may have registered with the operator's address first."""
    await registered(process)
    assert not await accounts.grant_super_admin(process, "olivia@acme.example")
    async with process.database.read() as db:
        assert not await db.fetch_value("SELECT super_admin FROM users")


async def test_nobody_is_made_super_admin_by_an_unknown_address(process: Process) -> None:
    await registered(process)
    assert not await accounts.grant_super_admin(process, "nobody@acme.example")
    async with process.database.read() as db:
        assert not await db.fetch_value("SELECT super_admin FROM users")


# --- access tokens ------------------------------------------------------------------------------

Claims = dict[str, Any]

CLAIMS: Claims = {
    "iss": "tidings",
    "aud": "sandbox",
    "sub": "usr_1",
    "sid": "ses_1",
    "ws": "ws_1",
    "iat": 1_800_000_000,
    "exp": 1_800_000_900,
}


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Process:
    """Its database is not connected: what it refuses, it refuses without a query."""
    environ = {"SECRET_KEY": "k" * 40, "DATABASE_URL": "sqlite:///nowhere/tidings.db"}
    settings = Settings.from_environ(environ, secret_key_file=tmp_path_factory.mktemp("none"))
    vault = Vault(settings.secret_keys)
    vault.open(vault.new_data_key())
    database = Database(settings.database_url)
    egress = Egress()
    own = Own(settings, api.client(), egress)
    return Process(settings, database, vault, Hints(connector(settings)), {}, own, egress)


def token_of(
    process: Process, claims: Claims, header: dict[str, Any] | None = None, key: Any = None
) -> str:
    key = key or process.vault.jwt_keys.keys[0]
    header = {"alg": "HS256", "kid": key.kid, "typ": "at+jwt", **(header or {})}
    return jwt.encode(header, claims, key, algorithms=[header["alg"]])


def segment(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def content(part: str) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=="))
    return decoded


async def test_an_access_token_says_who_where_and_until_when(process: Process) -> None:
    user, signed = await registered(process)
    header, claims, _ = signed.access_token.split(".")
    kid = process.vault.jwt_keys.keys[0].kid
    assert content(header) == {"alg": "HS256", "kid": kid, "typ": "at+jwt"}
    assert content(claims).keys() == CLAIMS.keys()
    assert content(claims)["sub"] == user.id
    assert content(claims)["ws"] == signed.workspace.id
    assert content(claims)["exp"] - content(claims)["iat"] == 15 * 60
    assert token_of(process, content(claims)) == signed.access_token


async def test_a_token_outlives_the_rotation_of_its_key_until_that_is_dropped(
    process: Process,
) -> None:
    _, signed = await registered(process)
    old = process.settings.secret_keys[0]
    rotated = replace(process, vault=Vault(["new" * 20, old]))
    assert await identity.authenticate(rotated, signed.access_token)
    dropped = replace(process, vault=Vault(["new" * 20]))
    assert await refusal(identity.authenticate(dropped, signed.access_token)) == "unauthenticated"


@pytest.mark.parametrize(
    "change",
    [
        {"exp": lambda now: now - 1},
        {"exp": lambda now: now},
        {"exp": 0},
        {"iat": lambda now: now + 60},
        {"sub": "usr_other"},
        {"sid": "ses_other"},
        {"ws": "ws_other"},
    ],
    ids=["past exp", "exp now", "first exp", "future iat", "other sub", "other sid", "other ws"],
)
async def test_a_token_that_is_true_of_no_session_now_is_refused(
    process: Process, change: Claims
) -> None:
    _, signed = await registered(process)
    claims = content(signed.access_token.split(".")[1])
    for name, value in change.items():
        claims[name] = value(claims["iat"]) if callable(value) else value
    refused = identity.authenticate(process, token_of(process, claims))
    assert await refusal(refused) == "unauthenticated"


async def test_an_ongoing_request_outlives_its_token_and_not_its_session(process: Process) -> None:
    _, signed = await registered(process)
    claims = content(signed.access_token.split(".")[1])
    expired = token_of(process, {**claims, "exp": claims["iat"] - 1})
    assert await refusal(identity.authenticate(process, expired)) == "unauthenticated"
    assert await identity.authenticate(process, expired, ongoing=True)
    await execute(process, "UPDATE sessions SET ended_at = :now")
    refused = identity.authenticate(process, expired, ongoing=True)
    assert await refusal(refused) == "unauthenticated"


@pytest.mark.parametrize(
    "change",
    [
        {"exp": None},
        {"exp": "soon"},
        {"exp": "9999999999"},
        {"exp": 9999999999.5},
        {"exp": float("inf")},
        {"exp": 10**30},
        {"exp": True},
        {"exp": -1},
        {"iat": None},
        {"iat": -1},
        {"iat": 10**30},
        {"nbf": 1_900_000_000},
        {"iss": "somebody else"},
        {"aud": "somebody else"},
        {"aud": "production"},
        {"aud": ["sandbox"]},
        {"sub": ["usr_1"]},
        {"sub": None},
        {"sid": None},
        {"ws": "ws_\0"},
        {"is_admin": True},
        {"super_admin": True},
    ],
    ids=str,
)
async def test_a_token_with_claims_that_we_never_make_is_refused(
    offline: Process, change: Claims
) -> None:
    claims = {name: value for name, value in {**CLAIMS, **change}.items() if value is not None}
    refused = identity.authenticate(offline, token_of(offline, claims))
    assert await refusal(refused) == "unauthenticated"


async def test_a_duplicate_claim_needs_our_signature_too(offline: Process) -> None:
    header, payload, signature = token_of(offline, CLAIMS).split(".")
    doubled = segment(json.dumps(content(payload))[:-1] + ', "sub": "usr_2"}')
    refused = identity.authenticate(offline, f"{header}.{doubled}.{signature}")
    assert await refusal(refused) == "unauthenticated"


@pytest.mark.parametrize(
    "header",
    [
        {"typ": "JWT"},
        {"typ": "at+JWT"},
        {"typ": ""},
        {"kid": "../../dev/null"},
        {"kid": "' OR 1=1 --"},
        {"kid": "k" * 10_000},
        {"alg": "HS384"},
        {"alg": "HS512"},
    ],
    ids=lambda header: str(header)[:30],
)
async def test_a_token_that_we_signed_under_another_header_is_refused(
    offline: Process, header: dict[str, Any]
) -> None:
    ours = offline.vault.jwt_keys.keys[0]
    key = OctKey.import_key({"kty": "oct", "k": ours.as_dict(private=True)["k"]})
    header = {"kid": ours.kid, **header}
    refused = identity.authenticate(offline, token_of(offline, CLAIMS, header, key))
    assert await refusal(refused) == "unauthenticated"


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "nOnE"},
        {"alg": "RS256"},
        {"alg": ["HS256"]},
        {"alg": None},
        {},
        ["alg"],
        "alg",
        {"alg": "HS256", "crit": 5},
        {"alg": "HS256", "crit": ["b64"], "b64": False},
        {"alg": "HS256", "jku": "http://127.0.0.1:1/keys"},
        {"alg": "HS256", "x5u": "http://127.0.0.1:1/keys"},
        {"alg": "HS256", "jwk": {"kty": "oct", "k": "a2V5"}},
        {"alg": "HS256", "kid": ["x"]},
        {"alg": "HS256", "kid": {}},
    ],
    ids=str,
)
@pytest.mark.parametrize("signed", [True, False])
async def test_a_forged_header_is_refused(offline: Process, header: object, signed: bool) -> None:
    if isinstance(header, dict):
        header = {"kid": offline.vault.jwt_keys.keys[0].kid, "typ": "at+jwt", **header}
    _, payload, signature = token_of(offline, CLAIMS).split(".")
    token = f"{segment(header)}.{payload}.{signature if signed else ''}"
    assert await refusal(identity.authenticate(offline, token)) == "unauthenticated"


MUTATIONS: dict[str, Callable[[str], str]] = {
    "no signature": lambda token: token.rpartition(".")[0],
    "an empty signature": lambda token: token.rpartition(".")[0] + ".",
    "a truncated signature": lambda token: token[:-1],
    "padding": lambda token: token + "=",
    "white space after it": lambda token: token + "\n",
    "white space before it": lambda token: " " + token,
    "a fourth part": lambda token: token + ".x",
    "five parts": lambda token: token + ".x.y",
    "its payload twice": lambda token: token.replace(".", "..", 1),
    "letters of another case": str.swapcase,
    "a letter that is none": lambda token: token[:-1] + "é",
    "half a surrogate pair": lambda token: token + "\ud800",
    "a NUL": lambda token: token + "\0",
    "a megabyte more": lambda token: token + "A" * 1_000_000,
    "a megabyte of header": lambda token: "A" * 1_000_000 + token,
    "nothing": lambda token: token[:0],
    "only dots": lambda token: "." * token.count("."),
    "JSON": lambda token: json.dumps({"payload": token}),
    "a deep header": lambda token: segment("[" * 300) + "." + token.partition(".")[2],
    "a key's prefix": lambda token: "td_test_" + token,
}


@pytest.mark.timeout(10)  # no request may hang longer; what is quadratic takes more
@pytest.mark.parametrize("mutation", MUTATIONS)
async def test_a_damaged_token_is_refused_at_once(offline: Process, mutation: str) -> None:
    damaged = MUTATIONS[mutation](token_of(offline, CLAIMS))
    assert await refusal(identity.authenticate(offline, damaged)) == "unauthenticated"


@pytest.mark.parametrize("mutation", ["a megabyte more", "a megabyte of header", "a deep header"])
async def test_no_token_takes_long_to_refuse(offline: Process, mutation: str) -> None:
    """The fastest of some: what else the machine does is not the token's fault."""
    damaged, took = MUTATIONS[mutation](token_of(offline, CLAIMS)), []
    for _ in range(10):
        began = time.perf_counter()
        assert await refusal(identity.authenticate(offline, damaged)) == "unauthenticated"
        took.append(time.perf_counter() - began)
    assert min(took) < 0.01


async def test_a_token_with_any_bit_of_its_signature_flipped_is_refused(offline: Process) -> None:
    signed, _, signature = token_of(offline, CLAIMS).rpartition(".")
    raw = int.from_bytes(base64.urlsafe_b64decode(signature + "="), "big")
    for bit in range(256):
        flipped = (raw ^ 1 << bit).to_bytes(32, "big")
        damaged = base64.urlsafe_b64encode(flipped).rstrip(b"=").decode()
        refused = identity.authenticate(offline, f"{signed}.{damaged}")
        assert await refusal(refused) == "unauthenticated"


async def test_a_signature_has_one_spelling(offline: Process) -> None:
    """The last of its characters has two bits that mean nothing; they must be zero."""
    token = token_of(offline, CLAIMS)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for character in alphabet.replace(token[-1], ""):
        refused = identity.authenticate(offline, token[:-1] + character)
        assert await refusal(refused) == "unauthenticated"


async def test_no_token_does_the_work_of_another(process: Process) -> None:
    user, signed = await registered(process)
    _, key = await key_of(process, user, signed)
    for bearer in (signed.refresh_token, process.vault.sign("cursor", b"x"), "A" * 30):
        assert await refusal(identity.authenticate(process, bearer)) == "unauthenticated"
    for refresh_token in (signed.access_token, key, process.vault.sign("cursor", b"ses_1 x")):
        assert await refusal(signing_in.refresh(process, HERE, refresh_token)) == "unauthenticated"
    assert await identity.authenticate(process, signed.access_token)


# --- API keys -----------------------------------------------------------------------------------


def test_a_key_has_the_published_form_and_an_honest_checksum() -> None:
    alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    keys = [keyring.new_key("production") for _ in range(1000)]
    for key in keys:
        match = re.fullmatch(r"td_live_([0-9A-Za-z]{30})([0-9A-Za-z]{6})", key)
        assert match
        number = 0
        for character in match[2]:
            number = number * 62 + alphabet.index(character)
        assert number == zlib.crc32(match[1].encode())
    assert len(set(keys)) == 1000


def test_a_key_says_which_environment_it_is_for() -> None:
    assert keyring.new_key("sandbox").startswith("td_test_")


@pytest.mark.parametrize(
    "damage",
    [
        lambda key: key[:-1],
        lambda key: key + "0",
        lambda key: key[:-1] + ("0" if key[-1] != "0" else "1"),
        lambda key: key[:10] + ("0" if key[10] != "0" else "1") + key[11:],
        lambda key: key.replace("td_test_", "td_live_"),
        lambda key: key.replace("td_test_", "TD_TEST_"),
        lambda key: key + "\n",
        lambda key: " " + key,
        lambda key: key[:-1] + "é",
        lambda key: key[:-6] + "٣" * 6,
        lambda key: key * 10_000,
        lambda key: key[:3],
    ],
)
async def test_a_damaged_key_is_refused_without_a_query(
    offline: Process, damage: Callable[[str], str]
) -> None:
    damaged = damage(keyring.new_key("sandbox"))
    assert await refusal(identity.authenticate(offline, damaged)) == "unauthenticated"


async def test_an_unknown_key_of_the_right_form_is_refused(process: Process) -> None:
    await key_of(process, *await registered(process))
    unknown = keyring.new_key("sandbox")
    assert await refusal(identity.authenticate(process, unknown)) == "unauthenticated"


async def test_a_key_works_until_the_moment_it_expires(process: Process) -> None:
    user, signed = await registered(process)
    async with process.database.read() as db:
        now = await db.now()
    _, lasting = await key_of(process, user, signed, expires_at=now + timedelta(hours=1))
    _, over = await key_of(process, user, signed, expires_at=now - timedelta(seconds=1))
    assert await identity.authenticate(process, lasting)
    assert await refusal(identity.authenticate(process, over)) == "unauthenticated"


async def test_the_last_use_of_a_key_is_noted_once_a_minute(process: Process) -> None:
    user, signed = await registered(process)
    _, key = await key_of(process, user, signed)

    async def last_used() -> Any:
        async with process.database.read() as db:
            return await db.fetch_value("SELECT last_used_at FROM api_keys")

    assert await last_used() is None
    await identity.authenticate(process, key)
    first = await last_used()
    assert first is not None
    await identity.authenticate(process, key)
    assert await last_used() == first
    await execute(
        process, "UPDATE api_keys SET last_used_at = :then", then=first - timedelta(seconds=61)
    )
    await identity.authenticate(process, key)
    assert await last_used() >= first


@pytest.mark.parametrize("minutes", [-2, 2])
async def test_a_use_is_noted_once_a_minute_whatever_the_clock_of_the_process_says(
    process: Process, minutes: int
) -> None:
    """Behind the database's, "last used" never moved; ahead of it, each request wrote the row."""
    _, key = await key_of(process, *await registered(process))
    url = process.settings.database_url
    database = Database(url, clock_offset_ms=minutes * 60_000)
    await database.connect()
    try:
        there = replace(process, database=database)

        async def used(ago: timedelta | None = None) -> Any:
            async with database.write() as db:
                if ago is not None:
                    sql = "UPDATE api_keys SET last_used_at = :then"
                    await db.execute(sql, then=await db.now() - ago)
            await identity.authenticate(there, key)
            async with database.read() as db:
                return await db.fetch_value("SELECT last_used_at FROM api_keys")

        first = await used()
        assert await used() == first
        lately = await used(timedelta(seconds=50))
        assert lately < first
        assert await used(timedelta(seconds=61)) >= first
    finally:
        await database.disconnect()


async def test_of_many_uses_at_once_one_is_noted(process: Process) -> None:
    user, signed = await registered(process)
    row, _ = await key_of(process, user, signed)
    named = {"workspace_id": signed.workspace.id, "id": row.id}
    noted = []
    for _ in range(2):  # both have read the row before
        async with process.database.write() as db:
            minute_ago = await db.now() - timedelta(minutes=1)
            await api_keys.touch(db, **named, unused_since=minute_ago)
            noted.append(await db.fetch_value("SELECT last_used_at FROM api_keys"))
    assert noted[0] == noted[1] is not None


async def test_a_database_that_cannot_note_the_use_does_not_fail_the_call(process: Process) -> None:
    user, signed = await registered(process)
    row, key = await key_of(process, user, signed)

    async with process.database.write() as db:  # holds SQLite's one writer, PostgreSQL's one row
        named = {"workspace_id": signed.workspace.id, "id": row.id}
        await api_keys.touch(db, **named, unused_since=await db.now())
        member = await asyncio.wait_for(identity.authenticate(process, key), 2)
        assert member.via_id == row.id
