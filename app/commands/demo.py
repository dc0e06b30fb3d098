"""The demo workspace of a sandbox: seeded once, and a signed curl to try it with."""

from __future__ import annotations

import hmac
import secrets
import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.accounts import registration as accounts
from app.accounts import sign_in_links
from app.audience import addresses
from app.audit.trail import Where
from app.config.settings import LOOPBACK, Settings
from app.database.db import new_id
from app.definitions import activation
from app.definitions.activation import Draft
from app.identity import keyring
from app.machine.categories import TRANSACTIONAL
from app.process import Process
from app.store import definitions, memberships, templates, users
from app.vault import tokens
from app.web import console_files

OWNER = addresses.email("demo@tidings.example")
NAME = "Welcome a new customer"

# As its sender writes it: 83.40 arrives as 83.40.
EVENT = b"""{"type": "order.created", "data": {"email": "ada@example.com", "name": "Ada",
  "order": {"number": "A-1043", "total": 83.40, "currency": "EUR",
            "items": [{"title": "Assam 250 g"}]}}}"""

TEMPLATE = {
    "subject": "Thank you for order {{trigger.data.order.number}}",
    "html": """<h1>Hello {{contact.firstName | default: "there"}},</h1>
<p>your order <b>{{trigger.data.order.number}}</b> of {{trigger.data.order.items[0].title}}
came to {{trigger.data.order.total}} {{trigger.data.order.currency}}.</p>""",
}

TRIGGER = {
    "source": "inbound_webhook",
    "contactLookup": "email",
    "contactPath": "data.email",
    "createContact": True,
    "contactDefaults": {"firstName": "{{trigger.data.name}}", "tags": ["customer"]},
}


@dataclass(frozen=True, slots=True)
class Demo:
    webhook_url: str
    signing_secret: str
    api_key: str

    def curl(self) -> str:
        """Ready to paste: one event, signed as its sender would."""
        signature = hmac.digest(self.signing_secret.encode(), EVENT, "sha256").hex()
        return " \\\n  ".join(
            (
                f"curl -sS {shlex.quote(self.webhook_url)}",
                "-H 'Content-Type: application/json'",
                f"-H 'X-Service-Signature: sha256={signature}'",
                f"--data-binary {shlex.quote(EVENT.decode())}",
            )
        )


async def seed(process: Process) -> Demo | None:
    """The demo workspace, made now if there is none yet; None while its workflow starts no run.

    Key and secret come from the data key, so they can be shown again without being stored.
    """
    api_key = keyring.new_key(process.settings.environment, _drawn(process, "demo api key", 30))
    signing_secret = _drawn(process, "demo signing secret", 32)
    async with process.database.read() as db:
        user = await users.by_email(db, email_key=OWNER.key)
    if user is None:
        await _make(process, api_key, signing_secret)
    async with process.database.read() as db:
        user = await users.by_email(db, email_key=OWNER.key)
        workspace = user and await memberships.workspace(db, user_id=user.id, workspace_id=None)
        if not workspace:
            return None
        rows = await definitions.page(
            db,
            workspace_id=workspace.id,
            shape="steps",
            filters={"state": "ACTIVE", "name": NAME},
            before=None,
            limit=1,
        )
    if not rows or rows[0].token is None:
        return None
    url = f"{process.settings.base_url}/v1/webhooks/in/{rows[0].token}"
    return Demo(url, signing_secret, api_key)


async def console_link(process: Process) -> str | None:
    """Sign the demo's owner in to the console, once, by a link. None where there is no console, or
    where the link would leave this machine."""
    settings = process.settings
    is_here = urlsplit(settings.base_url).hostname in LOOPBACK
    if settings.production or not (settings.console and is_here and console_files.load().page):
        return None
    async with process.database.read() as db:
        user = await users.by_email(db, email_key=OWNER.key)
        home = user and await memberships.workspace(db, user_id=user.id, workspace_id=None)
    if not user or not home:
        return None
    token = await sign_in_links.token(process, home.id, user.id)
    return f"{settings.base_url}/console/#sign-in={token}"


def welcome(settings: Settings, seeded: Demo | None, link: str | None = None) -> str:
    """The text for the operator, once the process runs."""
    at = settings.base_url
    if settings.production:
        return f"Tidings runs at {at}."
    file = settings.database_url.removeprefix("sqlite:///")
    kept = f" The database is {file}." if settings.sqlite else ""
    console = f"\nOpen the console (this signs you in, once):\n\n   {link}\n" if link else ""
    begin = f"""
Tidings runs at {at}. This is a sandbox: messages are captured, not sent.
{console}"""
    if seeded is None:
        return f"""{begin}
There is no event to try: no active workflow is called "{NAME}" any more.

Stop with Ctrl-C.{kept}
"""
    return f"""{begin}
1. Send an event, as an online shop would:

{seeded.curl()}

2. See the resulting message at {at}/sandbox, or:

   curl -sS {at}/sandbox/messages -H 'Authorization: Bearer {seeded.api_key}'

3. Take the tour in README.md, with:

   KEY={seeded.api_key}
   API={at}

Stop with Ctrl-C.{kept}
"""


async def _make(process: Process, api_key: str, signing_secret: str) -> None:
    user, signed_in = await accounts.register(
        process,
        Where(None, "python -m app demo"),
        email=OWNER,
        password=secrets.token_urlsafe(24),  # nobody signs in: the key is the way in
        name="Demo",
        workspace_name="Demo",
    )
    workspace_id = signed_in.workspace.id
    async with process.database.write() as db:
        await keyring.create(
            process,
            db,
            workspace_id=workspace_id,
            made_by=user.id,
            name="Demo",
            role="owner",
            key=api_key,
        )
        template = await templates.insert(
            db,
            workspace_id=workspace_id,
            id=new_id("tpl"),
            name="Thank you for your order",
            channel="email",
            category=TRANSACTIONAL,
            content=TEMPLATE,
        )
        steps = [
            {
                "type": "branch",
                "cases": [
                    {
                        "when": {"path": "trigger.data.order.total", "op": "gte", "value": 50},
                        "steps": [{"type": "add_tag", "tag": "big-spender"}],
                    }
                ],
            },
            {"type": "send_message", "channel": "email", "templateId": template.id},
        ]
        await activation.create(
            process,
            db,
            workspace_id,
            "steps",
            Draft(NAME, "ACTIVE", TRIGGER, steps, signing_secret),
        )


def _drawn(process: Process, purpose: str, length: int) -> str:
    """Characters of base62 that only this installation can compute."""
    return tokens.derived(process.vault.keyed_hash(purpose, b""), length)
