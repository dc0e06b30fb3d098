"""Models → JSON Schema 2020-12, their merge patches, and an example of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

Schema: TypeAlias = dict[str, Any]

PLACE = "#/components/schemas/"
UNTOLD = "…"


class _Writer(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's
        """A title that only repeats the field's name says nothing."""
        return False

    def normalize_name(self, name: str) -> str:
        """Pages by what is on them; of two that share a name, each with its module's before it."""
        told = _QUALIFIED.sub(lambda match: match[1].title().replace("_", "") + match[2], name)
        return super().normalize_name(_PAGE.sub(r"\1Page", told))


_QUALIFIED = re.compile(r"(?:\w+\.)*(\w+)\.(\w+)")
_PAGE = re.compile(r"^(?:Reply)?Page\[(\w+)\]$")


class Schemas:
    """Every model by its name, as the document's components have them."""

    def __init__(self, models: Collection[type[BaseModel]], examples: Mapping[str, Any]) -> None:
        """`examples` are values by field, or by `Model.field` where that is not enough."""
        references, definitions = models_json_schema(
            [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
            ref_template=PLACE + "{model}",
            schema_generator=_Writer,
        )
        self.named: dict[str, Schema] = dict(definitions.get("$defs", {}))
        self._references = {model: schema for (model, _), schema in references.items()}
        self._examples = examples
        for name, schema in self.named.items():
            schema["title"] = name
        # What has been written for a field that was given another schema.
        for name in set(self.named) - _reached(self.named, self._references.values()):
            del self.named[name]

    def of(self, model: type[BaseModel]) -> Schema:
        return self._references[model]

    def resolved(self, schema: Schema) -> Schema:
        """What a reference leads to."""
        while "$ref" in schema:
            schema = self.named[name_of(schema)]
        return schema

    def parameters_of(self, model: type[BaseModel]) -> Schema:
        """Of a query: nobody refers to it by its name."""
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
                self.named[name] = {**self._patched(self.resolved(schema)), "title": name}
            return {"$ref": PLACE + name}
        patched = {key: value for key, value in schema.items() if key not in _WHOLE}
        for several in ("anyOf", "oneOf"):
            if several in schema:
                patched[several] = [self._patched(one) for one in schema[several]]
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
        """What such a value looks like: the one that is given, or one made of its parts."""
        where = name_of(schema) if "$ref" in schema else ""
        found = self.resolved(schema)
        given = next((found[key] for key in ("const", "default") if key in found), None)
        for key in (where, field, field.lstrip("?"), field.rpartition(".")[2]):
            if key in self._examples:
                return self._examples[key]
        if "examples" in found:
            return found["examples"][0]
        for several in ("anyOf", "oneOf", "allOf"):
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


def _reached(named: Mapping[str, Schema], start: Iterable[Schema]) -> set[str]:
    reached: set[str] = set()
    ahead = [found for schema in start for found in _names(schema)]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += _names(named[name])
    return reached


def _names(schema: Any) -> Iterator[str]:
    """What it refers to, wherever inside."""
    match schema:
        case {"$ref": str(reference)}:
            yield reference.removeprefix(PLACE)
        case dict():
            for inner in schema.values():
                yield from _names(inner)
        case list():
            for inner in schema:
                yield from _names(inner)


TIME = "2026-03-14T09:26:53.589Z"
# What is not taken over as it stands: it is said of the whole, and a patch is a part.
_WHOLE = (
    *("required", "minProperties", "maxProperties"),
    *("default", "examples", "description", "title", "anyOf", "oneOf", "properties"),
)


def name_of(schema: Schema) -> str:
    return str(schema["$ref"]).removeprefix(PLACE)


def nullable(schema: Schema) -> Schema:
    several = schema.get("anyOf", [schema])
    if not schema or {"type": "null"} in several:
        return schema
    return {"anyOf": [*several, {"type": "null"}]}


def not_null(schema: Schema) -> Schema:
    """For parameters, which are left out instead."""
    kept = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if "anyOf" not in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **kept[0]} if len(kept) == 1 else {**rest, "anyOf": kept}
