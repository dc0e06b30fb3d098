"""A workspace's own providers: taken, tried, used for its messages, and never shown again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from app.intake import webhooks
from app.messages import circuit_breaker
from app.net.egress import Egress
from app.process import Process
from app.providers import api
from app.providers.own import Own
from app.store import data_keys
from app.vault import tokens
from app.vault.vault import Vault
from tests import cast as company
from tests import resend_server, twilio_server
from tests.cast import SEND_HELLO, Cast, Person, hook, settle
from tests.messages.test_delivery_providers import (
    BY_PHONE,
    EVENT,
    attempts,
    by_twilio,
    producing,
    text,
)
from tests.present import present
from tests.receivers import Receiver
from tests.resend_server import API_KEY, WEBHOOK_SECRET, ResendServer
from tests.routes.test_new_messages import in_production
from tests.tables import each_row
from tests.twilio_server import NUMBER, SERVICE, SID, TOKEN, TwilioServer

SMTP = {
    "provider": "smtp",
    "url": "smtp://ada:canary-1@mail.acme.test:587?starttls=required",
    "from": "Acme <hello@acme.test>",
}
RESEND = {
    "provider": "resend",
    "apiKey": "re_canary-2",
    "from": "hello@acme.test",
    "webhookSecret": WEBHOOK_SECRET,
}
TWILIO = {"provider": "twilio", "accountSid": SID, "authToken": "canary-3", "from": NUMBER}
CANARIES = ("canary-1", "canary-2", "canary-3", WEBHOOK_SECRET)


async def put(person: Person, channel: str, given: Any, **options: Any) -> httpx2.Response:
    return await person.call("PUT", f"/settings/channels/{channel}", json=given, **options)


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    async with twilio_server.serving() as serving:
        yield serving


@pytest.fixture
async def resend() -> AsyncIterator[ResendServer]:
    async with resend_server.serving() as serving:
        yield serving


# --- taken, and not shown -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "given", "shown"),
    [
        ("email", SMTP, {"url": "smtp://ada@mail.acme.test:587?starttls=required"}),
        ("email", RESEND, {"webhookSecretSet": True}),
        ("sms", TWILIO, {"accountSid": SID, "from": NUMBER}),
        (
            "whatsapp",
            {**TWILIO, "from": None, "messagingServiceSid": SERVICE},
            {"messagingServiceSid": SERVICE, "from": None},
        ),
    ],
)
async def test_credentials_are_taken_and_never_shown(
    cast: Cast, process: Process, channel: str, given: dict[str, Any], shown: dict[str, Any]
) -> None:
    response = await put(cast.adam, channel, given)
    assert response.status_code == 200, response.text
    read = await cast.vic.get(f"/settings/channels/{channel}")
    assert read.json() == response.json()
    assert read.headers["etag"] == '"1"'
    body = read.json()
    assert {name: body[name] for name in shown} == shown
    assert (body["channel"], body["provider"]) == (channel, given["provider"])
    answer = response.text + read.text + (await cast.olivia.get("/audit-logs")).text
    async with process.database.read() as db:
        for table in ("channel_settings", "audit_logs", "idempotency_keys"):
            answer += repr(await db.fetch_all(f"SELECT * FROM {table}"))
    assert not any(canary in answer for canary in CANARIES)


async def test_a_provider_that_tells_has_an_address_to_tell_at_and_keeps_it(cast: Cast) -> None:
    first = (await put(cast.adam, "sms", TWILIO)).json()
    url = httpx2.URL(first["callbackUrl"])
    assert url.path.startswith("/v1/callbacks/twilio/")
    assert tokens.workspace_of(url.path.rpartition("/")[2]) == cast.adam.workspace_id
    again = (await put(cast.adam, "sms", {**TWILIO, "authToken": "another"})).json()
    assert again["callbackUrl"] == first["callbackUrl"]
    await cast.adam.delete("/settings/channels/sms")
    anew = (await put(cast.adam, "sms", TWILIO)).json()
    assert anew["callbackUrl"] != first["callbackUrl"]
    assert (await put(cast.adam, "email", SMTP)).json()["callbackUrl"] is None


@each_row(
    ("channel", "given", "pointers"),
    [
        ("email", {**SMTP, "url": "http://mail.acme.test"}, ["/url"]),
        ("email", {**SMTP, "from": "a@b.test, c@d.test"}, ["/from"]),
        ("email", {**SMTP, "from": "A\r\nBcc: eve@evil.test <a@b.test>"}, ["/from"]),
        ("email", {"provider": "smtp"}, ["/from", "/url"]),
        ("email", {**SMTP, "apiKey": "x"}, ["/apiKey"]),
        ("email", {**RESEND, "webhookSecret": "secret"}, ["/webhookSecret"]),
        ("email", {**RESEND, "apiKey": "re_\n"}, ["/apiKey"]),
        ("email", TWILIO, ["/provider"]),
        ("sms", SMTP, ["/provider"]),
        ("sms", {**TWILIO, "accountSid": "../../x"}, ["/accountSid"]),
        ("sms", {**TWILIO, "messagingServiceSid": SERVICE}, ["/from"]),
        ("whatsapp", {**TWILIO, "from": "Acme"}, ["/from"]),
        ("sms", {**TWILIO, "unknown": 1}, ["/unknown"]),
        ("sms", {"provider": "pigeon"}, ["/provider"]),
        ("sms", {}, ["/provider"]),
        ("email", {"provider": "smtp", "url": 5, "x": "1"}, ["/from", "/url", "/x"]),
        (
            "email",
            {**RESEND, "apiKey": "", "from": "nobody", "url": "x"},
            ["/apiKey", "/from", "/url"],
        ),
        (
            "sms",
            {**TWILIO, "authToken": None, "accountSid": "x", "from": ["y"]},
            ["/accountSid", "/authToken", "/from"],
        ),
        ("email", {"provider": 1, "url": "http://x"}, ["/provider"]),
    ],
)
async def test_what_no_provider_takes_is_refused_with_every_place(
    cast: Cast, channel: str, given: dict[str, Any], pointers: list[str]
) -> None:
    response = await put(cast.adam, channel, given)
    assert response.status_code == 422, response.text
    assert sorted(error["pointer"] for error in response.json()["errors"]) == pointers
    assert (await cast.vic.get(f"/settings/channels/{channel}")).status_code == 404


async def test_what_is_not_there_is_not_found(cast: Cast) -> None:
    for method, path in (
        ("GET", "email"),
        ("DELETE", "email"),
        ("POST", "email/verify"),
        ("GET", "pigeon"),
        ("POST", "pigeon/verify"),
    ):
        response = await cast.adam.call(method, f"/settings/channels/{path}")
        assert response.status_code == 404, path
    assert (await put(cast.adam, "pigeon", SMTP)).status_code == 404


async def test_a_stale_revision_is_refused(cast: Cast) -> None:
    assert (await put(cast.adam, "sms", TWILIO, headers={"If-Match": '"1"'})).status_code == 412
    await put(cast.adam, "sms", TWILIO)
    assert (await put(cast.adam, "sms", TWILIO, headers={"If-Match": '"1"'})).status_code == 200
    assert (await put(cast.adam, "sms", TWILIO, headers={"If-Match": '"1"'})).status_code == 412
    stale = await cast.adam.delete("/settings/channels/sms", headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    gone = await cast.adam.delete("/settings/channels/sms", headers={"If-Match": '"2"'})
    assert gone.status_code == 204


async def test_whoever_wants_to_make_it_does_not_change_it_nor_the_other_way_round(
    cast: Cast,
) -> None:
    """RFC 9110 §13.1.1 and §13.1.2."""
    change, make = {"If-Match": "*"}, {"If-None-Match": "*"}
    assert (await put(cast.adam, "sms", TWILIO, headers=change)).status_code == 412
    assert (await cast.vic.get("/settings/channels/sms")).status_code == 404
    assert (await put(cast.adam, "sms", TWILIO, headers=make)).status_code == 200
    barred = await put(cast.adam, "sms", TWILIO, headers=make)
    assert (barred.status_code, barred.json()["code"]) == (412, "stale")
    assert (await cast.vic.get("/settings/channels/sms")).headers["etag"] == '"1"'
    assert (await put(cast.adam, "sms", TWILIO, headers=change)).headers["etag"] == '"2"'


async def test_another_workspace_sees_none_of_it(cast: Cast) -> None:
    await put(cast.adam, "sms", TWILIO)
    assert (await cast.mallory.get("/settings/channels/sms")).status_code == 404
    assert (await cast.mallory.delete("/settings/channels/sms")).status_code == 404
    assert (await cast.vic.get("/settings/channels/sms")).status_code == 200


async def test_a_sender_of_another_domain_needs_its_own_provider_and_keeps_it(cast: Cast) -> None:
    """reference/attacks.md J12."""
    foreign = {"sender": {"fromEmail": "hello@acme.test"}}
    assert (await cast.adam.patch("/settings/workspace", foreign)).status_code == 422
    await put(cast.adam, "email", SMTP)
    assert (await cast.adam.patch("/settings/workspace", foreign)).status_code == 200
    kept = await cast.adam.delete("/settings/channels/email")
    assert (kept.status_code, kept.json()["code"]) == (409, "conflict")
    await cast.adam.patch("/settings/workspace", {"sender": None})
    assert (await cast.adam.delete("/settings/channels/email")).status_code == 204


async def test_credentials_open_after_the_secret_key_was_rotated(
    cast: Cast, process: Process
) -> None:
    await put(cast.adam, "sms", TWILIO)
    old = process.settings.secret_keys[0]
    async with process.database.write() as db:
        wrapped = await data_keys.load(db)
        assert wrapped is not None
        rotating = Vault(["n" * 40, old], wrapped)
        assert await data_keys.replace(db, old=wrapped, new=rotating.rewrap())
        rewrapped = await data_keys.load(db)
    rotated = replace(process, vault=Vault(["n" * 40], rewrapped))
    async with company.client(rotated) as client:
        ada = replace(cast.vic, client=client)
        assert (await ada.get("/settings/channels/sms")).json()["accountSid"] == SID


async def test_an_activation_knows_the_workspace_s_own_channels(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(process.channels, "whatsapp")
    workflow = {"name": "W", "state": "ACTIVE", "trigger": BY_PHONE, "steps": [text("whatsapp")]}

    async def codes() -> set[str]:
        made = await cast.ed.made("/workflows", workflow)
        return {one["code"] for one in made["findings"]}

    assert "channel_not_configured" in await codes()
    await put(cast.adam, "whatsapp", TWILIO)
    assert "channel_not_configured" not in await codes()


# --- used -----------------------------------------------------------------------------------------


async def test_messages_go_out_by_the_workspace_s_own_from_the_answer_on(
    cast: Cast, process: Process, twilio: TwilioServer
) -> None:
    own = {**TWILIO, "authToken": TOKEN, "from": "+15005550001"}
    async with producing(process, **by_twilio(twilio)) as live:
        token = await hook(live, cast.adam.workspace_id, [text("sms")], trigger=BY_PHONE)
        theirs = await hook(live, cast.mallory.workspace_id, [text("sms")], trigger=BY_PHONE)

        async def sent(token: str) -> str:
            await webhooks.receive(live, token=token, signatures=[], body=EVENT)
            await settle(live)
            return list(twilio.accepted.values())[-1]["From"]

        assert await sent(token) == NUMBER
        await put(cast.adam, "sms", own)
        assert await sent(token) == "+15005550001"
        assert await sent(theirs) == NUMBER
        await put(cast.adam, "sms", {**own, "from": "+15005550002"})
        assert await sent(token) == "+15005550002"
        await cast.adam.delete("/settings/channels/sms")
        assert await sent(token) == NUMBER
    callbacks = [form.get("StatusCallback", "") for form in twilio.accepted.values()]
    assert "/v1/callbacks/twilio/" in callbacks[1]


async def test_each_channel_says_which_providers_it_can_be_given_and_what_they_take(
    cast: Cast,
) -> None:
    ways = (await cast.vic.read("/settings/channels"))["data"]
    offered = {
        way["channel"]: {one["name"]: one["fields"] for one in way["providers"]} for way in ways
    }
    assert {channel: set(by_name) for channel, by_name in offered.items()} == {
        "email": {"smtp", "resend"},
        "sms": {"twilio"},
        "whatsapp": {"twilio"},
    }
    for channel, given in (("email", SMTP), ("email", RESEND), ("sms", TWILIO)):
        fields = offered[channel][given["provider"]]
        assert given.keys() - {"provider"} <= {one["name"] for one in fields}
        for field in fields:
            left_out = {name: value for name, value in given.items() if name != field["name"]}
            answer = await put(cast.adam, channel, left_out)
            if field["needed"]:
                assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (
                    422,
                    f"/{field['name']}",
                )
        shown = (await put(cast.adam, channel, given)).json()
        whole = {one["name"] for one in fields if not one["secret"] and one["name"] in given}
        assert {name: shown[name] for name in whole} == {name: given[name] for name in whole}
        secrets = {one["name"] for one in fields if one["secret"]} & given.keys()
        assert all(shown.get(name) != given[name] for name in secrets)


async def test_each_channel_says_by_whom_it_goes_out(
    cast: Cast, process: Process, twilio: TwilioServer
) -> None:
    async def ways(member: Person) -> list[tuple[Any, ...]]:
        listed = (await member.read("/settings/channels"))["data"]
        return [tuple(one.values())[:-1] for one in listed]

    await put(cast.adam, "sms", TWILIO)
    assert await ways(cast.vic) == [
        ("email", "sandbox", False, True, False),
        ("sms", "sandbox", True, True, False),
        ("whatsapp", "sandbox", False, True, False),
    ]
    await cast.adam.delete("/settings/channels/sms")
    await put(cast.adam, "email", RESEND)
    operators = {**by_twilio(twilio), "twilio_whatsapp_from": None}
    async with producing(process, **operators) as live, in_production(live, cast.ed) as ed:
        assert await ways(ed) == [
            ("email", "resend", True, True, True),
            ("sms", "twilio", False, False, True),
            ("whatsapp", None, False, False, False),
        ]


async def test_what_waited_for_a_good_token_goes_out_when_it_is_there(
    cast: Cast, process: Process, twilio: TwilioServer
) -> None:
    async with producing(process, **by_twilio(twilio)) as live:
        await put(cast.adam, "sms", {**TWILIO, "authToken": "rotated"})
        token = await hook(live, cast.adam.workspace_id, [text("sms")], trigger=BY_PHONE)
        await webhooks.receive(live, token=token, signatures=[], body=EVENT)
        await settle(live)
        [waiting] = await attempts(live, cast.adam.workspace_id)
        assert (waiting.status, waiting.reason_code) == ("QUEUED", "provider_misconfigured")
        assert twilio.accepted == {}
        await put(cast.adam, "sms", {**TWILIO, "authToken": TOKEN})
        await settle(live)
    assert len(twilio.accepted) == 1


async def test_a_bad_token_is_asked_with_few_and_a_good_one_takes_all(
    cast: Cast, process: Process, twilio: TwilioServer
) -> None:
    acme = cast.adam.workspace_id
    async with producing(process, **by_twilio(twilio)) as live:
        await put(cast.adam, "sms", {**TWILIO, "authToken": "rotated"})
        token = await hook(live, acme, [text("sms")], trigger=BY_PHONE)
        for _ in range(9):
            await webhooks.receive(live, token=token, signatures=[], body=EVENT)
            await settle(live)
        assert len(twilio.asked) == circuit_breaker.OPEN_AFTER
        waiting = await attempts(live, acme)
        assert {one.reason_code for one in waiting} == {"provider_misconfigured"}
        assert waiting[-1].tries == 0
        assert "Save the channel's settings again" in present(waiting[-1].reason_detail)
        await put(cast.adam, "sms", {**TWILIO, "authToken": TOKEN})
        await settle(live)
        assert {one.status for one in await attempts(live, acme)} == {"SENT"}
    assert len(twilio.accepted) == 9


async def test_mail_goes_out_by_the_workspace_s_own_server(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    async with (
        Receiver(tmp_path / "operator.jsonl") as operator,
        Receiver(tmp_path / "own.jsonl", login=("ada", "right")) as own,
        producing(process, smtp_url=operator.url) as live,
    ):
        url = own.url.replace("//", "//ada:right@") + "?starttls=off"
        await put(cast.adam, "email", {**SMTP, "url": url})
        token = await hook(live, cast.adam.workspace_id, [SEND_HELLO])
        event = orjson.dumps({"email": "ada@example.com", "word": "tea"})
        await webhooks.receive(live, token=token, signatures=[], body=event)
        await settle(live)
        [received] = own.received
        assert operator.received == []
    assert received.mail["From"] == "Acme <hello@acme.test>"


async def test_a_mail_server_inside_is_not_even_dialled(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    """The operator's SMTP_URL may be anywhere; a workspace's is a stranger's choice."""
    async with (
        Receiver(tmp_path / "inside.jsonl") as inside,
        producing(process, smtp_url=inside.url) as live,
        api.client() as client,
    ):
        egress = Egress()
        guarded = replace(
            live, workspace_channels=Own(live.settings, client, egress), egress=egress
        )
        await put(cast.adam, "email", {**SMTP, "url": inside.url})
        token = await hook(guarded, cast.adam.workspace_id, [SEND_HELLO])
        event = orjson.dumps({"email": "ada@example.com", "word": "tea"})
        await webhooks.receive(guarded, token=token, signatures=[], body=event)
        await settle(guarded)
        [attempt] = await attempts(guarded, cast.adam.workspace_id)
        await guarded.workspace_channels.close()
        await egress.close()
        assert inside.sessions == 0
    assert (attempt.status, attempt.reason_code) == ("QUEUED", "provider_unreachable")
    assert "public internet" in present(attempt.reason_detail)
    assert "127.0.0.1" not in present(attempt.reason_detail)


async def test_the_sandbox_captures_whatever_is_set_up(cast: Cast, process: Process) -> None:
    await put(cast.adam, "email", SMTP)
    token = await hook(process, cast.adam.workspace_id, [SEND_HELLO])
    event = {"email": "ada@example.com", "word": "tea"}
    await cast.client.post(f"/v1/webhooks/in/{token}", json=event)
    await settle(process)
    assert len((await cast.vic.read("/sandbox/messages"))["data"]) == 1


# --- tried ----------------------------------------------------------------------------------------


@pytest.fixture
async def live(
    process: Process, twilio: TwilioServer, resend: ResendServer
) -> AsyncIterator[Process]:
    async with producing(
        process, twilio_base_url=twilio.url, resend_base_url=resend.url
    ) as production:
        # API keys of the cast are the sandbox's; asking a provider is the same in both.
        yield replace(production, settings=process.settings)


@pytest.fixture
async def adam(live: Process, cast: Cast) -> AsyncIterator[Person]:
    async with company.client(live) as client:
        yield replace(cast.adam, client=client)


async def verified(adam: Person, channel: str, given: dict[str, Any]) -> tuple[bool, list[str]]:
    response = await put(adam, channel, given)
    assert response.status_code == 200, response.text
    answer = await adam.post(f"/settings/channels/{channel}/verify")
    assert answer.status_code == 200, answer.text
    assert not any(canary in answer.text for canary in CANARIES)
    found = [f"{one['code']}: {one['message']}" for one in answer.json()["findings"]]
    return answer.json()["ok"], found


async def test_a_provider_that_lets_us_in_is_fine(adam: Person) -> None:
    assert await verified(adam, "sms", {**TWILIO, "authToken": TOKEN}) == (True, [])
    assert await verified(adam, "email", {**RESEND, "apiKey": API_KEY}) == (True, [])


@pytest.mark.parametrize(
    ("channel", "given", "words"),
    [
        ("sms", TWILIO, "credentials: Twilio answered 401: Authenticate"),
        ("sms", {**TWILIO, "authToken": TOKEN, "from": "+15005550001"}, "sender: +15005550001 is"),
        ("email", RESEND, "credentials: Resend answered 403: API key is invalid"),
        (
            "email",
            {**RESEND, "apiKey": API_KEY, "from": "a@other.test"},
            "sender: The domain other.test is not one of this account",
        ),
    ],
)
async def test_what_is_wrong_is_said_in_words(
    adam: Person, channel: str, given: dict[str, Any], words: str
) -> None:
    ok, [found] = await verified(adam, channel, given)
    assert not ok
    assert found.startswith(words)


async def test_a_provider_whose_events_nobody_could_verify_is_warned_of(adam: Person) -> None:
    deaf = {**RESEND, "apiKey": API_KEY}
    del deaf["webhookSecret"]
    ok, [found] = await verified(adam, "email", deaf)
    assert ok
    assert found.startswith("callbacks: Without a webhookSecret")


async def test_of_a_mail_server_every_step_is_tried(adam: Person, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    async with Receiver(ledger, login=("ada", "right")) as server:
        right = server.url.replace("//", "//ada:right@")
        ok, [found] = await verified(adam, "email", {**SMTP, "url": right})
        assert ok
        assert found.startswith("tls: The connection is not encrypted")
        wrong = server.url.replace("//", "//ada:wrong@")
        ok, [found] = await verified(adam, "email", {**SMTP, "url": wrong})
        assert not ok
        assert found.startswith("credentials: The mail server answered 535")
        insisting = {**SMTP, "url": f"{right}?starttls=required"}
        ok, [found] = await verified(adam, "email", insisting)
        assert (ok, found.partition(":")[0]) == (False, "tls")
        assert server.received == []
    ok, [found] = await verified(adam, "email", {**SMTP, "url": right})
    assert (ok, found.partition(":")[0]) == (False, "unreachable")


async def test_a_mail_server_that_nobody_is_connected_to_is_told_in_words(
    cast: Cast, process: Process
) -> None:
    """And in the same words whatever stands there: no ports are scanned from here."""
    for host in ("127.0.0.1", "10.1.2.3", "169.254.169.254", "[::1]"):
        await put(cast.adam, "email", {**SMTP, "url": f"smtp://{host}:25"})
        answer = await cast.adam.post("/settings/channels/email/verify")
        [found] = answer.json()["findings"]
        assert found["code"] == "refused_target"
        assert host not in found["message"]
