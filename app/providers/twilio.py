"""Text messages and WhatsApp through Twilio's Messages API.

Twilio honours no idempotency key and cannot be asked by our reference: once a request has left and
no answer has come, only its callback tells, which carries the reference in its URL.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from app.config import casts
from app.config.settings import Settings
from app.errors import FieldError
from app.machine.content import ChannelName
from app.providers.api import (
    BAD_ADDRESS,
    BAD_CONTENT,
    BOUNCED,
    DEAD,
    MISCONFIGURED,
    REJECTED,
    STOPPED,
    THROTTLED,
    Api,
    Client,
    Verdict,
)
from app.providers.base import Capabilities, Fault, Message, Receipt, Replies, SendError
from app.providers.kinds import KEY, Credentials, Field, Surroundings, Wrong, like, secret

BASE_URL = "https://api.twilio.com"
WHATSAPP = "whatsapp:"

# twilio.com/docs/api/errors. What stands here not is judged by the answer's status.
ERRORS: Mapping[int, Verdict] = {
    **dict.fromkeys((14107, 20429, 21611, 30001, 63018), THROTTLED),
    # The account, the sender or the callback's address: ours to mend.
    **dict.fromkeys((20003, 20005, 20404, 21212, 21603, 21606, 21607, 21609), MISCONFIGURED),
    **dict.fromkeys((21659, 21660, 21661, 21701, 21703, 21704, 21705, 30002), MISCONFIGURED),
    **dict.fromkeys((63007, 63051), MISCONFIGURED),
    # The number.
    **dict.fromkeys((21217, 21266, 21401, 21421, 21604, 21662, 21663), BAD_ADDRESS),
    # As its callbacks say it of a message that was accepted before (twilio_callbacks.py).
    **dict.fromkeys((21211, 21614, 30005, 30006, 63024), DEAD),
    **dict.fromkeys((30003, 30008, 63003), BOUNCED),
    # What is said to it.
    **dict.fromkeys((21602, 21605, 21617, 21619, 21654, 21655, 21656, 63027, 63028), BAD_CONTENT),
    21610: STOPPED,
    # A country that is not enabled, a trial account, a pair that no carrier connects.
    **dict.fromkeys((21408, 21608, 21612, 21635), REJECTED),
}


@dataclass(frozen=True, slots=True)
class Account:
    """`sender` is a number in E.164, a short code or name, or a messaging service's SID."""

    sid: str
    token: str = field(repr=False)
    sender: str


class Twilio:
    """One account and sender, for one channel."""

    provider = "twilio"
    account = None
    capabilities = Capabilities(
        idempotency_key_ttl_seconds=None, callbacks=True, refuses_recipients=True
    )

    def __init__(
        self,
        client: Client,
        name: ChannelName,
        account: Account,
        *,
        callback_url: str | None = None,
        base_url: str = BASE_URL,
    ) -> None:
        """`callback_url`: where Twilio is to tell what became of a message."""
        self.name: str = name
        self._account = account
        self._callback_url = callback_url
        signed_in = base64.b64encode(f"{account.sid}:{account.token}".encode()).decode()
        self._api = Api(client, "Twilio", base_url, {"Authorization": f"Basic {signed_in}"})

    @property
    def replies(self) -> Replies:
        """A name cannot be answered. A messaging service may send under one, but not in America,
        where names are not allowed."""
        if re.fullmatch(casts.SERVICE, self._account.sender):
            return "american"
        return "all" if re.fullmatch(r"\+?[0-9]+", self._account.sender) else "none"

    async def close(self) -> None:
        """Nothing of its own is held open."""

    async def verify(self) -> list[Fault]:
        account = f"/2010-04-01/Accounts/{self._account.sid}"
        try:
            answer = await self._api.call("GET", f"{account}.json")
            if answer.status != 200:
                return [self._api.fault(answer, answer.text_member("message"))]
            if answer.text_member("status") != "active":
                detail = (
                    f"The account is {answer.text_member('status')}: Twilio sends nothing for it."
                )
                return [Fault("error", "account", detail)]
            sender = self._account.sender
            # Only of numbers for text messages an account can be asked.
            if self.name == "whatsapp" or not sender.startswith("+"):
                return []
            answer = await self._api.call(
                "GET", f"{account}/IncomingPhoneNumbers.json", params={"PhoneNumber": sender}
            )
            if answer.status == 200 and not answer.payload.get("incoming_phone_numbers"):
                detail = f"{sender} is not one of the account's numbers."
                return [Fault("error", "sender", detail)]
            return []
        except SendError as error:
            return [Fault("error", "unreachable", error.detail)]

    async def send(self, message: Message) -> Receipt:
        path = f"/2010-04-01/Accounts/{self._account.sid}/Messages.json"
        prefix = WHATSAPP if self.name == "whatsapp" else ""
        sender = self._account.sender
        is_service = re.fullmatch(casts.SERVICE, sender) is not None
        content, callback = message.content, None
        if self._callback_url is not None:
            # With our reference: it comes back even when the answer to the request is lost.
            reference = {"workspace": message.workspace_id, "attempt": message.attempt_id}
            callback = f"{self._callback_url}?{urlencode(reference)}"
        form = {
            "To": f"{prefix}{message.to}",
            "MessagingServiceSid": sender if is_service else None,
            "From": None if is_service else f"{prefix}{sender}",
            "Body": content.get("text"),
            "ContentSid": content.get("contentSid"),
            "ContentVariables": content.get("variables"),
            "StatusCallback": callback,
        }
        data = {name: value for name, value in form.items() if value}
        answer = await self._api.call("POST", path, data=data)
        sid = answer.text_member("sid")
        if answer.status in (200, 201) and sid is not None:
            return Receipt(sid)
        code = answer.payload.get("code")
        known = ERRORS.get(code) if isinstance(code, int) and answer.status >= 400 else None
        raise self._api.error(answer, known or answer.verdict, answer.text_member("message"))


# --- as one of the providers ----------------------------------------------------------------------

SIGNS = "authToken"
_SENDERS = f"{casts.E164}|{casts.SHORT_CODE}|{casts.SENDER_NAME}"
FIELDS = {
    "accountSid": Field(like(r"AC[0-9a-f]{32}", "AC and 32 hexadecimal digits"), "Account SID"),
    SIGNS: secret(KEY, "Auth token"),
    "from": Field(
        like(_SENDERS, "a number such as +15005550006, a short code or a name"),
        "Number",
        is_needed=False,
    ),
    "messagingServiceSid": Field(
        like(casts.SERVICE, "MG and 32 hexadecimal digits"),
        "or messaging service SID",
        is_needed=False,
    ),
}


def wrong(channel: str, given: Mapping[str, str]) -> Wrong:
    if len({"from", "messagingServiceSid"} & given.keys()) != 1:
        yield FieldError("/from", "Give a from or a messagingServiceSid, and not both.")
    if channel == "whatsapp" and not re.fullmatch(casts.E164, given.get("from", "+15005550006")):
        yield FieldError("/from", "Must be a number such as +15005550006 for whatsapp.")


def opened(around: Surroundings, channel: ChannelName, given: Credentials) -> Twilio:
    sender = given.get("messagingServiceSid") or given["from"]
    return Twilio(
        around.client,
        channel,
        Account(given["accountSid"], given[SIGNS], sender),
        callback_url=around.callback_url,
        base_url=around.settings.twilio_base_url,
    )


def operators(settings: Settings) -> dict[ChannelName, Credentials]:
    """Read the operator's credentials for each channel that has a sender. This may be a messaging
    service."""
    account = {"accountSid": settings.twilio_account_sid, SIGNS: settings.twilio_auth_token}
    senders: dict[ChannelName, str | None] = {
        "sms": settings.twilio_from,
        "whatsapp": settings.twilio_whatsapp_from,
    }
    if None in account.values():
        return {}
    return {
        channel: {**account, "from": sender}
        for channel, sender in senders.items()
        if sender is not None
    }
