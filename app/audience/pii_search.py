"""Finds personal data in records that belong to no contact: refused webhook requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import orjson

from app.database.db import Handle
from app.machine import document
from app.store import erasure
from app.store.contacts import Addresses, Contact
from app.store.erasure import RefusedRequest

AT_ONCE = 100  # requests with their bodies: a few megabytes at most
PAGES = 5  # of one transaction
DIGITS = 8  # the last of a phone number: those that stay when it is written without its country

_NO_DIGIT = re.compile(rb"\D+")


class Search:
    """A look through the refused requests of a workspace for one contact: some of them in each
    transaction, for there may be gigabytes of them."""

    def __init__(self) -> None:
        self._identifiers: Identifiers | None = None
        self._last = ""

    async def goes_on(
        self, db: Handle, workspace_id: str, contact: Contact, former: Sequence[Addresses] = ()
    ) -> bool:
        """Delete those of the next requests that mention the contact, or one of its former
        addresses; whether there may be more to look at."""
        identifiers = Identifiers.of(contact, former)
        if identifiers != self._identifiers:  # it was changed since, and all are to be looked at
            self._identifiers, self._last = identifiers, ""
        for _ in range(PAGES):
            page = await erasure.refused_requests(
                db, workspace_id=workspace_id, after=self._last, limit=AT_ONCE
            )
            named = await asyncio.to_thread(identifiers.found_in, page)
            await erasure.delete_requests(db, workspace_id=workspace_id, ids=named)
            if len(page) < AT_ONCE:
                return False
            self._last = page[-1].id
        return True


@dataclass(frozen=True, slots=True)
class Identifiers:
    """A contact's emails, phones and id, found however they are written."""

    words: frozenset[str]  # in lower case
    numbers: frozenset[bytes]

    @classmethod
    def of(cls, contact: Contact, former: Sequence[Addresses] = ()) -> Self:
        """The searchable values of a contact's row and of its former addresses."""
        held: tuple[Addresses, ...] = (contact, *former)
        words = {contact.id, *(one.email_key for one in held)}
        phones = {one.phone for one in held}
        return cls(
            frozenset(word.lower() for word in words if word),
            frozenset(_NO_DIGIT.sub(b"", one.encode())[-DIGITS:] for one in phones if one),
        )

    def found_in(self, requests: Sequence[RefusedRequest]) -> list[str]:
        """The ids of those that mention the contact."""
        found = []
        for request in requests:
            head = document.dumps([request.headers, request.detail])
            if self.are_in(request.body or b"") or self.are_in(head):
                found.append(request.id)
        return found

    def are_in(self, raw: bytes) -> bool:
        """Return whether an identifier is in the JSON, cut short or not, also behind escapes."""
        if self._are_in_text(raw):
            return True
        if b"\\" not in raw:
            return False
        try:
            plain = orjson.dumps(orjson.loads(raw))
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            return False
        return self._are_in_text(plain)

    def _are_in_text(self, raw: bytes) -> bool:
        lowered = raw.decode("utf-8", "replace").lower()
        if any(word in lowered for word in self.words):
            return True
        if not self.numbers:
            return False
        digits = _NO_DIGIT.sub(b"", raw)
        return any(number in digits for number in self.numbers)
