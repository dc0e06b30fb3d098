"""The tools of an assistant for definitions: read, check, simulate, draft. Nothing of it goes live.

Each tool is a call of the public API with the caller's key. A write reaches a DRAFT alone: of
anything else it makes a copy, and `If-Match` refuses what has been activated in between. No tool
activates, sends or erases.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import httpx2
from pydantic import Field

from app.machine import document
from app.machine.program import Json

SECONDS = 30.0  # that a call may take
PATHS: Mapping[str, str] = {
    "aut": "/automations",
    "wfl": "/workflows",
    "tpl": "/templates",
    "run": "/runs",
    "con": "/contacts",
}

Kind: TypeAlias = Annotated[
    Literal["workflow", "automation"],
    Field(description="A workflow has `steps`, an automation has a `graph`."),
]
Id: TypeAlias = Annotated[str, Field(description="wfl_… or aut_…, as a list or an answer has it.")]
Definition: TypeAlias = Annotated[
    dict[str, Any],
    Field(description="`name`, `trigger`, and `steps` or `graph`; see describe_definitions."),
]
Given: TypeAlias = Annotated[
    dict[str, Any],
    Field(
        description="What happens to the run: `trigger` (the body that came in), `contact` or"
        " `contactId`, `startAt`, `events`, `outcomes`, `httpAnswers`, `variants`."
    ),
]
Answer: TypeAlias = dict[str, Any]


class Refused(Exception):
    """A refusal of the API, or of a tool; for the assistant to read."""


class Tools:
    """The tools, over one client of the API."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._parts: dict[str, Answer] = {}

    # --- reading ----------------------------------------------------------------------------------

    async def describe_definitions(
        self,
        name: Annotated[
            str, Field(description="A part, such as SendMessageStep; without, their list.")
        ] = "",
    ) -> Answer:
        """Describe how definitions are written: the JSON Schema of one part, or all parts'
        names."""
        if not self._parts:
            self._parts = (await self._ask("GET", "/definition-schema"))["$defs"]
        if name in self._parts:
            return self._parts[name]
        if name:
            raise Refused(f"There is no {name}; call it without a name for the list.")
        return {part: one.get("description", "") for part, one in self._parts.items()}

    async def list_definitions(
        self, kind: Kind, cursor: Annotated[str, Field(description="`nextCursor`.")] = ""
    ) -> Answer:
        """The workflows or automations of the workspace, newest first, fifty at a time."""
        return await self._list(f"/{kind}s", cursor)

    async def list_templates(
        self, cursor: Annotated[str, Field(description="`nextCursor`.")] = ""
    ) -> Answer:
        """The templates of the workspace, newest first, fifty at a time."""
        return await self._list("/templates", cursor)

    async def read(
        self, id: Annotated[str, Field(description="wfl_…, aut_…, tpl_… or run_….")]
    ) -> Answer:
        """A workflow, an automation with its findings, a template, or a run with its steps."""
        return await self._ask("GET", _path(id, "aut", "wfl", "tpl", "run"))

    async def explain(
        self,
        contact: Annotated[str, Field(description="con_…, or an email address.")],
        definition_id: Annotated[str, Field(description="wfl_… or aut_…; all, without.")] = "",
        since: Annotated[str, Field(description="A time: 2026-03-01T09:00:00Z.")] = "",
    ) -> Answer:
        """Explain why a flow did or did not reach a contact, newest first. Each has a code, a
        sentence and the record that proves it."""
        query = {"definitionId": _id(definition_id, "aut", "wfl")} if definition_id else {}
        if since:
            query["since"] = since
        id = contact
        if "@" in contact:
            found = (await self._ask("GET", "/contacts", query={"email": contact}))["data"]
            if not found:
                raise Refused("No contact has this email address.")
            id = str(found[0]["id"])
        return await self._ask("GET", f"{_path(id, 'con')}/explain", query=query)

    # --- trying -----------------------------------------------------------------------------------

    async def check(
        self,
        kind: Kind,
        definition: Definition,
        id: Annotated[str, Field(description="Of the definition that this would change.")] = "",
    ) -> Answer:
        """All that an activation would say of a definition: `findings`, each with the pointer to
        its place. Nothing is saved."""
        query = {"id": _id(id, "aut", "wfl")} if id else {}
        return await self._ask("POST", f"/{kind}s/check", definition, query=query)

    async def simulate(self, id: Id, given: Given) -> Answer:
        """Simulate what a run of a saved definition would do, step by step, on a virtual clock.
        Nothing is written or sent."""
        return await self._ask("POST", f"{_path(id, 'aut', 'wfl')}/simulate", given)

    async def simulate_unsaved(
        self,
        kind: Kind,
        definition: Definition,
        given: Given,
        id: Annotated[str, Field(description="Of the definition that this would change.")] = "",
    ) -> Answer:
        """The same for a definition that is not saved."""
        query = {"id": _id(id, "aut", "wfl")} if id else {}
        body = {**given, "definition": definition}
        return await self._ask("POST", f"/{kind}s/simulate", body, query=query)

    async def run_cases(self, id: Id) -> Answer:
        """Run each case that the definition keeps: whether it passes, what it expected,
        and what came. Nothing is written or sent."""
        return await self._ask("POST", f"{_path(id, 'aut', 'wfl')}/cases/run")

    # --- drafting ---------------------------------------------------------------------------------

    async def create_draft(self, kind: Kind, definition: Definition) -> Answer:
        """Save a new definition as a DRAFT. A person activates it."""
        _refuse_state(definition)
        return await self._ask("POST", f"/{kind}s", {**definition, "state": "DRAFT"})

    async def change_draft(
        self,
        id: Id,
        changes: Annotated[
            dict[str, Any],
            Field(description="A merge patch: what it names is replaced, `steps` as a whole."),
        ],
    ) -> Answer:
        """Change a DRAFT. Of a definition that is not a DRAFT, a DRAFT copy is made and changed: it
        has an ID of its own, and the original stays as it is."""
        _refuse_state(changes)
        path = _path(id, "aut", "wfl")
        answer = await self._call("GET", path)
        if document.parse(answer.content)["state"] == "DRAFT":
            return await self._patched(path, answer, changes)
        copy = await self._call("POST", f"{path}/duplicate", {})
        made = document.parse(copy.content)["id"]
        try:
            return await self._patched(_path(made, "aut", "wfl"), copy, changes)
        except Refused as refused:
            sentence = f"{made} is a DRAFT copy of it, unchanged as yet: change that one."
            raise Refused(f"{refused}\n{sentence}") from None

    async def _patched(
        self, path: str, known: httpx2.Response, changes: Mapping[str, Json]
    ) -> Answer:
        """Patch a definition only while it is what was read, and so a DRAFT."""
        tag = {"If-Match": known.headers["ETag"]}
        return await self._ask("PATCH", path, changes, headers=tag)

    # --- the API ----------------------------------------------------------------------------------

    async def _list(self, path: str, cursor: str) -> Answer:
        return await self._ask("GET", path, query={"cursor": cursor} if cursor else {})

    async def _ask(self, method: str, path: str, body: Json = None, **how: Any) -> Answer:
        answer: Answer = document.parse((await self._call(method, path, body, **how)).content)
        return answer

    async def _call(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Raises Refused."""
        written = {"Content-Type": "application/json"} if body is not None else {}
        try:
            response = await self._client.request(
                method,
                path,
                params=query,
                content=None if body is None else document.dumps(body),
                headers={**written, **(headers or {})},
                timeout=SECONDS,
            )
        except httpx2.HTTPError as error:
            raise Refused(f"Tidings cannot be reached: {type(error).__name__}.") from None
        if response.is_success:
            return response
        try:
            problem = document.parse(response.content)
        except document.MalformedJson:
            problem = None
        if not isinstance(problem, dict) or "code" not in problem:
            raise Refused(f"The answer was {response.status_code}, and not from Tidings.")
        shown = {name: problem[name] for name in SHOWN if problem.get(name)}
        raise Refused(document.dumps(shown).decode())

    @property
    def reading(self) -> tuple[Callable[..., Awaitable[Answer]], ...]:
        """The tools that change nothing."""
        return (
            self.describe_definitions,
            self.list_definitions,
            self.list_templates,
            self.read,
            self.explain,
            self.check,
            self.simulate,
            self.simulate_unsaved,
            self.run_cases,
        )

    @property
    def drafting(self) -> tuple[Callable[..., Awaitable[Answer]], ...]:
        return (self.create_draft, self.change_draft)


def _id(id: str, *prefixes: str) -> str:
    """Nothing but an ID comes into a path. Raises Refused."""
    if not re.fullmatch(rf"(?:{'|'.join(prefixes)})_[0-9a-z]{{26}}", id):
        raise Refused(f"An ID begins with {', '.join(f'{one}_' for one in prefixes)}; not {id!r}.")
    return id


def _path(id: str, *prefixes: str) -> str:
    return f"{PATHS[_id(id, *prefixes).partition('_')[0]]}/{id}"


def _refuse_state(definition: Mapping[str, Json]) -> None:
    """Raises Refused."""
    if definition.get("state", "DRAFT") != "DRAFT":
        raise Refused("Only a person activates, pauses or archives; leave out the state.")


SHOWN = ("status", "code", "detail", "errors", "findings", "cases")
