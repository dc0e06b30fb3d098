"""Domains that a workspace claims: who signs in from there for the first time joins it.

An owner claims the domain of their own verified address. That does not prove that they speak for
the domain, and need not: others who have an address there, which the operator's provider of single
sign-on vouches for, find the workspace of a colleague instead of an empty one. Where anybody can
have an address, nobody is a colleague.
"""

from __future__ import annotations

import re

from app.audience import addresses
from app.audience.addresses import BadAddress
from app.audit import trail
from app.database.db import Handle
from app.errors import Duplicate, FieldError, Problem
from app.identity.identity import Member
from app.process import Process
from app.store import sign_in_domains, users

# Where anybody gets an address, under every country's suffix, such as yahoo.co.uk.
PUBLIC_NAMES = frozenset(
    {
        "aol", "gmail", "gmx", "googlemail", "hotmail", "live", "msn", "outlook", "protonmail",
        "rocketmail", "tutanota", "yahoo", "yandex", "ymail", "zoho", "zohomail",
    }
)  # fmt: skip
_SUFFIX = re.compile(r"(?:(?:co|com|ne|net|or|org)\.)?[a-z]{2,}")
PUBLIC_DOMAINS = frozenset(
    {
        "126.com", "163.com", "att.net", "bellsouth.net", "bk.ru", "bluewin.ch", "btinternet.com",
        "charter.net", "comcast.net", "cox.net", "duck.com", "email.cz", "fastmail.com",
        "fastmail.fm", "foxmail.com", "free.fr", "freenet.de", "hey.com", "hushmail.com",
        "icloud.com", "inbox.com", "inbox.lv", "inbox.ru", "interia.pl", "laposte.net",
        "libero.it", "list.ru", "mac.com", "mail.com", "mail.ru", "mailbox.org", "mailinator.com",
        "me.com", "naver.com", "o2.pl", "onet.pl", "orange.fr", "passport.com", "pm.me",
        "posteo.de", "privaterelay.appleid.com", "proton.me", "qq.com", "rambler.ru",
        "rediffmail.com", "sbcglobal.net", "seznam.cz", "sfr.fr", "shaw.ca", "sina.com", "sky.com",
        "t-online.de", "telenet.be", "telus.net", "tuta.com", "tuta.io", "tutamail.com",
        "uol.com.br", "verizon.net", "virgilio.it", "virginmedia.com", "wanadoo.fr", "web.de",
        "wp.pl", "ziggo.nl",
    }
)  # fmt: skip


async def claim(
    db: Handle, member: Member, text: str, role: str
) -> tuple[sign_in_domains.SignInDomain | None, sign_in_domains.SignInDomain]:
    """The claim before, and now. Raises Problem `invalid`, `forbidden`, `conflict`."""
    domain = normal(text)
    if is_public(domain):
        raise Problem("forbidden", f"Anybody can have an address at {domain}; invite people there.")
    user = await users.by_id(db, id=member.user_id)
    own = user is not None and user.email_verified_at is not None
    if user is None or not own or domain_of(user.email_key) != domain:
        raise Problem(
            "forbidden",
            f"Only an owner whose own address ends in @{domain}, and is verified, can claim it.",
        )
    before = await sign_in_domains.get(db, workspace_id=member.workspace_id, domain=domain)
    await sign_in_domains.release_dead(db, domain=domain)
    try:
        row = await sign_in_domains.put(
            db,
            workspace_id=member.workspace_id,
            domain=domain,
            role=role,
            claimed_by=member.user_id,
        )
    except Duplicate:
        raise Problem(
            "conflict",
            f"Another workspace has claimed {domain}: ask its owners to invite you, or the"
            " operator.",
        ) from None
    return before, row


async def release(process: Process, db: Handle, domain: str) -> sign_in_domains.SignInDomain | None:
    """The operator's, from the command line, with its entry in the workspace's audit trail."""
    row = await sign_in_domains.release(db, domain=domain)
    if row is not None:
        await trail.note(
            db,
            process.vault,
            trail.OPERATOR,
            workspace_id=row.workspace_id,
            action="sign_in_domain.released",
            resource_id=domain,
        )
    return row


def is_public(domain: str) -> bool:
    """Return whether anybody can get an address of the domain. The whole domain is compared:
    mail.acme.com is not."""
    name, _, suffix = domain.partition(".")
    is_named = name in PUBLIC_NAMES and _SUFFIX.fullmatch(suffix) is not None
    return is_named or domain in PUBLIC_DOMAINS


def normal(text: str) -> str:
    """Raises Problem `invalid`."""
    try:
        return domain_of(addresses.email(f"x@{text}").key)
    except BadAddress as error:
        sentence = f"Must be a domain, such as acme.com: {error}"
        raise Problem("invalid", sentence, errors=[FieldError("/domain", sentence)]) from None


def domain_of(email_key: str) -> str:
    return email_key.rpartition("@")[2]
