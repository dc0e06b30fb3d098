"""A sender's numbers mean and read what their sender wrote, all the way from the webhook."""

from __future__ import annotations

import json

import httpx2

from app.process import Process
from tests.cast import WEBHOOK, Cast, Person, any_address, settle
from tests.routes.test_webhooks import IN, JSON, sending

# As written → another spelling of the same number, and a neighbour that it is not.
LITERALS = {
    "1.10": ("1.1", "1.11"),
    "1.0": ("1", "1.01"),
    "-0": ("0", "-1"),
    "-0.0": ("0", "0.1"),
    "1E2": ("100", "101"),
    "1e-7": ("0.0000001", "0.0000002"),
    "123456789012345678901": ("123456789012345678901.0", "123456789012345678902"),
    "9007199254740993": ("9007199254740993.0", "9007199254740992"),
    "0.1000000000000000055511151231257827": ("1000000000000000055511151231257827e-34", "0.1"),
    "1e400": ("10e399", "1e401"),
    "-1e400": ("-10e399", "1e400"),
    "1E+99999": ("1e99999", "1e99998"),
    "5e-324": ("50e-325", "0"),
}
NAMES = [f"n{number}" for number in range(len(LITERALS))]
NUMBERS = ", ".join(f'"{name}": {text}' for name, text in zip(NAMES, LITERALS, strict=True))
SAID = "|".join(LITERALS)
TEMPLATE = "|".join("{{trigger." + name + "}}" for name in NAMES)


def comparisons(kind: int) -> str:
    """Every number with its other spelling (0) or its neighbour (1)."""
    return ", ".join(
        f'{{"path": "trigger.{name}", "op": "eq", "value": {others[kind]}}}'
        for name, others in zip(NAMES, LITERALS.values(), strict=True)
    )


STEPS = f"""[
  {{"id": "say", "type": "send_message", "channel": "email", "content": {{"subject": "Numbers",
    "html": "<p>{TEMPLATE}</p>", "text": "{TEMPLATE} and {{{{trigger.list}}}}"}}}},
  {{"id": "same", "type": "branch", "cases": [{{"when": {{"all": [{comparisons(0)}]}},
    "steps": [{{"id": "tag", "type": "add_tag", "tag": "same"}}]}}]}},
  {{"id": "other", "type": "branch", "cases": [{{"when": {{"any": [{comparisons(1)}]}},
    "steps": [{{"id": "wrong", "type": "add_tag", "tag": "wrong"}}]}}]}},
  {{"id": "name", "type": "update_contact", "set": {{"lastName": "{{{{trigger.n6}}}}"}}}}
]"""


async def made(person: Person, trigger: object) -> str:
    """The token of an ACTIVE workflow, whose JSON is sent as it is written above."""
    body = f'{{"name": "N", "state": "ACTIVE", "trigger": {json.dumps(trigger)}, "steps": {STEPS}}}'
    response = await person.call(
        "POST", "/workflows", content=body.encode(), headers={"Content-Type": JSON}
    )
    assert response.status_code == 201, response.text
    url: str = response.json()["trigger"]["webhookUrl"]
    return url.rpartition("/")[2]


async def post(client: httpx2.AsyncClient, token: str, body: str) -> dict[str, str]:
    response = await client.post(IN + token, content=body.encode(), headers={"Content-Type": JSON})
    assert response.status_code == 202, response.text
    receipt: dict[str, str] = response.json()
    return receipt


async def test_a_number_is_what_its_sender_wrote_from_the_webhook_to_the_message(
    cast: Cast, process: Process
) -> None:
    token = await made(cast.ed, WEBHOOK)
    several = '[1.10, {"big": 123456789012345678901}, -0, 1e400]'
    body = f'{{"email": "ada@example.com", {NUMBERS}, "list": {several}}}'
    async with sending(process, any_address()) as sender:
        receipt = await post(sender, token, body)
    await settle(process)
    [message] = (await cast.vic.read(f"/sandbox/messages?runId={receipt['runId']}"))["data"]
    listed = '[1.10,{"big":123456789012345678901},-0,1e400]'
    assert message["text"].strip() == f"{SAID} and {listed}"
    assert f"<p>{SAID}</p>" in message["html"]
    run = await cast.vic.get(f"/runs/{receipt['runId']}")
    assert run.json()["status"] == "COMPLETED"
    for name, literal in zip(NAMES, LITERALS, strict=True):
        assert f'"{name}":{literal}' in run.text
    assert f'"list":{listed}' in run.text
    contact = await cast.vic.read(f"/contacts/{receipt['contactId']}")
    assert contact["tags"] == ["same"]
    assert contact["lastName"] == "123456789012345678901"


async def test_an_id_of_many_digits_finds_the_contact_that_has_exactly_those(
    cast: Cast, process: Process
) -> None:
    digits = "123456789012345678901"
    contact = await cast.ed.made("/contacts", {"metadata": {"crmId": digits}})
    by_id = {"source": "inbound_webhook", "contactLookup": "contact_id", "contactPath": "id"}
    token = await made(cast.ed, {**by_id, "metadataField": "crmId"})
    neighbour = digits[:-1] + "2"
    async with sending(process, any_address()) as sender:
        for literal in (digits, f'"{digits}"'):
            receipt = await post(sender, token, f'{{"id": {literal}}}')
            assert receipt["contactId"] == contact["id"]
        for literal, status in ((neighbour, 404), (f"{digits}.0", 422), ("1.23e20", 422)):
            refused = await sender.post(
                IN + token, content=b'{"id": %s}' % literal.encode(), headers={"Content-Type": JSON}
            )
            assert refused.status_code == status, literal
