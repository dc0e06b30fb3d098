"""Mail about an account: an invitation, a new password, an address to be verified.

They go out as every message does, with its intent, outcome and record. What they hold is a key to
an account, so it is sealed until it has gone out, and the record keeps the subject alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from app.database.db import Handle
from app.identity.identity import Member
from app.messages import create
from app.process import Process

INVITATION = "invitation"
OWNER_INVITATION = "owner_invitation"  # not for those who may make no owners
PASSWORD_RESET = "password_reset"  # noqa: S105 - the kind of a mail
EMAIL_VERIFICATION = "email_verification"
SIGN_ON = "single sign-on by mail"  # the purpose that the vault signs for

INVITED = {
    "subject": "{{trigger.inviter}} invites you to {{trigger.workspace}}",
    "html": """<p>Hello,</p>
<p>{{trigger.inviter}} invites you to join {{trigger.workspace}} as {{trigger.role}}. Accept or
decline here:</p>
<p><a href="{{trigger.link}}">{{trigger.link}}</a></p>
{% if trigger.signOn != "" %}<p>With single sign-on, accept here instead:</p>
<p><a href="{{trigger.signOn}}">{{trigger.signOn}}</a></p>
{% endif %}<p>The link works once, for {{trigger.lifetime}}. If you did not expect this
invitation, you can ignore this e-mail.</p>""",
}
CONTENTS: Mapping[str, Mapping[str, str]] = {
    INVITATION: INVITED,
    OWNER_INVITATION: INVITED,
    PASSWORD_RESET: {
        "subject": "Choose a new password",
        "html": """<p>{{trigger.greeting}}</p>
<p>somebody, perhaps you, asked to reset your password. Choose a new one here:</p>
<p><a href="{{trigger.link}}">{{trigger.link}}</a></p>
<p>The link works once, for {{trigger.lifetime}}. If it was not you, you can ignore
this e-mail: your password stays as it is.</p>""",
    },
    EMAIL_VERIFICATION: {
        "subject": "Is this your address?",
        "html": """<p>{{trigger.greeting}}</p>
<p>an account was created with this address. If that was you, confirm it here:</p>
<p><a href="{{trigger.link}}">{{trigger.link}}</a></p>
<p>The link works for {{trigger.lifetime}}. If it was not you, you can ignore
this e-mail.</p>""",
    },
}


LONGEST_NAME = 60  # in a subject line beside another name and five words
# What programs make a link of: a scheme, www., a domain, a numeric address, a mailbox.
LINK = re.compile(
    r"://|\bwww\b|@|[\w-][.\u3002\uff0e\uff61][^\W\d_]{2,}|\d+(?:\.\d+){3}", re.IGNORECASE
)


def called(name: str, otherwise: str) -> str:
    """A name as it stands in a mail to somebody who may not know who chose it: `otherwise` where
    it reads as an address on the internet, and cut where it is long."""
    visible = "".join(one for one in name if unicodedata.category(one) != "Cf")
    if LINK.search(unicodedata.normalize("NFKC", visible)):
        return otherwise
    return visible if len(visible) <= LONGEST_NAME else f"{visible[: LONGEST_NAME - 1].rstrip()}…"


def greeting(name: str) -> str:
    known = called(name, "")
    return f"Hello {known}," if known else "Hello,"


async def send(
    process: Process,
    db: Handle,
    kind: str,
    *,
    workspace_id: str,
    to: str,
    token: str,
    addressee_id: str | None = None,
    **words: str,
) -> None:
    """Filed in a workspace, written to one address. An invitation has no addressee: those who
    manage the members may read it."""
    page = INVITATION if kind == OWNER_INVITATION else kind
    # The token stands behind the #, which no browser sends: it is in no server's log.
    link = f"{process.settings.base_url}/account#{page}&token={token}"
    await create.create(
        process,
        db,
        create.Order(
            workspace_id=workspace_id,
            channel="email",
            contact_id=None,
            to=to,
            template_id=None,
            content=CONTENTS[kind],
            data={**words, "link": link},
            account_mail=kind,
            addressee_id=addressee_id,
        ),
    )


def sign_on_url(process: Process, workspace_id: str) -> str:
    """The link to single sign-on in a mail that names the workspace."""
    proof = process.vault.sign(SIGN_ON, workspace_id.encode())
    login = f"{process.settings.base_url}/auth/oidc/login"
    return f"{login}?workspaceId={workspace_id}&mail={proof}"


def names(process: Process, proof: str, workspace_id: str) -> bool:
    """Return whether the proof is from the link of a mail that names the workspace."""
    return process.vault.unsign(SIGN_ON, proof) == workspace_id.encode()


def sight(member: Member) -> dict[str, Any]:
    """Parameters of store/messages.VISIBLE: the account mails that the member may read."""
    readable = {"memberships:write": INVITATION, "workspaces:write": OWNER_INVITATION}
    return {
        "mails": [mail for can, mail in readable.items() if can in member.permissions],
        "reader": member.user_id if member.via == "session" else None,
    }
