"""Whom a workspace's mail is from.

Our mail server signs for the domain of MAIL_FROM. All workspaces share it, and each has one address
on it, which it is given: whoever could choose one, or write as MAIL_FROM itself under any name,
would be the operator to the world.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from email.utils import parseaddr

from app.audience import addresses
from app.config.settings import Settings

PARTS = {"fromName": "from_name", "fromEmail": "from_email", "replyTo": "reply_to"}

# Mailboxes that readers trust: RFC 2142, and others that speak for a service itself.
ROLES = """
    abuse account accounts admin administrator alert alerts auth billing bounce compliance daemon
    ftp help helpdesk hostmaster info invoice legal login mail mailer marketing news noc noreply
    notice notification notifications official operator owner password passwords payment payments
    policy postmaster privacy register reply root sales secure security service services signin ssl
    staff support sys system team tidings trust update usenet uucp verification verify webmaster www
"""
LONGEST_SLUG = 30


@dataclass(frozen=True, slots=True)
class WorkspaceSender:
    """A workspace's ID and name, and the sender that it chose."""

    workspace_id: str
    workspace_name: str
    from_name: str | None
    from_email: str | None
    reply_to: str | None


def of(settings: Settings, sender: WorkspaceSender, *, through_operator: bool) -> dict[str, str]:
    """The parts of a message that say whom it is from. What was stored
    under other rules is judged anew. Without a `fromEmail` it is the channel's own sender."""
    chosen = {part: getattr(sender, column) for part, column in PARTS.items()}
    parts = {part: value for part, value in chosen.items() if value is not None}
    stored = parts.pop("fromEmail", None)
    foreign = stored is not None and not is_operators(settings, stored)
    if foreign and not (through_operator and settings.production):
        return {**parts, "fromEmail": stored}
    if stored is not None and stored.endswith(_tail(settings, sender.workspace_id)):
        return {**parts, "fromEmail": stored}  # given under a name that the workspace had before
    if settings.shared_sender if through_operator else stored is None:
        return parts
    given_now = given(settings, sender.workspace_id, sender.workspace_name)
    return {"fromName": sender.workspace_name, **parts, "fromEmail": given_now}


def given(settings: Settings, workspace_id: str, name: str) -> str:
    """The workspace's address on the operator's domain: its name, unless that would pass for
    somebody else's, and the end of its ID."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    slug = "-".join(words)[:LONGEST_SLUG].strip("-")
    if not slug or {*words, "".join(words)} & set(ROLES.split()):
        slug = "workspace"
    return f"{slug}{_tail(settings, workspace_id)}"


def is_operators(settings: Settings, address: str) -> bool:
    """Return whether an address is on the operator's domain."""
    return address.rpartition("@")[2] == _domain(settings)


def _tail(settings: Settings, workspace_id: str) -> str:
    return f"-{workspace_id[-8:]}@{_domain(settings)}"


def _domain(settings: Settings) -> str:
    ours = parseaddr(settings.mail_from)[1].rpartition("@")[2]
    return addresses.email(f"x@{ours}").key.rpartition("@")[2]
