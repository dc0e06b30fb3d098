"""B: the JSON of strangers."""

from __future__ import annotations

import json

from tests.attacks.target import (
    EVENT,
    Hook,
    Line,
    Target,
    signed,
)

EMAIL = b'"email": "ada@example.com"'
SECRET = "a shared secret of good length"


def holding(value: bytes) -> bytes:
    return b"{" + EMAIL + b', "x": ' + value + b"}"


async def kept(hook: Hook, *values: bytes) -> None:
    """Accepted, and read back as it was written."""
    for value in values:
        receipt = await hook.takes(holding(value))
        run = await hook.target.api.get(f"/runs/{receipt['runId']}")
        assert run.status_code == 200
        assert b'"x":' + value.replace(b" ", b"") in run.content, value[:100]


async def refused(hook: Hook, *bodies: bytes) -> None:
    for body in bodies:
        await hook.refuses(400, "malformed_json", body)


async def no_objects(target: Target) -> None:
    hook = await target.hook()
    for body in (b"[]", b'"x"', b"1", b"null", b"true", b"-0", b"[" + EVENT + b"]"):
        await hook.refuses(422, "invalid", body)


async def not_quite_json(target: Target) -> None:
    await refused(
        await target.hook(),
        *(b"{", b'{"a":1} x', b"{'a':1}", b'{"a":1,}', b'{"a":1}//', b"/**/" + EVENT),
        *(b"\x0b" + EVENT, b"\xc2\xa0" + EVENT, b'{"a" 1}', b"{a: 1}", b'{"a": 01}'),
        *(b'{"a": .5}', b'{"a": 1.}', b'{"a": +1}', b'{"a": 0x1}', b'{"a": True}', EVENT * 2),
    )


async def not_numbers(target: Target) -> None:
    constants = (b"NaN", b"Infinity", b"-Infinity")
    await refused(await target.hook(), *map(holding, constants))


async def numbers_beyond_any_type(target: Target) -> None:
    hook = await target.hook()
    many = b"[" + b",".join([b"1e131071"] * 200) + b"]"
    await kept(hook, b"1e400", b"-1e400", b"1e131073", b"1e-400", b"1E+99999", many)


async def numbers_of_many_digits(target: Target) -> None:
    hook = await target.hook()
    digits = (20, 400, 4_301, 1_000_000)
    await kept(hook, *(b"7" * count for count in digits), b"-" + b"9" * 21)


async def literals(target: Target) -> None:
    hook = await target.hook()
    await kept(hook, b"1.10", b"1.0", b"-0", b"-0.0", b"1E2", b"0." + b"1234567890" * 20)


async def depths(target: Target) -> None:
    hook = await target.hook()
    for depth in (64, 127):  # and the object around it
        await kept(hook, b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth)
    for depth in (128, 500, 990, 5_000, 100_000):
        await refused(hook, holding(b"[" * depth + b"]" * depth), holding(b"[" * depth))
        await refused(hook, holding(b'{"a":' * depth + b"1" + b"}" * depth))
    await kept(hook, b'"' + b"[{" * 500 + b'"')


async def wide_bodies(target: Target) -> None:
    hook = await target.hook(contactPath="x.email")
    wide = b",".join(b'"%05d":0' % number for number in range(90_000))
    large = b"k" * 1_000_000
    for value in (b"{%s}" % wide, b'{"%s": 1}' % large, b'{"a": "%s"}' % large):
        await hook.refuses(422, "lookup_unresolved", holding(value))
    await hook.refuses(422, "lookup_unresolved", holding(b'{"email": "%s@a.org"}' % large))
    await hook.takes(holding(b'{"email": "ada@example.com", %s}' % wide))


async def doubled_keys(target: Target) -> None:
    """The last wins, for the lookup, in the run, everywhere: there is one parser."""
    hook = await target.hook()
    first, last = b'"email": "first@example.com"', b'"email": "last@example.com"'
    for body in (
        b"{" + first + b"," + last + b"}",
        b"{" + first + b"," + last.replace(b"email", b"\\u0065mail") + b"}",
        b"{" + first.replace(b"email", b"\\u0065mail") + b"," + last + b"}",
    ):
        receipt = await hook.takes(body)
        contact = (await target.api.get(f"/contacts/{receipt['contactId']}")).json()
        run = (await target.api.get(f"/runs/{receipt['runId']}")).json()
        assert contact["email"] == run["trigger"]["email"] == "last@example.com"


async def zeros(target: Target) -> None:
    hook = await target.hook()
    await kept(hook, rb'"a\u0000b"', rb'{"a\u0000":1}')
    for address in (rb"ada\u0000@example.com", rb"ada@example.com\u0000", rb"\u0000"):
        body = b'{"email": "%s"}' % address
        await hook.refuses(422, "lookup_unresolved", body)
    by_id = await target.hook("contact_id", create=False)
    await by_id.refuses(422, "lookup_unresolved", rb'{"contact_id": "con_\u0000"}')


async def half_pairs(target: Target) -> None:
    """Show what no UTF-8 can say as U+FFFD, and identify nobody by it."""
    hook = await target.hook()
    for half in (rb"\ud800", rb"\udc00\ud800", rb"\uDFFF"):
        receipt = await hook.takes(holding(b'"a' + half + b'"'))
        run = (await target.api.get(f"/runs/{receipt['runId']}")).json()
        assert run["trigger"]["x"].replace("\ufffd", "") == "a"
        await hook.takes(holding(b'{"' + half + b'": 1}'))
        await hook.refuses(422, "lookup_unresolved", b'{"email": "%s@example.com"}' % half)
    by_id = await target.hook("contact_id", create=False)
    await by_id.refuses(422, "lookup_unresolved", rb'{"contact_id": "\ud800"}')


async def odd_characters(target: Target) -> None:
    hook = await target.hook()
    odd = ("\uffff\ufdd0", "\u202egnp.exe\u2066", "😀\U0010ffff", "e" + "\u0301" * 1_000, "\u2028")
    for text in odd:
        receipt = await hook.takes(holding(json.dumps(text, ensure_ascii=False).encode()))
        run = (await target.api.get(f"/runs/{receipt['runId']}")).json()
        assert run["trigger"]["x"] == text


async def byte_order_mark(target: Target) -> None:
    """Skip a byte order mark (RFC 8259 §8.1); what is signed are all the bytes."""
    hook = await target.hook(signingSecret=SECRET)
    marked = b"\xef\xbb\xbf" + EVENT
    await hook.takes(marked, signed(marked))
    await hook.refuses(401, "invalid_signature", marked, signed(EVENT))
    for body in (b"\xef\xbb\xbf", b"\xef\xbb\xbf" + marked):
        await hook.refuses(400, "malformed_json", body, signed(body))


async def other_encodings(target: Target) -> None:
    text = EVENT.decode()
    await refused(
        await target.hook(),
        *(text.encode(name) for name in ("utf-16", "utf-16-le", "utf-16-be")),
        *(text.encode(name) for name in ("utf-32", "utf-32-le", "utf-32-be")),
        holding(b'"\xe9"'),
        holding(b'"\xc0\xaf"'),  # overlong
        holding(b'"\xf0\x9f\x98"'),  # truncated
        holding(b'"\xed\xa0\xbd\xed\xb8\x80"'),  # CESU-8
        holding(b'"\xf5\x80\x80\x80"'),
    )


async def raw_controls(target: Target) -> None:
    controls = (b"\x00", b"\x01", b"\t", b"\n", b"\x1f")
    await refused(await target.hook(), *(holding(b'"a' + one + b'"') for one in controls))


async def names_with_a_meaning(target: Target) -> None:
    hook = await target.hook()
    names = ["__proto__", "constructor", "prototype", "__class__", "__globals__", "$where", "$ref"]
    names += ["a.b", "a b", "", "0", "size", "first", "email]", '"', "{{7*7}}"]
    body = {"email": "ada@example.com", "x": {name: {"email": name} for name in names}}
    receipt = await hook.takes(json.dumps(body).encode())
    run = (await target.api.get(f"/runs/{receipt['runId']}")).json()
    assert run["trigger"] == body


async def deep_and_long(target: Target) -> None:
    """Thousands of lookups into the deepest body there may be."""
    hook = await target.hook(contactPath=".".join(["a"] * 32))
    deep = b'{"a":' * 127 + b"{}" + b"}" * 127
    many = b"[" + b",".join([b'{"a":{"a":{"a":0}}}'] * 40_000) + b"]"
    for body in (deep, b'{"a": ' + many + b"}"):
        await hook.refuses(422, "lookup_unresolved", body)


async def the_same_with_other_spacing(target: Target) -> None:
    hook = await target.hook(signingSecret=SECRET)
    await hook.takes(EVENT, signed(EVENT))
    for other in (EVENT.replace(b" ", b""), EVENT + b" ", EVENT.replace(b",", b" ,")):
        await hook.refuses(401, "invalid_signature", other, signed(EVENT))


async def keys_that_collide(target: Target) -> None:
    """Send keys that collide by Python's hash of integers; its hash of text has a seed."""
    hook = await target.hook()
    modulus = 2**61 - 1
    keys = (b'"%d":0' % (number * modulus) for number in range(35_000))
    await hook.takes(holding(b"{" + b",".join(keys) + b"}"))


LINES: dict[str, Line] = {
    "B1": no_objects,
    "B2": not_quite_json,
    "B3": not_numbers,
    "B4": numbers_beyond_any_type,
    "B5": numbers_of_many_digits,
    "B6": literals,
    "B7": depths,
    "B8": wide_bodies,
    "B9": doubled_keys,
    "B10": doubled_keys,
    "B11": zeros,
    "B12": half_pairs,
    "B13": odd_characters,
    "B14": byte_order_mark,
    "B15": other_encodings,
    "B16": raw_controls,
    "B17": names_with_a_meaning,
    "B18": deep_and_long,
    "B19": the_same_with_other_spacing,
    "B20": keys_that_collide,
}
