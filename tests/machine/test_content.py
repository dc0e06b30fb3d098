"""Contents of every channel: read strictly, rendered by one renderer."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest

from app.machine import content
from app.machine.fields import Place
from app.machine.program import Finding

SID = "HX" + "0a" * 16
FACTS = {"trigger": {"name": "Ada & <Bob>"}, "contact": {}, "steps": {}, "run": None, "now": None}
NAME = "{{trigger.name}}"


def read(channel: str | None, raw: object, **options: Any) -> tuple[Any, list[tuple[str, str]]]:
    findings: list[Finding] = []
    written = content.read(channel, raw, Place("/content", findings), **options)
    return written, [(finding.code, finding.pointer) for finding in findings]


@pytest.mark.parametrize(
    ("channel", "raw"),
    [
        ("email", {"subject": NAME, "html": f"<p>{NAME}</p>"}),
        ("email", {"subject": "s", "html": "h", "replyTo": "help+1@example.com"}),
        ("email", {"subject": "s", "html": "h", "replyTo": "{{contact.email}}"}),
        ("sms", {"text": NAME}),
        ("whatsapp", {"text": NAME}),
        ("whatsapp", {"contentSid": SID}),
        ("whatsapp", {"contentSid": SID, "variables": {"1": NAME, "2": "x"}}),
    ],
)
def test_what_a_channel_can_say_is_kept_as_it_was_written(
    channel: str, raw: dict[str, Any]
) -> None:
    assert read(channel, raw) == (raw, [])


def test_empty_parts_are_left_out() -> None:
    assert read("sms", {"text": "x"})[0] == {"text": "x"}
    assert read("email", {"subject": "s", "html": "h", "text": "", "preheader": None})[0] == {
        "subject": "s",
        "html": "h",
    }


@pytest.mark.parametrize(
    ("channel", "raw", "findings"),
    [
        ("email", {}, [("missing", "/content/subject"), ("missing", "/content/html")]),
        ("email", {"subject": "s", "html": 7}, [("wrong_type", "/content/html")]),
        ("email", {"subject": "s", "html": "{{ x }}"}, [("bad_template", "/content/html")]),
        ("sms", {"text": ""}, [("missing", "/content/text")]),
        ("sms", {"text": "x", "subject": "s"}, [("unknown_field", "/content/subject")]),
        ("sms", {"text": "{{"}, [("bad_template", "/content/text")]),
        ("whatsapp", {}, [("missing", "/content/text")]),
        ("whatsapp", {"text": "x", "contentSid": SID}, [("both", "/content/contentSid")]),
        ("whatsapp", {"contentSid": "HX12"}, [("wrong_type", "/content/contentSid")]),
        (
            "whatsapp",
            {"text": "x", "variables": {"1": "y"}},
            [("needs_content_sid", "/content/variables")],
        ),
        (
            "whatsapp",
            {"contentSid": SID, "variables": {"a/b": "{{ x }}", "2": 3}},
            [("bad_template", "/content/variables/a~1b"), ("wrong_type", "/content/variables/2")],
        ),
        ("whatsapp", {"contentSid": SID, "variables": []}, [("wrong_type", "/content/variables")]),
        (
            "whatsapp",
            {"contentSid": SID, "variables": dict.fromkeys(map(str, range(101)), "x")},
            [("too_many", "/content/variables")],
        ),
    ],
)
def test_what_a_channel_cannot_say_is_found_where_it_stands(
    channel: str, raw: dict[str, Any], findings: list[Any]
) -> None:
    assert read(channel, raw)[1] == findings


@pytest.mark.parametrize(
    "address",
    ["nobody", "@example.com", "a b@example.com", "a@", "Ada <a@example.com>", "a@b, c@d", "a@b\n"],
)
def test_an_address_to_reply_to_is_one_unless_liquid_makes_it(address: str) -> None:
    raw = {"subject": "s", "html": "h", "replyTo": address}
    findings = [] if address == "a@b\n" else [("bad_address", "/content/replyTo")]
    assert read("email", raw)[1] == findings


@pytest.mark.alone
@pytest.mark.parametrize("address", ["(a)" * 20_000 + "a@x.test", "a." * 30_000 + "a@x.test"])
def test_an_address_that_is_too_long_is_found_at_once(address: str) -> None:
    """Reading 6,000 characters of comments takes two thirds of a second, and twice as many four
    times as long: on the event loop of whoever saves a template."""
    began = thread_time()
    findings = read("email", {"subject": "s", "html": "h", "replyTo": address})[1]
    assert thread_time() - began < 0.1
    assert findings == [("bad_address", "/content/replyTo")]


def test_the_category_stands_in_inline_content_only() -> None:
    raw = {"text": "x", "category": "marketing"}
    assert read("sms", raw, more=content.CATEGORY) == (raw, [])
    assert read("sms", raw)[1] == [("unknown_field", "/content/category")]
    wrong = {"text": "x", "category": "spam"}
    assert read("sms", wrong, more=content.CATEGORY)[1] == [("wrong_type", "/content/category")]


def test_without_a_channel_whatever_some_channel_can_say_may_be_written() -> None:
    raw = {"subject": "s", "text": "t", "contentSid": SID}
    assert read(None, raw) == (raw, [])
    assert read(None, {"colour": "red"})[1] == [("unknown_field", "/content/colour")]


# --- rendering ----------------------------------------------------------------------------------


def test_only_html_is_escaped() -> None:
    email = content.render("email", {"html": NAME, "subject": NAME, "text": NAME}, FACTS)
    assert email.parts == {
        "subject": "Ada & <Bob>",
        "html": "Ada &amp; &lt;Bob&gt;",
        "text": "Ada & <Bob>",
    }
    assert content.render("sms", {"text": NAME}, FACTS).parts == {"text": "Ada & <Bob>"}


def test_variables_are_rendered_one_by_one_into_json() -> None:
    text = {"contentSid": SID, "variables": {"2": '"{{trigger.name}}"', "1": "{{trigger.no}}"}}
    message = content.render("whatsapp", text, FACTS)
    assert message.parts == {
        "contentSid": SID,
        "variables": '{"1":"","2":"\\"Ada & <Bob>\\""}',
    }
    assert message.missing == ("trigger.no",)


def test_what_the_parts_printed_in_vain_is_named_once_and_no_more_than_a_person_reads() -> None:
    text = {"subject": "{{trigger.a}}{{trigger.name}}", "html": "{{trigger.b}}{{trigger.a}}"}
    assert content.render("email", text, FACTS).missing == ("trigger.a", "trigger.b")
    many = {
        name: "".join(f"{{{{trigger.{name}{number}}}}}" for number in range(80))
        for name in ("subject", "html")
    }
    assert len(content.render("email", many, FACTS).missing) == 100


def test_what_cannot_be_rendered_names_its_part() -> None:
    with pytest.raises(content.PartError) as caught:
        content.render("sms", {"text": "{{ trigger.name | divided_by: 0 }}"}, FACTS)
    assert caught.value.part == "text"
    assert "line 1" in caught.value.message


def test_variables_are_listed_in_the_order_of_the_channel_whatever_order_a_database_gives() -> None:
    parts = {"subject": "{{trigger.b}}{{trigger.a}}", "html": "{{trigger.c}}{{trigger.a}}"}
    turned = dict(reversed(parts.items()))
    assert content.variables("email", parts) == ["trigger.b", "trigger.a", "trigger.c"]
    assert content.variables("email", turned) == content.variables("email", parts)
    named = {"contentSid": SID, "variables": {"2": "{{trigger.b}}", "1": "{{trigger.a}}"}}
    assert content.variables("whatsapp", named) == ["trigger.a", "trigger.b"]


def test_every_channel_has_parts_and_an_address() -> None:
    assert [*content.PARTS] == [*content.ADDRESS_FIELD] == [*content.CHANNELS]
