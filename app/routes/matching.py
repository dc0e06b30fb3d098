"""Names for a contact that a client knows by no id of ours, or has yet to create."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from app.audience import lookups, profile
from app.audience.writing import Lookup
from app.errors import FieldError, Problem
from app.machine import document
from app.web.body import Shape

FieldName = Annotated[str, Field(min_length=1, max_length=profile.METADATA_NAME_LENGTH)]
FieldText = Annotated[str, Field(min_length=1, max_length=profile.METADATA_VALUE_LENGTH)]
ONE = "Give exactly one of email, phone, contactId and metadata."


class Match(Shape):
    """The one thing that says who it is: exactly one of these. `metadata` has one field, compared
    as text; when several contacts have its value, the answer is 409."""

    email: str | None = None
    phone: str | None = None
    contact_id: str | None = None
    metadata: (
        Annotated[dict[FieldName, FieldText | int], Field(min_length=1, max_length=1)] | None
    ) = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.given()) != 1:
            raise ValueError(ONE)
        return self

    def given(self) -> dict[str, str | dict[str, str | int]]:
        """Write the match by the names that a contact has for its members, too."""
        given: dict[str, str | dict[str, str | int]] = self.model_dump(
            by_alias=True, exclude_none=True
        )
        return given

    def lookup(self, country: str | None, *place: int | str) -> Lookup:
        """`place` is where it stands in the body. Raises Problem `invalid`."""
        [(kind, value)] = self.given().items()
        inner: tuple[str, ...] = (kind,)
        try:
            if isinstance(value, dict):
                [(field, text)] = value.items()
                inner = (kind, field)
                return lookups.read("contact_id", text, country, field)
            return lookups.read("contact_id" if kind == "contactId" else kind, value, country)
        except ValueError as error:
            errors = [FieldError(document.pointer(*place, *inner), str(error))]
            raise Problem(
                "invalid", "No contact can be looked up by this value; see errors.", errors=errors
            ) from None
