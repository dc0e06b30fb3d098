"""C: the lookup's path, and the contact it leads to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from app.database.db import new_id
from tests.attacks.target import Hook, Line, Target


def body(value: Any, key: str = "email") -> bytes:
    return json.dumps({key: value}).encode()


async def unresolved(hook: Hook, *bodies: bytes) -> None:
    for one in bodies:
        await hook.refuses(422, "lookup_unresolved", one)


async def nothing_usable(target: Target) -> None:
    for lookup in ("email", "phone", "contact_id"):
        hook = await target.hook(lookup, create=False)
        wrong: list[Any] = [None, "", {}, [], ["ada@example.com"], True, False, {"a": "b"}]
        await unresolved(hook, b"{}", *(body(value, lookup) for value in wrong))
    for lookup in ("email", "phone"):
        hook = await target.hook(lookup)
        await unresolved(hook, *(body(value, lookup) for value in (" ", "\t", "\u00a0")))


async def numbers(target: Target) -> None:
    for lookup in ("email", "phone"):
        hook = await target.hook(lookup)
        await unresolved(hook, *(body(value, lookup) for value in (14155550132, 1.5, 0)))
    await target.made("/contacts", {"metadata": {"crmId": 981230455}})
    hook = await target.hook("contact_id", create=False, metadataField="crmId")
    for value in (981230455, "981230455"):
        await hook.takes(body(value, "contact_id"))
    await unresolved(hook, b'{"contact_id": 981230455.0}', b'{"contact_id": 9.81230455e8}')


async def indexes(target: Target) -> None:
    for path, given in (
        ("fields[0].email", {"fields": [{"email": "ada@example.com"}]}),
        ("a[0][1].b", {"a": [[0, {"b": "ada@example.com"}]]}),
        ('["a.b"]["c d"]', {"a.b": {"c d": "ada@example.com"}}),
    ):
        hook = await target.hook(contactPath=path)
        await hook.takes(json.dumps(given).encode())
    hook = await target.hook(contactPath="[0]")
    await unresolved(hook, b'{"0": "ada@example.com", "[0]": "ada@example.com"}')


async def paths_that_are_none(target: Target) -> None:
    """Refused when they are saved, by both shapes of a definition."""
    bad = ["a[-1]", "a[01]", "a[1_0]", "a[٣]", "a[1e1]", "a[]", "a[*]", "a[?(@.b)]", "a..b"]
    bad += [".a", "a.", "", "a b", "a[0", "a]0[", "a[+1]", "a[ 0]", 'a["b]', "$..*[", "a\u0000b"]
    for url in ("/workflows", "/automations"):
        for path in bad:
            trigger = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": path}
            refused = await target.api.post(url, json={"name": "bad", "trigger": trigger})
            assert refused.status_code == 422, path
            [error] = refused.json()["errors"]
            assert error["pointer"] == "/trigger/contactPath", path
    hook = await target.hook(contactPath="a[99999999999999999999]")
    await unresolved(hook, b'{"a": ["ada@example.com"]}')


async def attributes(target: Target) -> None:
    for path in ("__class__.__mro__", "constructor.prototype", "email.__len__", "keys", "a.append"):
        hook = await target.hook(contactPath=path)
        await unresolved(hook, b'{"email": "ada@example.com", "a": ["ada@example.com"]}')


async def long_paths(target: Target) -> None:
    for path in ("a" * 10_000, "a" * 513, ".".join(["a"] * 33), "a." * 999 + "a", "a" + "[0]" * 32):
        trigger = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": path}
        refused = await target.api.post("/workflows", json={"name": "long", "trigger": trigger})
        assert refused.status_code == 422, path[:20]
    await target.hook(contactPath="a" + "[0]" * 31)
    await target.hook(contactPath="a" * 512)


async def emails(target: Target) -> None:
    hook = await target.hook()
    await unresolved(
        hook,
        *map(
            body,
            (
                *("ada", "@example.com", "ada@", "a@b@example.com", "ada@example..com"),
                *("ada@example.com\r\nBcc: eve@example.com", "ada@exam\nple.com"),
                *("<script>@example.com>", "ada <ada@example.com>", "ada@example.com,eve@b.org"),
                *("a" * 400 + "@example.com", "a@" + "b" * 300 + ".com", "ada@-example.com"),
                *("ada@[127.0.0.1]", '"ada x"@example.com', "ada@example.com."),
            ),
        ),
    )
    one = await hook.takes(body("Ada@Example.COM"))
    same = await hook.takes(body(" ada@example.com "))
    assert one["contactId"] == same["contactId"]
    tagged = await hook.takes(body("ada+news@example.com"))
    unicode = await hook.takes(body("ada@exämple.com"))
    puny = await hook.takes(body("ada@xn--exmple-cua.com"))
    likeness = await hook.takes(body("аda@example.com"))  # its first letter is Cyrillic
    assert unicode["contactId"] == puny["contactId"]
    people = {r["contactId"] for r in (one, tagged, unicode, likeness)}
    assert len(people) == 4


async def phones(target: Target) -> None:
    hook = await target.hook("phone")
    spellings = ("+1 (415) 555-0132", "+14155550132", "+1.415.555.0132", "tel:+1-415-555-0132")
    receipts = [await hook.takes(body(text, "phone")) for text in spellings]
    receipts.append(await hook.takes(body("+１４１５５５５０１３２", "phone")))
    assert len({receipt["contactId"] for receipt in receipts}) == 1
    contact = (await target.api.get(f"/contacts/{receipts[0]['contactId']}")).json()
    assert contact["phone"] == "+14155550132"
    bad = ("letters", "+1" + "5" * 40, "4155550132", "+0", "+14155550132;ext=5")
    await unresolved(hook, *(body(text, "phone") for text in bad))


async def foreign_ids(target: Target) -> None:
    rival = {"email": f"m{new_id('x')}@rival.test", "password": "correct horse battery"}
    rival |= {"name": "Mallory", "workspaceName": "Rival"}
    answer = await target.api.post("/auth/register", json=rival, headers={"Authorization": ""})
    bearer = {"Authorization": f"Bearer {answer.json()['accessToken']}"}
    made = await target.api.post("/contacts", json={"email": "x@rival.test"}, headers=bearer)
    hook = await target.hook("contact_id", create=False)
    listed = []
    for id in (made.json()["id"], new_id("con"), "con_x", "' OR 1=1 --"):
        refused = await hook.refuses(404, "contact_not_found", body(id, "contact_id"))
        listed.append(json.loads(refused.body)["detail"])
    assert len(set(listed)) == 1


async def at_once(target: Target) -> None:
    hook = await target.hook()
    spellings = ("Grace@Example.com", "grace@example.com", "GRACE@EXAMPLE.COM")
    receipts = await asyncio.gather(*(hook.takes(body(spellings[n % 3])) for n in range(50)))
    assert len({receipt["contactId"] for receipt in receipts}) == 1
    assert len({receipt["runId"] for receipt in receipts}) == 50
    found = await target.all_of("/contacts?email=grace@example.com")
    assert [contact["id"] for contact in found] == [receipts[0]["contactId"]]


async def erased_addresses(target: Target) -> None:
    """Erase a contact, who may come again as somebody new."""
    hook = await target.hook()
    before = await hook.takes(body("forgotten@example.com"))
    erased = await target.api.delete(f"/contacts/{before['contactId']}")
    assert erased.status_code == 204, erased.text
    again = await hook.takes(body("forgotten@example.com"))
    assert again["contactId"] != before["contactId"]


async def nobody_is_made(target: Target) -> None:
    hook = await target.hook(create=False)
    await hook.refuses(404, "contact_not_found", body("unknown@example.com"))
    assert await target.all_of("/contacts?email=unknown@example.com") == []


async def no_quota(target: Target) -> None:
    """A plan's quota holds back messages, never events."""
    hook = await target.hook()
    for number in range(20):
        await hook.takes(body(f"quota{number}@example.com"))


LINES: dict[str, Line] = {
    "C1": nothing_usable,
    "C2": numbers,
    "C3": indexes,
    "C4": paths_that_are_none,
    "C5": attributes,
    "C6": long_paths,
    "C7": emails,
    "C8": phones,
    "C9": foreign_ids,
    "C10": at_once,
    "C11": erased_addresses,
    "C12": nobody_is_made,
    "C13": no_quota,
}
