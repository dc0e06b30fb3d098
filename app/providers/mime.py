"""An e-mail as bytes, every header built from a checked value: content can never add one.

The header block is written here and not by the standard library, which in some patch releases of
Python turns an encoded line break inside a value into a new header (CVE-2024-6923).
"""

from __future__ import annotations

import binascii
import html
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parseaddr

import idna

from app.machine.plaintext import plain_text
from app.machine.text import replace_unstorable
from app.providers.base import Message, SendError
from app.providers.styling import inlined


@dataclass(frozen=True, slots=True)
class Address:
    local: str
    domain: str  # ASCII

    def __str__(self) -> str:
        return f"{self.local}@{self.domain}"


@dataclass(frozen=True, slots=True)
class Sender:
    """Whom a mail is from when its content does not say."""

    name: str
    address: Address

    @classmethod
    def parse(cls, text: str) -> Sender:
        """`hello@acme.com` or `Acme <hello@acme.com>`; ValueError with a sentence otherwise."""
        try:
            name, spec = parseaddr(text)
        except RecursionError:  # of hundreds of comments or groups within one another
            name = spec = ""
        address = _parse(spec)
        if address is None or _UNPRINTABLE.search(text):
            raise ValueError(
                f"“{text}” is not a sender: write it as hello@acme.com or as Acme <…>."
            )
        return cls(name, address)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    value: str  # as a person reads it
    wire: str  # as it travels


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail to one recipient; `encode` makes the bytes that travel."""

    sender: Address  # of the envelope: bounces go there
    recipient: Address
    subject: str
    text: str
    html: str | None
    headers: Mapping[str, str]  # as a person reads them
    head: str  # as they travel
    boundary: str

    @property
    def needs_smtputf8(self) -> bool:
        """RFC 6531: some address cannot be written in ASCII."""
        return not self.head.isascii()

    def encode(self) -> bytes:
        """CRLF everywhere, no line over 998 octets, and nothing outside ASCII in the body. The
        plainest alternative comes first (RFC 2046 §5.1.4)."""
        head, plain = f"{self.head}MIME-Version: 1.0\r\n", _part("plain", self.text)
        if self.html is None:
            return head.encode() + plain
        parts = (plain, _part("html", self.html))
        return (
            f'{head}Content-Type: multipart/alternative; boundary="{self.boundary}"\r\n\r\n'
            + "".join(f"--{self.boundary}\r\n{part.decode()}" for part in parts)
            + f"--{self.boundary}--\r\n"
        ).encode()


def compose(message: Message, default: Sender) -> Mail:
    """Raises SendError (rejected) when a value cannot stand in a header, or an address is none."""
    content = message.content
    from_email = content.get("fromEmail")
    sender = _address("from address", from_email) if from_email else default.address
    from_name = content.get("fromName") or ("" if from_email else default.name)
    recipient = _parse(message.to)
    if recipient is None:
        raise SendError("rejected", "invalid_address", "The recipient is not one e-mail address.")
    subject = _line("subject", _one_line(content.get("subject") or ""))
    reply_to = content.get("replyTo")

    fields = [
        _mailbox("From", _line("from name", _one_line(from_name)), sender),
        _plain("To", str(recipient)),
        Field("Subject", subject, _folded("Subject", _written(subject, subject))),
        _plain("Date", format_datetime(datetime.now(UTC))),
        _plain("Message-ID", f"<{message.message_key}@{sender.domain}>"),
        *_further(message.headers),
    ]
    if reply_to:
        fields.append(_plain("Reply-To", str(_address("reply-to address", reply_to.strip()))))
    text, markup = (replace_unstorable(content.get(part) or "") for part in ("text", "html"))
    styled = inlined(markup) if message.styled is None else message.styled
    return Mail(
        sender=default.address if sender.domain == default.address.domain else sender,
        recipient=recipient,
        subject=subject,
        text=text or plain_text(markup),
        html=_with_preheader(styled, content.get("preheader")) if markup else None,
        headers={field.name: field.value for field in fields},
        head="".join(f"{field.name}: {field.wire}\r\n" for field in fields),
        # RFC 2045 §6.7: "=_" stands in no quoted-printable text, and "=" alone ends base64.
        boundary=f"=_{message.message_key}",
    )


# --- values --------------------------------------------------------------------------------------

LONGEST_VALUE = 2_000

# Control characters and what some reader takes for a line break, and halves of surrogate pairs.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ENCODED_WORD = re.compile(r"=\?([\w.-]+)(?:\*[\w-]*)?\?([bBqQ])\?([^?]*)\?=")


# What separates words, and lines too: not the rest of what Python takes for white space.
_BETWEEN = re.compile(r"[ \t\n\v\f\r\x85\u2028\u2029]+")


def _one_line(value: str) -> str:
    """A value that a template prints may end with a line break, and means no more than a space."""
    return _BETWEEN.sub(" ", value).strip(" ")


def _line(what: str, value: str) -> str:
    """The value, if it is one line, and stays one when its encoded words (RFC 2047) are read."""
    if len(value) > LONGEST_VALUE:
        raise SendError(
            "rejected", "template_error", f"The {what} has more than {LONGEST_VALUE:,} characters."
        )
    readings = [value]
    for charset, encoding, payload in _ENCODED_WORD.findall(value):
        octets = payload.encode("utf-8", "replace")
        try:
            octets = (
                binascii.a2b_base64(octets + b"===")
                if encoding in "bB"
                else binascii.a2b_qp(octets, header=True)
            )
            known = "latin-1" if "escape" in charset.lower() else charset
            readings.append(octets.decode(known, "replace"))
        except (LookupError, ValueError):  # not a charset, or not in it: take what is there
            readings.append(octets.decode("latin-1"))
    if any(map(_UNPRINTABLE.search, readings)):
        raise SendError(
            "rejected",
            "template_error",
            f"The {what} has a line break or another control character in it: take it out of the"
            " template, or out of the value that the template prints.",
        )
    return value


def _plain(name: str, value: str) -> Field:
    return Field(name, value, value)


def _mailbox(name: str, display: str, address: Address) -> Field:
    if not display:
        return _plain(name, str(address))
    escaped = re.sub(r'(["\\])', r"\\\1", display)
    shown = f'"{escaped}"' if _SPECIAL.search(display) else display
    phrase = _written(display, f'"{escaped}"')
    return Field(name, f"{shown} <{address}>", _folded(name, [*phrase, f"<{address}>"]))


_SPECIAL = re.compile(r"""[][()<>:;@\\,."]""")  # RFC 5322 §3.2.3: bare, it would end the name


LINE = 78  # octets without the CRLF (RFC 5322 §2.1.1)
LONGEST_WORD = LINE - len("Subject: ")  # a longer one is encoded, which can be cut
ENCODED_LINE = 76  # one with an encoded word in it (RFC 2047 §2)


def _written(text: str, plain: str) -> list[str]:
    """The pieces between which a header may be folded: words, as they are in `plain`, or encoded
    ones (RFC 2047)."""
    words = plain.split(" ")
    if text.isascii() and "=?" not in text and max(map(len, words)) <= LONGEST_WORD:
        return words
    # Whole characters, up to 39 octets together: 64 once encoded, so 76 a line with the name.
    pieces = [b""]
    for character in text:
        octets = character.encode()
        if len(pieces[-1]) + len(octets) > 39:
            pieces.append(b"")
        pieces[-1] += octets
    return [f"=?utf-8?b?{b64encode(piece).decode()}?=" for piece in pieces]


def _folded(name: str, pieces: Sequence[str]) -> str:
    """The value, in lines as long as they may be (RFC 5322 §2.2.3)."""
    most = ENCODED_LINE if any(piece.startswith("=?") for piece in pieces) else LINE
    value, length = pieces[0], len(name) + len(": ") + len(pieces[0])
    for piece in pieces[1:]:
        fits = length + 1 + len(piece) <= most
        value += f" {piece}" if fits else f"\r\n {piece}"
        length = length + 1 + len(piece) if fits else 1 + len(piece)
    return value


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_OURS = re.compile(
    r"from|sender|to|cc|bcc|reply-to|subject|date|message-id|mime-version|received|return-path"
    r"|content-.*|resent-.*",
    re.IGNORECASE,
)


def _further(headers: Mapping[str, str]) -> Iterator[Field]:
    """Unfolded: a fold inside List-Unsubscribe breaks signatures and some readers."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or _OURS.fullmatch(name):
            raise SendError("rejected", "template_error", "A header may not have this name.")
        if not value.isascii() or len(name) + len(value) > 990:
            raise SendError(
                "rejected", "template_error", f"The header {name} must be short and plain ASCII."
            )
        yield _plain(name, _line(f"header {name}", value))


# --- addresses -----------------------------------------------------------------------------------

# RFC 5321 §4.1.2 Dot-string, with RFC 6531's characters. Quoted local parts are nobody's address.
_ATOM = r"[^\s\x00-\x20\x7f-\x9f\"(),.:;<>@\[\\\]\u2028\u2029\ud800-\udfff]+"
_LOCAL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def _parse(text: str) -> Address | None:
    local, at, domain = text.rpartition("@")
    # "=?…?=" is a legal local part, and some reader would decode it into another address.
    if not at or not _LOCAL.fullmatch(local) or "=?" in local:
        return None
    if len(local.encode()) > 64 or len(text) > 254:
        return None
    try:
        plain = domain.lower() if domain.isascii() else idna.encode(domain, uts46=True).decode()
    except idna.IDNAError:
        return None
    return Address(local, plain) if _DOMAIN.fullmatch(plain) else None


def _address(what: str, text: str) -> Address:
    address = _parse(text)
    if address is None:
        raise SendError("rejected", "template_error", f"The {what} is not one e-mail address.")
    return address


# --- bodies --------------------------------------------------------------------------------------


def _part(subtype: str, text: str) -> bytes:
    octets = re.sub(r"\r\n?|\n", "\r\n", text.rstrip("\r\n") + "\n").encode()
    # An octet outside ASCII takes three in quoted-printable; base64 takes 1.4 for every octet.
    foreign = len(octets) - len(octets.decode("ascii", "ignore"))
    if foreign * 5 > len(octets):
        lines = (b64encode(octets[at : at + 57]) for at in range(0, len(octets), 57))
        encoding, encoded = "base64", b"".join(line + b"\r\n" for line in lines)
    else:
        encoding, encoded = "quoted-printable", binascii.b2a_qp(octets, istext=True)
    head = f"Content-Type: text/{subtype}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}"
    return head.encode() + b"\r\n\r\n" + encoded


_BODY_TAG = re.compile(r"<body(?:\s[^<>]*+)?>", re.IGNORECASE)
_DOCTYPE = re.compile(r"\s*+(?:<!doctype[^<>]*+>)?", re.IGNORECASE)
_PREHEADER = (
    '<div style="display:none;max-height:0;overflow:hidden;opacity:0;mso-hide:all">{}</div>'
)


def _with_preheader(markup: str, preheader: str | None) -> str:
    """The line that mail lists show after the subject, hidden at the top of the body."""
    if not preheader:
        return markup
    before = _BODY_TAG.search(markup) or _DOCTYPE.match(markup)
    at = before.end() if before else 0
    return markup[:at] + _PREHEADER.format(html.escape(_one_line(preheader))) + markup[at:]
