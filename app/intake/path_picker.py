"""The path picker: what a webhook's senders sent lately, and what of it would find a contact."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeAlias

from app.audience import addresses, profile
from app.audience.addresses import BadAddress
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle
from app.machine import document, sample
from app.machine.path import Path
from app.machine.program import Json
from app.machine.sample import Place, Values
from app.machine.text import is_storable
from app.process import Process
from app.runtime.compute import Computation
from app.store import contact_lists, contacts, webhook_requests

BODIES = 50
LONGEST = 256 * 1024  # bytes of one body
SHARE = 0.9  # of the bodies must lead to somebody
CANDIDATES = 100  # paths that are tried
FIELDS = 20  # of metadata
PROPOSALS = 20
LARGE = 16 * 1024  # bytes of all bodies that are not read on the event loop
SECONDS = 2.0  # of CPU time

Key: TypeAlias = tuple[str, str]  # a metadata field's name, and the value it has


@dataclass(frozen=True, slots=True)
class Proposal:
    """A trigger that would have found, or made, the contact of so many of the bodies."""

    lookup: str
    path: Path
    share: float
    field: str | None = None

    @property
    def rank(self) -> tuple[float, bool, int]:
        """Best first: of those that lead to as many, the ones that are called what they are."""
        return (-self.share, not _called(self.field or self.lookup, self.path), len(str(self.path)))


@dataclass(frozen=True, slots=True)
class Explored:
    """The bodies' paths, proposals of addresses, and, by path, values that could be ids."""

    places: Sequence[Place]
    addressed: Sequence[Proposal]
    ids: Sequence[tuple[Path, Sequence[str | None]]]
    bodies: int


async def look(
    process: Process, db: Handle, workspace: WorkspaceContext, definition_id: str
) -> tuple[Sequence[Place], list[Proposal]]:
    """The newest bodies' paths, and lookups that lead to an email, a phone or a known
    contact often enough, best first. Raises Heavy."""
    bodies = await webhook_requests.bodies(
        db,
        workspace_id=workspace.id,
        definition_id=definition_id,
        longest=LONGEST,
        limit=BODIES,
    )
    country = workspace.country
    computation = Computation(
        workspace.id, explored, (bodies, country), SECONDS, same=lambda: [definition_id, country]
    )
    found = process.compute.here(computation, large=sum(map(len, bodies)) > LARGE)
    made = [*found.addressed]
    wanted = sorted({text for _, values in found.ids for text in values if text is not None})
    if wanted:
        ids = await contacts.existing(db, workspace_id=workspace.id, ids=wanted)
        names = await contact_lists.field_names(db, workspace_id=workspace.id, limit=FIELDS)
        kept = await contacts.with_fields(db, workspace_id=workspace.id, names=names, values=wanted)
        fields: defaultdict[str, set[str]] = defaultdict(set)
        for name, value in kept:
            fields[name].add(value)
        for path, values in found.ids:
            for field, known in ((None, set(ids)), *fields.items()):
                share = _share(found.bodies, sum(value in known for value in values))
                if share is not None:
                    made.append(Proposal("contact_id", path, share, field))
    return found.places, sorted(made, key=lambda proposal: proposal.rank)[:PROPOSALS]


def explored(bodies: Sequence[bytes], country: str | None) -> Explored:
    """Explore the bodies. Those whose signature was wrong are strangers' own, and not among
    them."""
    found = sample.read(sample.objects(bodies))
    candidates = _Candidates(found.bodies, list(islice(found.common(SHARE), CANDIDATES)))
    addressed = []
    for path, values in candidates.paths:
        is_phone = partial(_is_phone, country=country, is_called_so=_called("phone", path))
        for lookup, leads in (("email", _is_email), ("phone", is_phone)):
            share = candidates.share(values, leads)
            if share is not None:
                addressed.append(Proposal(lookup, path, share))
    return Explored(
        found.places(),
        addressed,
        [(path, list(map(_id, values.values()))) for path, values in candidates.paths],
        found.bodies,
    )


def _share(bodies: int, leading: int) -> float | None:
    """The share of the bodies that lead there; None when it is too small."""
    share = leading / bodies
    return round(share, 3) if share >= SHARE else None


@dataclass(frozen=True, slots=True)
class _Candidates:
    bodies: int
    paths: Sequence[tuple[Path, Values]]

    def share(self, values: Values, leads: Callable[[Json], bool]) -> float | None:
        return _share(self.bodies, sum(leads(value) for value in values.values()))


# --- addresses ------------------------------------------------------------------------------------


def _is_email(value: Json) -> bool:
    if not isinstance(value, str) or "@" not in value:
        return False
    try:
        addresses.email(value)
    except BadAddress:
        return False
    return True


def _is_phone(value: Json, *, country: str | None, is_called_so: bool) -> bool:
    """Bare digits only where the name says so: an order's number is a possible phone number too."""
    if not isinstance(value, str) or not (is_called_so or _PHONE.fullmatch(value)):
        return False
    try:
        addresses.phone(value, country)
    except BadAddress:
        return False
    return True


_PHONE = re.compile(r"\s*\+[\d\s()./-]{6,30}|(?=.*[\s()./-])[\d\s()./-]{7,30}", re.ASCII)
_NAMES: Mapping[str, Sequence[str]] = {
    "email": ("email", "e-mail", "mail"),
    "phone": ("phone", "mobile", "tel", "cell", "whatsapp", "sms"),
    "contact_id": ("contactid", "contact_id", "contact-id"),
}


def _called(what: str, path: Path) -> bool:
    """Return whether the path's last name is like one of what it would look up."""
    names = [segment for segment in path.segments if isinstance(segment, str)]
    last = names[-1].casefold() if names else ""
    return any(name in last for name in _NAMES.get(what, (what.casefold(),)))


# --- ids ------------------------------------------------------------------------------------------


LONGEST_ID = 255


def _id(value: Json) -> str | None:
    """A value that could be an id: a string, or an integer as its sender wrote it."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not value or not (is_number or isinstance(value, str)):
        return None
    text = profile.normal(document.text(value) if is_number else str(value))
    return text if len(text) <= LONGEST_ID and is_storable(text) else None
