"""Parsers of environment variables: text → value.

A ValueError ends the sentence "NAME must be …".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from email.utils import parseaddr
from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import SplitResult, urlsplit

SECRET_KEY_CHARACTERS = 32


def whole(low: int, high: int) -> Callable[[str], int]:
    def cast(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,15}", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return cast


def one_of(*names: str) -> Callable[[str], str]:
    def cast(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(" or ".join(names))
        return text.lower()

    return cast


_SWITCH = {"1": True, "true": True, "yes": True, "on": True}
_SWITCH |= {"0": False, "false": False, "no": False, "off": False}


def switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError("on or off")
    return _SWITCH[text.lower()]


def _split(text: str, sentence: str) -> SplitResult:
    """urlsplit that reads the port too: the one part it only checks when asked."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ValueError(sentence) from None
    if re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError(sentence)
    return parts


def database_url(text: str) -> str:
    """`postgres://`, as Heroku gives it, is an old name of `postgresql://`. Of several hosts, the
    one that accepts writes is used."""
    sentence = (
        "postgresql://user:password@host/name, postgresql://…@host1:5432,host2:5432/name, or"
        " sqlite:///path/to/file.db"
    )
    netloc = re.sub(r"^\w+://|[/?#].*$", "", text)
    user, at, hosts = netloc.rpartition("@")
    if "" in hosts.split(",")[1:]:
        raise ValueError(sentence)
    for host in hosts.split(","):
        parts = _split(text.replace(netloc, f"{user}{at}{host}", 1), sentence)
    if parts.scheme in {"postgres", "postgresql"} and len(parts.path) > 1:
        return "postgresql" + text[len(parts.scheme) :]
    is_file = parts.path not in ("", "/", "/:memory:")  # in memory two connections share nothing
    if parts.scheme == "sqlite" and is_file and not parts.netloc and not parts.query:
        return text
    raise ValueError(sentence)


def redis_url(text: str) -> str:
    sentence = "redis://host:6379/0, rediss://… for TLS, or unix:///path/to/socket"
    parts = _split(text, sentence)
    if parts.scheme == "unix" and len(parts.path) > 1:
        return text
    if parts.scheme in {"redis", "rediss"} and parts.hostname:
        return text
    raise ValueError(sentence)


def _plain_url(text: str, sentence: str) -> str:
    """Check that a URL is HTTP, with a host and without credentials, query or fragment. Raises
    ValueError with the sentence."""
    parts = _split(text, sentence)
    extras = (parts.username, parts.password, parts.query, parts.fragment)
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(extras):
        raise ValueError(sentence)
    return text


def base_url(text: str) -> str:
    sentence = "the public address, such as https://tidings.example.com, without query or fragment"
    return _plain_url(text, sentence).rstrip("/")


def issuer(text: str) -> str:
    """Kept to the letter: the provider's tokens name themselves after it (OpenID Connect §2)."""
    sentence = "an issuer's URL, such as https://accounts.example.com, without query or fragment"
    return _plain_url(text, sentence)


def word(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise ValueError("printable ASCII characters")
    return text


def smtp_url(text: str) -> str:
    sentence = (
        "smtp://user:password@host:587 (with ?starttls=required, auto or off), or smtps://…:465"
    )
    parts = _split(text, sentence)
    options = {"", "starttls=required", "starttls=auto", "starttls=off"}
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname or parts.query not in options:
        raise ValueError(sentence)
    return text


def pattern(pattern: str, sentence: str) -> Callable[[str], str]:
    def cast(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(sentence)
        return text

    return cast


SERVICE = r"MG[0-9a-f]{32}"  # the SID of a messaging service of Twilio's
# Base64 of 12 to 98 bytes, with its padding or without (RFC 4648 §4).
_BASE64 = r"(?:[A-Za-z0-9+/]{4}){4,32}(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?"
SIGNING_SECRET = rf"whsec_{_BASE64}"
E164 = r"\+[1-9][0-9]{6,14}"
SHORT_CODE = r"[0-9]{3,8}"
SENDER_NAME = r"(?=.*[A-Za-z])[A-Za-z0-9 ]{1,11}"


def mail_from(text: str) -> str:
    _, address = parseaddr(text)
    local, at, domain = address.rpartition("@")
    if not (local and at and domain) or not text.isprintable():
        raise ValueError("an address such as hello@example.com, or Name <hello@example.com>")
    return text


def origins(text: str) -> tuple[str, ...]:
    """Origins as browsers write them (RFC 6454 §6.2): lower case, no path, no port that goes
    without."""
    found = []
    for part in filter(None, map(str.strip, text.lower().split(","))):
        match = _ORIGIN.fullmatch(part)
        if match is None:
            raise ValueError("origins separated by commas, such as https://app.example.com")
        usual = {"http": ":80", "https": ":443"}[match["scheme"]]
        found.append(match["site"] + ("" if match["port"] in (usual, None) else match["port"]))
    return tuple(found)


_ORIGIN = re.compile(
    r"(?P<site>(?P<scheme>https?)://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\]))(?P<port>:\d{1,5})?/?",
    re.ASCII,
)


def networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    sentence = "networks separated by commas, such as 10.1.2.0/24 or fd00:1::/64"
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            network = ip_network(part)
        except ValueError as error:
            raise ValueError(sentence) from error
        if network.prefixlen < (8 if network.version == 4 else 7):
            raise ValueError(f"{sentence}; {network} is larger than any private network")
        found.append(network)
    return tuple(found)


def secret_keys(text: str) -> tuple[str, ...]:
    keys = tuple(key.strip() for key in text.split(","))
    if any(len(key) < SECRET_KEY_CHARACTERS for key in keys):
        raise ValueError(
            f"at least {SECRET_KEY_CHARACTERS} random characters, or several such keys separated"
            " by commas, the newest first (openssl rand -base64 48 generates one)"
        )
    return keys


def host(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9.:_-]+", text):
        raise ValueError("an address to listen on, such as 127.0.0.1, 0.0.0.0 or ::")
    return text
