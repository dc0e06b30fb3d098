"""A mail's bytes, read back by the standard library, which shares no line with the writer."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.utils import parseaddr
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.machine.content import PARTS
from app.machine.reasons import Reason
from app.providers.base import SendError
from app.providers.mime import Sender, compose
from tests.examples import examples
from tests.present import present
from tests.receivers import letter, text_of

ACME = Sender.parse("Acme <hello@acme.test>")

ALWAYS = ["From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type"]


def parsed(**content: Any) -> EmailMessage:
    return message_from_bytes(compose(letter(**content), ACME).encode(), policy=policy.default)


def refused(**content: Any) -> SendError:
    with pytest.raises(SendError) as caught:
        compose(letter(**content), ACME)
    assert caught.value.outcome == "rejected"
    assert caught.value.code in set(Reason)
    return caught.value


# --- what is there --------------------------------------------------------------------------------


def test_a_mail_has_exactly_the_headers_that_it_needs() -> None:
    assert parsed().keys() == ALWAYS


@pytest.mark.parametrize("part", PARTS["email"])
def test_every_part_that_a_template_may_have_reaches_the_mail(part: str) -> None:
    sent = compose(letter({part: "some@words.test"}), ACME)
    assert "some@words.test" in f"{sent.headers} {sent.text} {sent.html}"


def test_further_headers_come_only_when_asked_for() -> None:
    mail = parsed(replyTo="help@acme.test", headers={"List-Unsubscribe": "<https://x.test/u/1>"})
    assert set(mail.keys()) == {*ALWAYS, "Reply-To", "List-Unsubscribe"}
    assert mail["Reply-To"] == "help@acme.test"
    assert mail["List-Unsubscribe"] == "<https://x.test/u/1>"


def test_the_message_id_is_the_key_at_the_senders_domain_on_every_try() -> None:
    first, second = parsed(key="f00d"), parsed(key="f00d")
    assert first["Message-ID"] == second["Message-ID"] == "<f00d@acme.test>"


def test_a_long_list_unsubscribe_stays_on_one_line() -> None:
    """Folded, it breaks signatures and some readers."""
    link = f"<https://x.test/u/{'t' * 400}>"
    assert (
        f"List-Unsubscribe: {link}\r\n"
        in compose(letter(headers={"List-Unsubscribe": link}), ACME).encode().decode()
    )


def test_the_plainest_alternative_comes_first() -> None:
    mail = parsed(html="<p>Hi <b>Ada</b></p>", text="Hi, Ada")
    text, markup = mail.iter_parts()
    assert mail.get_content_type() == "multipart/alternative"
    assert (text.get_content_type(), text.get_content().strip()) == ("text/plain", "Hi, Ada")
    assert markup.get_content_type() == "text/html"
    assert markup.get_content().strip() == "<p>Hi <b>Ada</b></p>"


@pytest.mark.parametrize("text", [None, ""])
def test_text_that_is_absent_is_derived(text: str | None) -> None:
    mail = parsed(html='<p>Hi</p><a href="https://x.test">Go</a>', text=text)
    assert text_of(mail, "plain").split() == ["Hi", "Go", "(https://x.test)"]


def test_a_mail_without_html_has_one_part() -> None:
    mail = parsed(html=None, text="Only words")
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().strip() == "Only words"


def test_what_is_kept_is_what_is_sent() -> None:
    mail = compose(letter(html="<p>Grüße</p>", subject="Grüße", fromName="Zoë"), ACME)
    sent = message_from_bytes(mail.encode(), policy=policy.default)
    assert text_of(sent, "html").strip() == mail.html
    assert text_of(sent, "plain").strip() == mail.text
    assert {name: sent[name] for name in mail.headers} == dict(mail.headers)


# --- the sender -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sender"),
    [
        ({}, "Acme <hello@acme.test>"),
        ({"fromName": "Ada"}, "Ada <hello@acme.test>"),
        ({"fromEmail": "shop@corp.test"}, "shop@corp.test"),
        ({"fromEmail": "shop@corp.test", "fromName": "Shop"}, "Shop <shop@corp.test>"),
        ({"fromName": 'O\'Neil, "Ann" \\ Co. <x@y.test>'}, None),
        ({"fromName": "Zoë, Ünal"}, None),
        ({"fromName": "a long name that goes on and on " * 4}, None),
    ],
)
def test_the_sender_is_the_contents_else_the_default(
    content: dict[str, Any], sender: str | None
) -> None:
    mail = parsed(**content)
    (mailbox,) = mail["From"].addresses
    if sender is None:
        assert mailbox.display_name == content["fromName"].strip()
        assert mailbox.addr_spec == "hello@acme.test"
    else:
        assert mail["From"] == sender


NO_SENDERS = (
    *("", "acme.test", "a@b@c", "Acme", "A <a@x.test\nBcc:y@z>"),
    *("(" * 2_000, "a:" * 2_000),
)


@pytest.mark.parametrize("text", NO_SENDERS)
def test_a_default_sender_that_is_no_address_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="not a sender: write it as"):
        Sender.parse(text)


# --- nothing can be injected ----------------------------------------------------------------------

BREAKS = [
    "a\r\nBcc: eve@evil.test", "a\nBcc: eve@evil.test", "a\rBcc: eve@evil.test", "a\r\n\tb",
    "a\x0bb", "a\x0cb", "a\tb", "trailing\n", "a\N{NEXT LINE}Bcc: eve@evil.test",
    "a\N{LINE SEPARATOR}b", "a\N{PARAGRAPH SEPARATOR}b",
]  # fmt: skip
TRICKS = [
    "a\x00b", "a\x1cb", "a\x1fb", "a\x7fb", "a\x9fb", "a\n\x00b", "a\n=?utf-8?q?=0ABcc:x?=",
    "half \ud83d of a pair",
    "=?utf-8?q?a=0ABcc:_eve@evil.test?=",           # CVE-2024-6923
    "=?utf-8?q?a=0D=0ABcc:_eve@evil.test?=", "x =?UTF-8*en?Q?=0a?= y", "=?iso-8859-1?q?a=0A?=",
    "=?utf-8?b?YQpCY2M6IGV2ZUBldmlsLnRlc3Q=?=", "=?utf-8?b?YQpCY2M6IGV2ZUBldmlsLnRlc3Q?=",
    "=?utf-7?q?a+AAo-Bcc:?=", "=?utf-8?q?=E2=80=A8?=", "=?no-such-charset?q?=0A?=",
    "=?unicode_escape?q?=5Cn=0A?=", "=?utf-16-be?b?AGEACgBi?=", "=?utf-8?q?a b=0Ac?=",
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS, ids=ascii)
@pytest.mark.parametrize("part", ["subject", "fromName", "fromEmail", "replyTo"])
def test_a_control_character_is_refused_before_and_after_decoding(part: str, trick: str) -> None:
    assert refused(**{part: trick}).code == "template_error"


@pytest.mark.parametrize("value", BREAKS, ids=ascii)
def test_white_space_and_line_breaks_become_one_space(value: str) -> None:
    mail = compose(letter(subject=value, fromName=value, preheader=value), ACME)
    [*words] = value.split()
    assert (mail.subject, mail.headers["From"].split(" <")[0].strip('"')) == (" ".join(words),) * 2
    read = message_from_bytes(mail.encode(), policy=policy.default)
    assert read.keys() == ALWAYS
    assert read["Subject"] == " ".join(words)
    assert f">{' '.join(words)}</div>" in (mail.html or "")


@pytest.mark.parametrize("value", BREAKS, ids=ascii)
@pytest.mark.parametrize("part", ["fromEmail", "replyTo"])
def test_an_address_of_two_lines_is_refused(part: str, value: str) -> None:
    assert refused(**{part: value}).code == "template_error"


@pytest.mark.parametrize("trick", [*BREAKS, *TRICKS], ids=ascii)
def test_a_further_header_is_checked_likewise(trick: dict[str, Any]) -> None:
    assert refused(headers={"List-Unsubscribe": trick}).code == "template_error"


@pytest.mark.parametrize(
    "name", ["Bcc", "bcc", "To", "Content-Type", "Resent-To", "Bcc: x\r\nX", "X Y", "", "Zoë"]
)
def test_a_further_header_cannot_be_one_of_ours(name: str) -> None:
    assert refused(headers={name: "eve@evil.test"}).code == "template_error"


@pytest.mark.parametrize("value", ["x" * 2_000, "naïve"])
def test_a_further_header_must_fit_on_a_line_as_it_is(value: str) -> None:
    assert refused(headers={"X-Note": value}).code == "template_error"


def test_an_endless_subject_is_refused() -> None:
    assert refused(subject="x" * 2_001).code == "template_error"


@pytest.mark.parametrize(
    "to",
    [
        "", "ada", "@acme.test", "ada@", "ada@acme..test", "ada@-acme.test", "a..b@acme.test",
        ".a@acme.test", "ada@acme.test>\r\nRCPT TO:<eve@evil.test",
        "ada@acme.test\nBcc: eve@evil.test", "ada@acme.test,eve@evil.test",
        "ada@acme.test, eve@evil.test", "ada@acme.test;eve@evil.test", "<ada@acme.test>",
        "Ada <ada@acme.test>", "all: ada@acme.test, eve@evil.test;",
        '"ada@acme.test eve"@evil.test', '"a"@acme.test', "ada@acme.test eve@evil.test",
        "ada @acme.test", "ada@[127.0.0.1]", "ada(comment)@acme.test", "ada@acme.test SIZE=1",
        "ada\x00@acme.test", "=?utf-8?q?eve=40evil.test=3E?=@acme.test",
        "ada@acme.test\N{LINE SEPARATOR}", "ada\N{NO-BREAK SPACE}@acme.test",
        "ada@" + "a" * 64 + ".test", "a" * 65 + "@acme.test", "ada@exa mple.test",
        "ada@münchen..test", "ada@\N{ZERO WIDTH SPACE}", "ada\ud83d@acme.test",
    ],
    ids=ascii,
)  # fmt: skip
def test_a_recipient_is_exactly_one_address(to: str) -> None:
    assert refused(to=to).code == "invalid_address"


@pytest.mark.parametrize(
    ("to", "travels", "utf8"),
    [
        ("ada@acme.test", "ada@acme.test", False),
        ("Ada.Love+tag_x'y@Acme.TEST", "Ada.Love+tag_x'y@acme.test", False),
        ("root@localhost", "root@localhost", False),
        ("ada@münchen.test", "ada@xn--mnchen-3ya.test", False),
        ("ada@straße.test", "ada@xn--strae-oqa.test", False),  # IDNA 2008: not strasse.test
        ("zoë@acme.test", "zoë@acme.test", True),
    ],
)
def test_a_recipient_travels_with_its_domain_in_ascii(to: str, travels: str, utf8: bool) -> None:
    mail = compose(letter(to=to), ACME)
    assert (str(mail.recipient), mail.needs_smtputf8) == (travels, utf8)
    assert f"To: {travels}\r\n" in mail.head


PRINTABLE = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=300)


def decoded(value: str) -> str:
    """Decode by the older of the standard library's two readers: the newer one drops spaces on
    folds."""
    return str(make_header(decode_header(value)))


@examples(100)
@given(subject=PRINTABLE, name=PRINTABLE)
@example(subject="=?utf-8?q?literally?=", name="=?utf-8?b?eA==?=")
@example(subject="  two  spaces  ", name=" , ; <x@y.test> ")
@example(subject="word " * 100, name="x" * 300)
def test_any_printable_subject_and_name_are_read_back_exactly(subject: str, name: str) -> None:
    raw = compose(letter(subject=subject, fromName=name), ACME).encode()
    mail = message_from_bytes(raw, policy=policy.compat32)
    assert mail.keys() == ALWAYS
    assert decoded(re.sub(r"\r\n(?=[ \t])", "", mail["Subject"])) == spaced(subject)
    read_name, address = parseaddr(re.sub(r"\r\n(?=[ \t])", "", mail["From"]))
    assert address == "hello@acme.test"
    assert decoded(read_name) == (spaced(name) or ("" if name else "Acme"))


def spaced(text: str) -> str:
    return re.sub(" +", " ", text).strip(" ")


@examples(100)
@given(subject=PRINTABLE, name=PRINTABLE)
@example(subject="word " * 100, name="word " * 50)
@example(subject="x" * 70, name="y" * 57)
def test_a_header_is_folded_where_it_is_too_long_and_only_there(subject: str, name: str) -> None:
    mail = compose(letter(subject=subject, fromName=name), ACME)
    for line in mail.head.split("\r\n"):
        assert len(line) <= 78
        assert len(line) <= 76 or "=?" not in line or line.startswith(("To:", "Message-ID"))
    for header in ("Subject", "From"):
        [wire] = re.findall(rf"(?m)^({header}: .*(?:\r\n .*)*)\r$", mail.head)
        lines = wire.split("\r\n")
        for line, after in itertools.pairwise(lines):  # the next word would not have fitted
            assert len(line) + len(" ".join(after.split(" ")[:2])) > 76


@pytest.mark.parametrize(
    ("subject", "name", "expected"),
    [
        ("Welcome to Acme", "Acme", 'From: "Acme" <hello@acme.test>\r\n'),
        ("Welcome to Acme", "Acme", "Subject: Welcome to Acme\r\n"),
        (f"{'x' * 60} {'y' * 8}", "Acme", f"Subject: {'x' * 60} {'y' * 8}\r\n"),
        (f"{'x' * 60} {'y' * 9}", "Acme", f"Subject: {'x' * 60}\r\n {'y' * 9}\r\n"),
        ("Grüße", "Zoë", "Subject: =?utf-8?b?R3LDvMOfZQ==?=\r\n"),
        ("Grüße", "Zoë", "From: =?utf-8?b?Wm/Dqw==?= <hello@acme.test>\r\n"),
    ],
)
def test_what_fits_is_on_one_line(subject: str, name: str, expected: str) -> None:
    assert expected in compose(letter(subject=subject, fromName=name), ACME).head


# --- bodies ---------------------------------------------------------------------------------------


@examples(100)
@given(st.text(max_size=2_000))
def test_any_body_travels_in_short_ascii_lines_and_is_read_back(text: str) -> None:
    mail = compose(letter(text=text or "-", html=f"<p>{text}</p>"), ACME)
    raw = mail.encode()
    lines = raw.split(b"\r\n")
    assert raw.isascii()
    assert all(len(line) <= 76 for line in lines)
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    read = message_from_bytes(raw, policy=policy.default)
    for part, sent in (("plain", mail.text), ("html", mail.html)):
        assert unix(text_of(read, part)) == unix(present(sent))


def unix(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text).rstrip("\n")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain words", "quoted-printable"),
        ("Viele Grüße aus der alten Stadt am Rhein, aus Köln", "quoted-printable"),
        ("你好" * 50, "base64"),
    ],
)  # fmt: skip
def test_the_encoding_is_the_shorter_one(text: str, encoding: str) -> None:
    mail = parsed(html=None, text=text)
    assert mail["Content-Transfer-Encoding"] == encoding
    assert mail.get_content().strip() == text


def test_what_is_no_character_is_replaced() -> None:
    """JSON can spell NUL and halves of surrogate pairs; PostgreSQL and UTF-8 cannot."""
    mail = compose(letter(text="a\x00b\ud83dc", html="<p>\x00</p>"), ACME)
    assert (mail.text, mail.html) == ("a\ufffdb\ufffdc", "<p>\ufffd</p>")


def test_no_text_can_end_its_part() -> None:
    """A boundary holds `=_`, which quoted-printable never does."""
    mail = compose(letter(text="--=_0123abcd--\r\n\r\nx", html="<p>--=_0123abcd</p>"), ACME)
    read = message_from_bytes(mail.encode(), policy=policy.default)
    assert len(list(read.iter_parts())) == 2
    assert "--=_0123abcd--" in text_of(read, "plain")


@pytest.mark.parametrize(
    ("styled", "shown"), [(None, '<p style="color: red;">Hi</p>'), ("<p>Hi</p>", "<p>Hi</p>")]
)
def test_style_sheets_are_written_into_elements_unless_they_were_before(
    styled: str | None, shown: str
) -> None:
    message = letter(html="<style>p { color: red }</style><p>Hi</p>")
    mail = compose(replace(message, styled=styled), ACME)
    assert mail.html is not None
    assert shown in mail.html
    assert ("<style>" in mail.html) == (styled is None)


@pytest.mark.parametrize(
    ("markup", "before"),
    [
        ('<html><BODY class="x"><p>Hi</p></BODY></html>', '<html><BODY class="x">'),
        ("<!DOCTYPE html><p>Hi</p>", "<!DOCTYPE html>"),
        ("<p>Hi</p>", ""),
    ],
)
def test_a_preheader_is_hidden_at_the_top_of_the_body(markup: str, before: str) -> None:
    mail = compose(letter(html=markup, preheader="50 % <off> & more"), ACME)
    assert mail.html is not None
    assert mail.html.startswith(f'{before}<div style="display:none')
    assert "50 % &lt;off&gt; &amp; more</div>" in mail.html
    assert mail.text == "Hi"
