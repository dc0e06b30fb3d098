"""Names that a workspace uses, to choose from: of custom fields, and of what contacts did."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from app.store import names_in_use
from app.store.names_in_use import CONTACTS, NEWEST, FieldType
from app.web import reply
from app.web.body import Shape
from app.web.routing import Call, get

MOST = 200  # of each


class UsedField(Shape):
    """A field of the metadata of contacts."""

    name: str
    types: Annotated[
        list[FieldType],
        Field(
            description=f"Those that its values have in the newest {CONTACTS:,} contacts; empty if"
            " only older ones have the field."
        ),
    ]


class NamesInUse(Shape):
    """The most used first; at most 200 of each."""

    fields: list[UsedField]
    events: Annotated[list[str], Field(description=f"Of the newest {NEWEST:,} events of contacts.")]


async def list_names(call: Call) -> Response:
    """The metadata fields that contacts have, and the names of what they did; never the values.
    `/tags` lists their tags."""
    whose = call.member.workspace_id
    fields = await names_in_use.fields(call.db, workspace_id=whose, limit=MOST)
    events = await names_in_use.events(call.db, workspace_id=whose, limit=MOST)
    return reply.ok({"fields": [UsedField.of(one) for one in fields], "events": events})


routes = [get("/names", list_names, can="contacts:read", gives={200: NamesInUse})]
