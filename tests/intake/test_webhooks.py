"""An event comes in: every check in its order, and one run for each accepted request."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.audience import writing
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle
from app.errors import Problem, Unavailable
from app.intake import lookup, webhooks
from app.intake.acceptance import Accepted
from app.machine import document
from app.process import Process
from app.runtime import compute
from app.runtime.batching import Batches
from app.store import contacts, definition_starts, runs
from tests.cast import WEBHOOK, hook, workspace
from tests.tables import each_row

BODY = b'{"email": "ada@example.com", "word": "tea"}'
SECRET = "a shared secret of good length"


def signed(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


async def receive(process: Process, token: str, body: Any, *signatures: str) -> Accepted:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return await webhooks.receive(process, token=token, signatures=signatures, body=raw)


async def refusal(process: Process, token: str, body: Any, *signatures: str) -> Problem:
    with pytest.raises(Problem) as refused:
        await receive(process, token, body, *signatures)
    return refused.value


async def count(process: Process, table: str) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value(f"SELECT count(*) FROM {table}"))


# --- a sharded database ---------------------------------------------------------------------------


async def test_a_workspace_whose_node_is_silent_holds_up_no_other_s_event(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = replace(process, batches=Batches(apart=True))
    rival = await workspace(process, "Rival")
    silent, others = await hook(process, acme), await hook(process, rival)
    by_tokens, asked = definition_starts.by_tokens, asyncio.Event()

    async def of_a_silent_node(db: Handle, *, tokens: Sequence[str], **known: Any) -> Any:
        if silent in tokens:
            asked.set()
            await asyncio.sleep(0.5)
            raise Unavailable("The node did not answer.", unanswered=True)
        return await by_tokens(db, tokens=tokens, **known)

    monkeypatch.setattr(definition_starts, "by_tokens", of_a_silent_node)
    waiting = asyncio.create_task(receive(process, silent, BODY))
    await asked.wait()
    assert await receive(process, others, BODY)
    assert not waiting.done()
    with pytest.raises(Unavailable):
        await waiting


# --- token and signature ------------------------------------------------------------------------


async def test_an_accepted_event_is_one_run_with_the_bytes_as_they_came(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme)
    body = b'{"email":"ada@example.com", "price": 1.10,\n "n": 123456789012345678901}'
    accepted = await receive(process, token, body)
    async with process.database.read() as db:
        run = await runs.by_id(db, workspace_id=acme, id=accepted.run_id)
    assert run is not None
    assert (run.status, run.contact_id) == ("QUEUED", accepted.contact_id)
    assert run.body == body
    assert await count(process, "runs") == 1


async def test_an_unknown_token_is_not_found(process: Process, acme: str) -> None:
    assert (await refusal(process, "A" * 30, BODY)).code == "not_found"


@pytest.mark.parametrize("state", ["PAUSED", "ARCHIVED"])
async def test_a_definition_that_is_not_active_takes_nothing(
    process: Process, acme: str, state: str
) -> None:
    token = await hook(process, acme)
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET state = :state", state=state)
    assert (await refusal(process, token, BODY)).code == "not_found"
    assert await count(process, "runs") == 0


async def test_a_suspended_workspace_takes_nothing(process: Process, acme: str) -> None:
    token = await hook(process, acme)
    async with process.database.write() as db:
        await db.execute("UPDATE workspaces SET suspended = TRUE WHERE id = :id", id=acme)
    assert (await refusal(process, token, BODY)).code == "not_found"


@pytest.mark.parametrize("case", [str.lower, str.upper])
async def test_a_signature_may_be_hex_in_either_case(
    process: Process, acme: str, case: Any
) -> None:
    token = await hook(process, acme, secret=SECRET)
    scheme, _, digits = signed(BODY).partition("=")
    assert await receive(process, token, BODY, f"{scheme}={case(digits)}")


GOOD = signed(BODY)


@each_row(
    "signatures",
    [
        [],
        [""],
        [GOOD.removeprefix("sha256=")],
        [GOOD.replace("sha256", "SHA256")],
        [GOOD.replace("sha256", "sha1")],
        [GOOD.replace("sha256", "v1")],
        [GOOD[:-1]],
        [GOOD + "0"],
        [GOOD + "\n"],
        ["sha256= " + GOOD[8:]],
        ["sha256=0x" + GOOD[9:]],
        ["sha256=" + "é" * 64],
        ["sha256=" + "٣" * 64],
        ["sha256=" + "0" * 64],
        ["x" * 100_000],
        [GOOD, GOOD],
        [signed(BODY, "wrong"), GOOD],
        [f"{GOOD},{GOOD}"],
        [signed(BODY + b"\n")],
        [signed(BODY, "another secret of good length")],
    ],
)
async def test_a_signature_that_is_not_exactly_right_is_refused(
    process: Process, acme: str, signatures: list[str]
) -> None:
    token = await hook(process, acme, secret=SECRET)
    assert (await refusal(process, token, BODY, *signatures)).code == "invalid_signature"
    assert await count(process, "runs") == 0


async def test_without_a_secret_a_signature_is_not_looked_at(process: Process, acme: str) -> None:
    token = await hook(process, acme)
    assert await receive(process, token, BODY, "sha256=nonsense")


async def test_the_signature_is_judged_before_the_json(process: Process, acme: str) -> None:
    token = await hook(process, acme, secret=SECRET)
    assert (await refusal(process, token, b"{")).code == "invalid_signature"
    assert (await refusal(process, token, b"{", signed(b"{"))).code == "malformed_json"


@pytest.mark.parametrize("secret", ["x", "ünïcödé sécret", " spaces around ", "k" * 1_024])
async def test_the_key_is_the_secret_s_exact_utf_8(
    process: Process, acme: str, secret: str
) -> None:
    token = await hook(process, acme, secret=secret)
    assert await receive(process, token, BODY, signed(BODY, secret))
    refused = await refusal(process, token, BODY, signed(BODY, secret + " "))
    assert refused.code == "invalid_signature"


async def test_the_secret_is_not_readable_in_the_database(process: Process, acme: str) -> None:
    await hook(process, acme, secret=SECRET)
    async with process.database.read() as db:
        row = await db.fetch_one("SELECT * FROM definitions")
    assert SECRET.encode() not in repr(row).encode()


# --- body and lookup ----------------------------------------------------------------------------


@each_row(
    ("body", "code"),
    [
        (b"", "malformed_json"),
        (b"{", "malformed_json"),
        (b'{"a": NaN}', "malformed_json"),
        (b'\xef\xbb\xbf{"a": 1}', "lookup_unresolved"),  # a byte order mark is skipped
        ('{"a": 1}'.encode("utf-16"), "malformed_json"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "malformed_json"),
        (b"[]", "invalid"),
        (b'"x"', "invalid"),
        (b"1", "invalid"),
        (b"null", "invalid"),
        (b"{}", "lookup_unresolved"),
        (b'{"email": null}', "lookup_unresolved"),
        (b'{"email": ""}', "lookup_unresolved"),
        (b'{"email": "  "}', "lookup_unresolved"),
        (b'{"email": true}', "lookup_unresolved"),
        (b'{"email": 1}', "lookup_unresolved"),
        (b'{"email": ["ada@example.com"]}', "lookup_unresolved"),
        (b'{"email": {"a": "ada@example.com"}}', "lookup_unresolved"),
        (b'{"email": "ada"}', "lookup_unresolved"),
        (b'{"email": "a@b@example.com"}', "lookup_unresolved"),
        (b'{"email": "ada@example.com\\r\\nBcc: x@y.org"}', "lookup_unresolved"),
        (b'{"email": "ada@example.com\\u0000"}', "lookup_unresolved"),
        (b'{"email": "\\ud800@example.com"}', "lookup_unresolved"),
        (b'{"email": "' + b"a" * 400 + b'@example.com"}', "lookup_unresolved"),
    ],
)
async def test_a_body_that_names_nobody_starts_nothing(
    process: Process, acme: str, body: bytes, code: str
) -> None:
    token = await hook(process, acme)
    assert (await refusal(process, token, body)).code == code
    assert await count(process, "runs") == await count(process, "contacts") == 0


async def test_an_unresolved_lookup_names_the_nearest_paths(process: Process, acme: str) -> None:
    token = await hook(process, acme, trigger={**WEBHOOK, "contactPath": "data.customer_email"})
    refused = await refusal(process, token, {"data": {"object": {"customer_email": "a@b.org"}}})
    assert refused.code == "lookup_unresolved"
    assert "data.object.customer_email" in refused.detail


async def test_an_unknown_contact_is_not_found_when_creation_is_off(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme, trigger={**WEBHOOK, "createContact": False})
    assert (await refusal(process, token, BODY)).code == "contact_not_found"
    assert await count(process, "contacts") == 0


async def test_the_same_address_in_another_spelling_is_the_same_contact(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme)
    first = await receive(process, token, {"email": "Ada@Example.com"})
    again = await receive(process, token, {"email": "ada@example.COM"})
    assert first.contact_id == again.contact_id
    assert first.run_id != again.run_id


async def test_a_number_in_two_spellings_is_one_contact(process: Process, acme: str) -> None:
    token = await hook(process, acme, trigger={**WEBHOOK, "contactLookup": "phone"})
    first = await receive(process, token, {"phone": "+1 (415) 555-0132"})
    again = await receive(process, token, {"phone": "+14155550132"})
    assert first.contact_id == again.contact_id


async def test_a_national_number_is_read_with_the_workspace_s_country(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme, trigger={**WEBHOOK, "contactLookup": "phone"})
    assert (await refusal(process, token, {"phone": "(415) 555-0132"})).code == "lookup_unresolved"
    async with process.database.write() as db:
        await db.execute("UPDATE workspaces SET country = 'US' WHERE id = :id", id=acme)
    assert await receive(process, token, {"phone": "(415) 555-0132"})


async def test_a_contact_s_own_id_finds_it(process: Process, acme: str) -> None:
    async with process.database.write() as db:
        ada = await writing.create(
            db, WorkspaceContext(acme, None, process.vault), {"email": "ada@example.com"}
        )
    token = await hook(process, acme, trigger={**WEBHOOK, "contactLookup": "contact_id"})
    accepted = await receive(process, token, {"contact_id": ada.id})
    assert accepted.contact_id == ada.id
    # createContact has no effect here: an id alone makes nobody.
    assert (await refusal(process, token, {"contact_id": "con_x"})).code == "contact_not_found"


async def test_another_workspace_s_contact_does_not_exist(process: Process, acme: str) -> None:
    rival = await workspace(process, "Rival")
    async with process.database.write() as db:
        theirs = await writing.create(
            db, WorkspaceContext(rival, None, process.vault), {"email": "ada@example.com"}
        )
    token = await hook(process, acme, trigger={**WEBHOOK, "contactLookup": "contact_id"})
    refused = await refusal(process, token, {"contact_id": theirs.id})
    unknown = await refusal(process, token, {"contact_id": "con_00000000000000000000000000"})
    assert (refused.code, refused.detail) == (unknown.code, unknown.detail)


@pytest.mark.parametrize("value", [981230455, "981230455"])
@pytest.mark.parametrize("stored", [981230455, "981230455"])
async def test_a_metadata_field_matches_as_text(
    process: Process, acme: str, stored: Any, value: Any
) -> None:
    async with process.database.write() as db:
        first = await writing.create(
            db, WorkspaceContext(acme, None, process.vault), {"metadata": {"crmId": stored, "n": 1}}
        )
        await writing.create(
            db, WorkspaceContext(acme, None, process.vault), {"metadata": {"crmId": stored, "n": 2}}
        )
    trigger = {
        "source": "inbound_webhook",
        "contactLookup": "contact_id",
        "contactPath": "objectId",
        "metadataField": "crmId",
    }
    token = await hook(process, acme, trigger=trigger)
    accepted = await receive(process, token, {"objectId": value})
    assert accepted.contact_id == first.id  # the oldest of several wins


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (
            {"contactLookup": "email", "createContact": False},
            "the email at email; create it first, or switch on createContact.",
        ),
        ({"contactLookup": "contact_id"}, "the contact id at contact_id; create it first."),
        (
            {"contactLookup": "contact_id", "metadataField": "crmId", "contactPath": "email"},
            "the metadata field crmId at email; create it first.",
        ),
    ],
)
async def test_what_finds_nobody_is_told_with_what_would_help(
    process: Process, acme: str, trigger: Any, expected: str
) -> None:
    token = await hook(process, acme, trigger={**WEBHOOK, **trigger})
    body = {"email": "ada@example.com", "contact_id": "con_x"}
    assert (await refusal(process, token, body)).detail == f"No contact matches {expected}"


@pytest.mark.parametrize("value", [True, 1.5, [], {}, "a\u0000b"])
async def test_what_cannot_be_an_id_is_unresolved(process: Process, acme: str, value: Any) -> None:
    token = await hook(process, acme, trigger={**WEBHOOK, "contactLookup": "contact_id"})
    assert (await refusal(process, token, {"contact_id": value})).code == "lookup_unresolved"


# --- create on miss -----------------------------------------------------------------------------


async def test_a_new_contact_gets_the_defaults_rendered_from_the_event(
    process: Process, acme: str
) -> None:
    defaults = {
        "firstName": "{{trigger.name}}",
        "lastName": "{{trigger.name | divided_by: 0}}",  # fails, so it is left out
        "metadata": {"plan": "{{trigger.plan}}", "source": "shop"},
        "tags": ["lead", "{{trigger.plan}}"],
    }
    token = await hook(process, acme, trigger={**WEBHOOK, "contactDefaults": defaults})
    accepted = await receive(
        process, token, {"email": "ada@example.com", "name": "Ada", "plan": "pro"}
    )
    async with process.database.read() as db:
        row = await contacts.by_id(db, workspace_id=acme, id=accepted.contact_id)
        tags = await contacts.tags_of(db, workspace_id=acme, contact_ids=[accepted.contact_id])
    assert row is not None
    assert (row.first_name, row.last_name) == ("Ada", None)
    assert row.metadata == {"plan": "pro", "source": "shop"}
    assert tags[accepted.contact_id] == ["lead", "pro"]


async def test_a_default_that_no_contact_may_hold_is_left_out(process: Process, acme: str) -> None:
    defaults = {"firstName": "{{trigger.name}}", "timezone": "Mars/Olympus"}
    token = await hook(process, acme, trigger={**WEBHOOK, "contactDefaults": defaults})
    accepted = await receive(process, token, {"email": "ada@example.com", "name": "x" * 5_000})
    async with process.database.read() as db:
        row = await contacts.by_id(db, workspace_id=acme, id=accepted.contact_id)
    assert row is not None
    assert (row.first_name, row.timezone) == (None, None)


async def test_fifty_events_at_once_for_one_new_address_make_one_contact(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme)
    spellings = ("ada@example.com", "Ada@Example.com")
    accepted = await asyncio.gather(
        *(receive(process, token, {"email": spellings[i % 2]}) for i in range(50))
    )
    assert len({one.run_id for one in accepted}) == 50
    assert len({one.contact_id for one in accepted}) == 1
    assert await count(process, "contacts") == 1
    assert await count(process, "runs") == 50


# --- what takes long ----------------------------------------------------------------------------

FLOATS = b",".join([b"1.1"] * 60_000)
SLOW = {
    "no double": b'{"email":"ada@example.com","a":[%b],"z":1e400}' % FLOATS[:99_999],
    "number": b'{"email":"ada@example.com","n":1.10,"a":[%b]}' % FLOATS[:99_999],
    "wide": b'{"email":"ada@example.com","n":"1","a":[%b]}' % FLOATS,
}


@pytest.fixture
def nothing_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse slow work on the event loop; the compute process has modules of its own."""

    parse = document.parse

    def short(body: bytes) -> object:
        assert len(body) <= lookup.SHORT, "a long body is parsed on the event loop"
        return parse(body)

    monkeypatch.setattr(document, "parse", short)


@pytest.mark.usefixtures("nothing_slow")
@pytest.mark.parametrize("name", SLOW)
async def test_a_body_that_takes_long_is_judged_beside_the_loop(
    process: Process, acme: str, name: str
) -> None:
    token = await hook(process, acme, trigger={**WEBHOOK, "dedupePath": "n"})
    first = await receive(process, token, SLOW[name])
    again = await receive(process, token, SLOW[name])
    assert (again.run_id == first.run_id) is (name != "no double")


@pytest.mark.usefixtures("nothing_slow")
@pytest.mark.parametrize("end", [b",", b"\xff", b"", b"]}}"])
async def test_so_is_one_that_is_wrong_at_its_end(process: Process, acme: str, end: bytes) -> None:
    token = await hook(process, acme)
    body = b'{"email":"ada@example.com","a":[%b' % FLOATS[:99_999] + end
    assert (await refusal(process, token, body)).code == "malformed_json"


@pytest.mark.usefixtures("nothing_slow")
async def test_a_refusal_from_beside_the_loop_is_the_same(process: Process, acme: str) -> None:
    token = await hook(process, acme)
    problem = await refusal(process, token, SLOW["wide"].replace(b'"email"', b'"emial"'))
    assert problem.code == "lookup_unresolved"
    assert problem.detail.endswith("Did you mean emial?")


async def test_a_body_that_takes_long_is_computed_once_for_each_answer(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await hook(process, acme)
    await receive(process, token, {"email": "ada@example.com"})  # remembered from now on
    asked: list[Any] = []

    async def counted(job: Any, **_options: Any) -> Any:
        asked.append(job)
        return job.work(*job.given)

    monkeypatch.setattr(process.compute, "apart", counted)
    await receive(process, token, SLOW["wide"])
    assert len(asked) == 1
    await refusal(process, token, SLOW["wide"].replace(b'"email"', b'"emial"'))
    assert len(asked) == 2


async def test_a_body_that_cannot_be_computed_now_is_to_be_sent_again_and_over_no_limit(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 429 is the senders' limit, of which this is not: their share of the computing is."""
    token = await hook(process, acme)

    async def full(*_given: Any, **_options: Any) -> Any:
        raise compute._share_used_up()

    monkeypatch.setattr(process.compute, "apart", full)
    problem = await refusal(process, token, SLOW["wide"])
    assert isinstance(problem, Unavailable)
    assert (problem.code, problem.status) == ("unavailable", 503)
