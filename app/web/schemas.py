"""Models → JSON Schema 2020-12, their merge patches, and an example of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from app.machine import description
from app.machine.schema import READ_BACK

Schema: TypeAlias = dict[str, Any]

PLACE = "#/components/schemas/"
UNTOLD = "…"
DEFAULT = "x-default"  # of a member of a request


class _Writer(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's
        """A title that only repeats the field's name says nothing."""
        return False

    def normalize_name(self, name: str) -> str:
        """Pages by what is on them; of two that share a name, each with its module's before it."""
        title = _QUALIFIED.sub(lambda match: match[1].title().replace("_", "") + match[2], name)
        return super().normalize_name(_PAGE.sub(r"\1Page", title))


_QUALIFIED = re.compile(r"(?:\w+\.)*(\w+)\.(\w+)")
_PAGE = re.compile(r"^(?:Reply)?Page\[(\w+)\]$")


# --- definitions in models ------------------------------------------------------------------------

COMPONENT = "x-component"  # a model names one so: pydantic knows only what it has written itself


def described(schema: Schema) -> WithJsonSchema:
    """A member as the description of definitions has it (app/machine/description.py)."""
    return WithJsonSchema(referring(schema))


def referring(schema: Any) -> Any:
    """Write the references of a schema in the form that pydantic lets pass."""
    match schema:
        case {"$ref": name, **rest}:
            return {COMPONENT: name, **rest}
        case dict():
            return {name: referring(inner) for name, inner in schema.items()}
        case list():
            return [referring(inner) for inner in schema]
    return schema


def _resolved(schema: Any, place: str) -> Any:
    match schema:
        case {"x-component": name, **rest}:
            return {"$ref": place + name, **rest}
        case dict():
            return {name: _resolved(inner, place) for name, inner in schema.items()}
        case list():
            return [_resolved(inner, place) for inner in schema]
    return schema


def _written(
    models: Collection[type[BaseModel]], place: str, *, active: bool
) -> tuple[dict[type[BaseModel], Schema], dict[str, Schema]]:
    """Write the schemas of models: by model its reference, and by name all that is referred to."""
    references, definitions = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template=place + "{model}",
        schema_generator=_Writer,
    )
    by_model = {model: references[model, "validation"] for model in models}
    named = _resolved(definitions.get("$defs", {}), place)
    named |= description.components(place, active=active)
    # Not what was written for a field that has another schema.
    reached = _reached(named, by_model.values(), place)
    return by_model, {name: {**named[name], "title": name} for name in sorted(reached)}


def standing_alone(model: type[BaseModel]) -> Schema:
    """The model and the definitions in it, active ones, as a schema that needs no document."""
    place = "#/$defs/"
    references, named = _written([model], place, active=True)
    for schema in named.values():
        schema.pop(READ_BACK, None)
    whole = named.pop(references[model]["$ref"].removeprefix(place))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "$defs": named}


class Schemas:
    """Every model by its name, as the document's components have them."""

    def __init__(
        self,
        models: Collection[type[BaseModel]],
        examples: Mapping[str, Any],
        taken: Collection[type[BaseModel]] = (),
    ) -> None:
        """`examples` are values by field, or by `Model.field` where that is not enough; `taken` are
        the models of requests."""
        self._references, self.named = _written(models, PLACE, active=False)
        self._examples = examples
        self._read_back = {
            name: schema.pop(READ_BACK)
            for name, schema in self.named.items()
            if READ_BACK in schema
        }
        requests = [self._references[model] for model in taken]
        for name in _reached(self.named, requests, PLACE):
            # Defaults are moved aside: generators of a request's types take a member with one for
            # a member that is always there (openapi-typescript does).
            members = self.named[name].get("properties", {})
            for member, schema in members.items():
                if "default" in schema:
                    rest = {key: value for key, value in schema.items() if key != "default"}
                    members[member] = {**rest, DEFAULT: schema["default"]}

    def of(self, model: type[BaseModel]) -> Schema:
        return self._references[model]

    def resolved(self, schema: Schema) -> Schema:
        """The schema that a reference leads to."""
        while "$ref" in schema:
            schema = self.named[name_of(schema)]
        return schema

    def parameters_of(self, model: type[BaseModel]) -> Schema:
        """The parameters of a query: nobody refers to it by its name."""
        return model.model_json_schema(ref_template=PLACE + "{model}", schema_generator=_Writer)

    # --- merge patches ---

    def patch_of(self, model: type[BaseModel]) -> Schema:
        """RFC 7396: nothing is required, and null takes away what may be absent."""
        return self._patched(self.of(model))

    def _patched(self, schema: Schema) -> Schema:
        if "$ref" in schema:
            name = f"{name_of(schema).removeprefix('Writable')}Patch"
            if name not in self.named:
                self.named[name] = {}  # a definition may hold itself
                patched = {**self._patched(self.resolved(schema)), "title": name}
                for member, inner in self._read_back.get(name_of(schema), {}).items():
                    patched["properties"][member] = {**inner, "readOnly": True}
                self.named[name] = patched
            return {"$ref": PLACE + name}
        patched = {key: value for key, value in schema.items() if key not in _WHOLE}
        for several in ("anyOf", "oneOf"):
            if several in schema:  # a part may be that of more than one
                patched["anyOf"] = [self._patched(one) for one in schema[several]]
        if "properties" in schema:
            needed = schema.get("required", ())
            patched["properties"] = {
                name: self._patched(inner) if name in needed else nullable(self._patched(inner))
                for name, inner in schema["properties"].items()
            }
        if isinstance(schema.get("additionalProperties"), dict):
            inner = self._patched(schema["additionalProperties"])
            patched["additionalProperties"] = nullable(inner)
        return patched

    # --- examples ---

    def example(self, schema: Schema, field: str = "", *, patch: bool = False) -> Any:
        """An example of such a value: the one that is given, or one made of its parts."""
        where = name_of(schema) if "$ref" in schema else ""
        found = self.resolved(schema)
        given = next((found[key] for key in ("const", "default", DEFAULT) if key in found), None)
        for key in (where, field, field.lstrip("?"), field.rpartition(".")[2]):
            if key in self._examples:
                return self._examples[key]
        if "examples" in found:
            return found["examples"][0]
        for several in ("anyOf", "oneOf"):
            if several in found:
                return self.example(found[several][0], field)
        if given is not None:
            return given
        if "enum" in found:
            return found["enum"][0]
        return self._made(found, where or field, patch=patch)

    def _made(self, schema: Schema, field: str, *, patch: bool) -> Any:
        match schema.get("type"):
            case "object":
                properties = schema.get("properties", {})
                shown = sorted(properties, key=lambda name: name != "id")[: 1 if patch else None]
                return {name: self.example(properties[name], f"{field}.{name}") for name in shown}
            case "array":
                return [self.example(schema.get("items", {}), field)]
            case "integer" | "number":
                return schema.get("minimum", 1)
            case "boolean":
                return True
            case "null":
                return None
        return TIME if schema.get("format") == "date-time" else UNTOLD


def _reached(named: Mapping[str, Schema], start: Iterable[Schema], place: str) -> set[str]:
    reached: set[str] = set()
    ahead = [found for schema in start for found in _names(schema, place)]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += _names(named[name], place)
    return reached


def _names(schema: Any, place: str) -> Iterator[str]:
    """The names that it refers to, wherever inside."""
    match schema:
        case {"$ref": str(reference)}:
            yield reference.removeprefix(place)
        case dict():
            for inner in schema.values():
                yield from _names(inner, place)
        case list():
            for inner in schema:
                yield from _names(inner, place)


TIME = "2026-03-14T09:26:53.589Z"
# What is not taken over as it stands: it is said of the whole, and a patch is a part.
_WHOLE = (
    *("required", "minProperties", "maxProperties"),
    *(
        "default",
        DEFAULT,
        "examples",
        "description",
        "title",
        "anyOf",
        "oneOf",
        "allOf",
        "properties",
    ),
)


def name_of(schema: Schema) -> str:
    return str(schema["$ref"]).removeprefix(PLACE)


def nullable(schema: Schema) -> Schema:
    several = schema.get("anyOf", [schema])
    if not schema or {"type": "null"} in several:
        return schema
    return {"anyOf": [*several, {"type": "null"}]}


def not_null(schema: Schema) -> Schema:
    """Remove null from the schema of a parameter, which is left out instead."""
    kept = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if "anyOf" not in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **kept[0]} if len(kept) == 1 else {**rest, "anyOf": kept}
