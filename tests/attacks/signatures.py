"""D: the signature."""

from __future__ import annotations

import asyncio
import hmac
import json

from tests.attacks.target import (
    EVENT,
    IN,
    JSON,
    SECRET,
    UNKNOWN,
    Hook,
    Line,
    Target,
    anonymous,
    chunked,
    request,
    signed,
)

NAME = "X-Service-Signature: "
DIGITS = hmac.digest(SECRET.encode(), EVENT, "sha256").hex()
GOOD = f"{NAME}sha256={DIGITS}"
BAD = f"{NAME}sha256={'0' * 64}"


async def unsigned(hook: Hook, *headers: str | bytes, body: bytes = EVENT) -> None:
    await hook.refuses(401, "invalid_signature", body, *headers)


async def missing(target: Target) -> None:
    hook = await target.hook(signingSecret=SECRET)
    await unsigned(hook)
    await unsigned(hook, NAME)
    await unsigned(hook, GOOD.replace("Service-Signature", "Signature"))
    await unsigned(hook, GOOD.replace("X-Service-Signature", "X_Service_Signature"))


async def other_schemes(target: Target) -> None:
    hook = await target.hook(signingSecret=SECRET)
    for scheme in ("", "sha1=", "SHA256=", "v1=", "v1,", "sha256:", "hmac-sha256="):
        await unsigned(hook, f"{NAME}{scheme}{DIGITS}")


async def case_of_digits(target: Target) -> None:
    hook = await target.hook(signingSecret=SECRET)
    mixed = "".join(d.upper() if n % 2 else d for n, d in enumerate(DIGITS))
    for digits in (DIGITS, DIGITS.upper(), mixed):
        await hook.takes(EVENT, f"{NAME}sha256={digits}")


async def not_64_digits(target: Target) -> None:
    hook = await target.hook(signingSecret=SECRET)
    for digits in (
        *(DIGITS[:-1], DIGITS + "0", DIGITS * 2, DIGITS[:32] + " " + DIGITS[32:], " " + DIGITS),
        *("0x" + DIGITS[2:], "z" * 64, "a" * 15_000, "", "=" + DIGITS, DIGITS[:-1] + "٣", "٣" * 64),
    ):
        await unsigned(hook, f"{NAME}sha256={digits}")
    await unsigned(hook, NAME.encode() + b"sha256=" + b"\xe9" * 64)
    for length in (50_000, 100_000):  # beyond 16 KiB it depends on how the head was cut on its way
        tried = await hook.post(EVENT, f"{NAME}sha256={'a' * length}")
        assert tried.status in (400, 401, 431)


async def more_than_one(target: Target) -> None:
    hook = await target.hook(signingSecret=SECRET)
    for pair in ((GOOD, BAD), (BAD, GOOD), (GOOD, GOOD), (GOOD, NAME)):
        await unsigned(hook, *pair)
    await unsigned(hook, f"{GOOD}, sha256={DIGITS}")
    await unsigned(hook, f"{GOOD},")


async def changed_bodies(target: Target) -> None:
    hook = await target.hook(signingSecret=SECRET)
    swapped = b'{"price": 1.10, "email": "ada@example.com"}'
    for body in (EVENT + b"\n", EVENT.replace(b"1.10", b"1.11"), swapped, EVENT[:-1], b""):
        await unsigned(hook, GOOD, body=body)


async def rotated(target: Target) -> None:
    """Rotate the secret, which holds from the answer on, in every process, while others send."""
    hook = await target.hook(signingSecret="secret number 0 of this line")
    for number in range(1, 4):
        old, new = (f"secret number {n} of this line" for n in (number - 1, number))
        await hook.takes(EVENT, signed(EVENT, old))
        changing = asyncio.ensure_future(hook.patch(signingSecret=new))
        meanwhile = [hook.post(EVENT, signed(EVENT, old)) for _ in range(10)]
        assert {answer.status for answer in await asyncio.gather(*meanwhile)} <= {202, 401}
        assert (await changing).status_code == 200
        stale = [hook.post(EVENT, signed(EVENT, old)) for _ in range(50)]
        assert {answer.status for answer in await asyncio.gather(*stale)} == {401}
        fresh = [hook.post(EVENT, signed(EVENT, new)) for _ in range(4)]
        assert {answer.status for answer in await asyncio.gather(*fresh)} == {202}


async def removed(target: Target) -> None:
    for nothing in (None, ""):
        hook = await target.hook(signingSecret=SECRET)
        await unsigned(hook)
        assert (await hook.patch(signingSecret=nothing)).status_code == 200
        await asyncio.gather(*(hook.takes() for _ in range(4)))


async def of_another(target: Target) -> None:
    hook = await target.hook(signingSecret=SECRET)
    other = await target.hook(signingSecret="what only the other one knows")
    await unsigned(hook, signed(EVENT, "what only the other one knows"))
    await other.takes(EVENT, signed(EVENT, "what only the other one knows"))


async def where_none_is_asked_for(target: Target) -> None:
    hook = await target.hook()
    for header in (BAD, NAME + "nonsense", NAME):
        await hook.takes(EVENT, header)
    await hook.takes(EVENT, BAD, GOOD)


async def secrets_of_all_kinds(target: Target) -> None:
    hook = await target.hook()
    for secret in ("x", "ünïcödé sécret 🔑", " spaces around ", "k" * 1_024, "\ttab\n"):
        assert (await hook.patch(signingSecret=secret)).status_code == 200, secret
        await hook.takes(EVENT, signed(EVENT, secret))
        await unsigned(hook, signed(EVENT, secret + " "))
    for secret in ("k" * 1_025, "k" * 10_000, "nul\0", "\ud800"):
        body = json.dumps({"trigger": {"signingSecret": secret}})
        url = f"/workflows/{hook.id}"
        refused = await target.api.patch(
            url, content=body, headers={"Content-Type": "application/json"}
        )
        assert refused.status_code == 422, secret[:10]
    short = (await hook.patch(signingSecret="short")).json()
    assert "short_secret" in {finding["code"] for finding in short["findings"]}


async def raw_bytes(target: Target) -> None:
    hook = await target.hook(signingSecret=SECRET)
    framed = chunked(EVENT[:5], EVENT[5:])
    await hook.takes(framed, "Transfer-Encoding: chunked", signed(EVENT), length=False)
    spaced = b" \r\n" + EVENT + b"\r\n"
    await hook.takes(spaced, signed(spaced))
    await hook.refuses(400, "malformed_json", b"", signed(b""))
    marked = b"\xef\xbb\xbf" + EVENT
    await hook.takes(marked, signed(marked))


async def unknown_tokens(target: Target) -> None:
    answers = [
        await target.exchange(request(IN + UNKNOWN, EVENT, JSON, *headers))
        for headers in ((), (GOOD,), (BAD,), (GOOD, BAD))
    ]
    assert {answer.status for answer in answers} == {404}
    assert all(anonymous(answer) == anonymous(answers[0]) for answer in answers)


async def alike_however_wrong(target: Target) -> None:
    """Nothing in an answer says how near it was; the comparison takes constant time."""
    hook = await target.hook(signingSecret=SECRET)
    first, last = (digit_changed(place) for place in (0, 63))
    answers = [await hook.post(EVENT, *h) for h in ((), (BAD,), (first,), (last,), (GOOD, GOOD))]
    assert {answer.status for answer in answers} == {401}
    assert all(anonymous(answer) == anonymous(answers[0]) for answer in answers)


def digit_changed(place: int) -> str:
    digit = "0" if DIGITS[place] != "0" else "1"
    return f"{NAME}sha256={DIGITS[:place]}{digit}{DIGITS[place + 1 :]}"


async def never_shown(target: Target) -> None:
    canary = "canary 7f3a9c secret that nobody may see"
    hook = await target.hook(signingSecret=canary)
    await hook.takes(EVENT, signed(EVENT, canary))
    await unsigned(hook, signed(EVENT, canary + "x"))
    await hook.patch(signingSecret=canary + " again")
    for url in (f"/workflows/{hook.id}", "/workflows?limit=200", f"/runs?workflowId={hook.id}"):
        assert "canary" not in (await target.api.get(url)).text, url
    shown = (await target.api.get(f"/workflows/{hook.id}")).json()["trigger"]
    assert (shown["signingSecretSet"], shown["signingSecretLast4"]) == (True, "gain")
    assert all("canary" not in part.text for part in target.parts)


async def replayed(target: Target) -> None:
    """The scheme has no time in it: a captured request is good again, unless it has a key."""
    hook = await target.hook(signingSecret=SECRET)
    one, two = [await hook.takes(EVENT, signed(EVENT)) for _ in range(2)]
    assert one["runId"] != two["runId"]


LINES: dict[str, Line] = {
    "D1": missing,
    "D2": other_schemes,
    "D3": case_of_digits,
    "D4": not_64_digits,
    "D5": more_than_one,
    "D6": changed_bodies,
    "D7": rotated,
    "D8": removed,
    "D9": of_another,
    "D10": where_none_is_asked_for,
    "D11": secrets_of_all_kinds,
    "D12": raw_bytes,
    "D13": unknown_tokens,
    "D14": alike_however_wrong,
    "D15": never_shown,
    "D16": replayed,
}
