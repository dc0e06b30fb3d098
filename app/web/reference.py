"""The OpenAPI document as a page for people: nothing fetched, and readable without its script."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from app.web.page import HEADERS as PAGE_HEADERS
from app.web.page import script_digest
from app.web.schemas import DEFAULT, Schema, name_of

TEMPLATE = (files("app.web") / "reference.html").read_text("utf-8")
HEADERS = {
    **PAGE_HEADERS,
    # The browser runs this script and no other, and it talks to nobody.
    "Content-Security-Policy": f"default-src 'none'; script-src 'sha256-{script_digest(TEMPLATE)}';"
    " style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
}

METHODS = ("get", "post", "put", "patch", "delete")
EVENTS = "outbound events"


def page(document: Schema) -> str:
    operations = [
        (method, path, item[method])
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    ]
    groups = [
        (tag, [_operation(document, *one) for one in operations if one[2]["tags"] == [tag]])
        for tag in (one["name"] for one in document["tags"])
    ]
    if events := document.get("webhooks"):
        groups.append((EVENTS, [_event(type, item["post"]) for type, item in events.items()]))
    contents, sections = [], []
    for title, entries in groups:
        links = "".join(link for link, _ in entries)
        articles = "\n".join(article for _, article in entries)
        contents.append(f"<div><h2>{escape(title)}</h2><ul>{links}</ul></div>")
        sections.append(f"<section><h2>{escape(title)}</h2>\n{articles}\n</section>")
    return Template(TEMPLATE).substitute(
        contents="\n".join(contents),
        about=_prose(document["info"]["description"]),
        sections="\n".join(sections),
        models="\n".join(
            _model(name, schema) for name, schema in document["components"]["schemas"].items()
        ),
    )


def _event(type: str, operation: Schema) -> tuple[str, str]:
    """An event that is posted to a workspace's own endpoints: its link, and its article."""
    id, media = operation["operationId"], operation["requestBody"]["content"]["application/json"]
    words, title = escape(f"{type} {id} {EVENTS}".lower()), escape(type)
    return (
        f'<li data-words="{words}"><a href="#{id}">{title}</a></li>',
        f"""<article id="{id}" data-words="{words}">
<div><h3><a href="#{id}">{title}</a></h3>{_prose(operation["description"])}
<h4>Body</h4><p>{_type(media["schema"])}</p></div>
<div>{_example("Body", _written(media["example"]))}</div>
</article>""",
    )


# --- one operation --------------------------------------------------------------------------------


def _operation(document: Schema, method: str, path: str, operation: Schema) -> tuple[str, str]:
    """Its link, and its article; both are found by the same words."""
    id, summary = operation["operationId"], escape(operation["summary"])
    named = (method, path, operation["summary"], id, *operation["tags"])
    words = escape(" ".join(named).lower())
    verb = f'<span class="method {method}">{method.upper()}</span>'
    return (
        f'<li data-words="{words}"><a href="#{id}">{verb}{summary}</a></li>',
        f"""<article id="{id}" data-words="{words}">
<div>
<h3><a href="#{id}">{summary}</a></h3>
<span class="path">{verb}{escape(path)}</span>
{_prose(operation["description"])}
{_request(document, operation)}
{_answers(document, operation)}
</div>
<div>
{_examples(document, method, path, operation)}
</div>
</article>""",
    )


def _request(document: Schema, operation: Schema) -> str:
    """The parameters, by the place that they stand in, and the body."""
    titles = {"path": "Path", "query": "Query", "header": "Headers"}
    groups, body = [], ""
    for place, title in titles.items():
        found = [one for one in operation.get("parameters", ()) if one["in"] == place]
        items = "".join(
            _item(one["name"], one["schema"], one.get("description"), one.get("required", False))
            for one in found
        )
        groups.append(f"<h4>{title}</h4><dl>{items}</dl>" if items else "")
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        media_types = " or ".join(f"<code>{escape(media_type)}</code>" for media_type in content)
        schema, models = next(iter(content.values()))["schema"], document["components"]["schemas"]
        fields = _fields(models[name_of(schema)]) if "$ref" in schema else ""
        body = f"<h4>Body</h4><p>{_type(schema)}, as {media_types}</p>{fields}"
    return f"{''.join(groups)}\n{body}"


def _answers(document: Schema, operation: Schema) -> str:
    """The good ones openly, the refusals behind a line: they are much the same everywhere."""
    good, refused, examples = [], [], document["components"]["examples"]
    for status, given in operation["responses"].items():
        answer = given
        if "$ref" in given:
            answer = document["components"]["responses"][given["$ref"].rpartition("/")[2]]
        types = ", ".join(_type(media["schema"]) for media in answer.get("content", {}).values())
        if "x-codes" in answer:
            problems = [(code, examples[code]["value"]["title"]) for code in answer["x-codes"]]
            codes = "".join(
                f'<dd><a href="/problems/{code}"><code>{code}</code></a> {escape(title)}</dd>'
                for code, title in problems
            )
            refused.append(f"<div><dt><b>{status}</b></dt>{codes}</div>")
        else:
            names = ", ".join(f"<code>{name}</code>" for name in [*answer.get("headers", ())][1:])
            description = escape(answer["description"])
            headers = f"<dd>with {names}</dd>" if names else ""
            good.append(
                f"<div><dt><b>{status}</b><span>{description}</span><span>{types}</span></dt>{headers}</div>"
            )
    return (
        f"<h4>Responses</h4><dl>{''.join(good)}</dl>"
        f"<details><summary>Errors</summary><dl>{''.join(refused)}</dl></details>"
    )


# --- examples -------------------------------------------------------------------------------------


def _examples(document: Schema, method: str, path: str, operation: Schema) -> str:
    """A request to be pasted into a shell, where in single quotes nothing is special but the quote
    itself; and the first good answer."""
    url = document["servers"][0]["url"] + path
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            url = url.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
    way = "" if method == "get" else f" -X {method.upper()}"
    lines = [f"curl -sS{way} {quoted(url)}"]
    if operation["security"]:
        lines.append('-H "Authorization: Bearer $KEY"')
    for media_type, media in [*operation.get("requestBody", {}).get("content", {}).items()][:1]:
        lines.append(f"-H {quoted(f'Content-Type: {media_type}')}")
        file = "--data-binary @contacts" + ("." + media_type.rpartition("/")[2])
        lines.append(f"-d {quoted(_written(media['example']))}" if "example" in media else file)
    answers = (
        _example(f"Response {status}", _written(media["example"]))
        for status, answer in operation["responses"].items()
        for media in answer.get("content", {}).values()
        if status < "300" and "example" in media
    )
    curl = " \\\n  ".join(lines)
    return f"{_example('Request', curl)}\n{next(answers, '')}"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _example(title: str, text: str) -> str:
    return (
        f'<div class="example"><h4>{title}</h4><button type="button" hidden>Copy</button>'
        f'<pre tabindex="0">{escape(text)}</pre></div>'
    )


def _written(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


# --- models ---------------------------------------------------------------------------------------


def _model(name: str, schema: Schema) -> str:
    fields = _fields(schema)
    rest = "" if fields else f"<p>{_type({**schema, 'title': ''})}</p>"
    return f"""<article id="{name}" data-words="{name.lower()}">
<div><h3><a href="#{name}">{name}</a></h3>{_prose(schema.get("description", ""))}
{fields}{rest}</div>
</article>"""


def _fields(schema: Schema) -> str:
    items = "".join(
        _item(field, inner, inner.get("description"), field in schema.get("required", ()))
        for field, inner in schema.get("properties", {}).items()
    )
    return f"<dl>{items}</dl>" if items else ""


def _item(name: str, schema: Schema, description: str | None, required: bool) -> str:
    found = [words.format(schema[key]) for key, words in BOUNDS.items() if key in schema]
    default = schema.get("default", schema.get(DEFAULT))
    if default not in (None, {}, []) and not isinstance(default, dict):
        found.append(f"default {default}")
    bounds = "".join(f", {escape(one)}" for one in found)
    needed = "<em>required</em>" if required else ""
    described = f"<dd>{_inline(description)}</dd>" if description else ""
    return (
        f"<div><dt><b>{escape(name)}</b><span>{_type(schema)}{bounds}</span>{needed}</dt>"
        f"{described}</div>"
    )


BOUNDS: Mapping[str, str] = {
    "minimum": "from {}",
    "maximum": "to {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}


def _type(schema: Schema) -> str:
    """Write a schema's type in words, with a link to what has a name; HTML."""
    match schema:
        case {"$ref": _}:
            name = name_of(schema)
            return f'<a href="#{name}">{name}</a>'
        case {"anyOf": several} | {"oneOf": several}:
            return " or ".join(dict.fromkeys(_type(one) for one in several))
        case {"const": value}:
            return f"<code>{escape(json.dumps(value))}</code>"
        case {"enum": values}:
            return " | ".join(f"<code>{escape(str(value))}</code>" for value in values)
        case {"type": "array"}:
            return f"list of {_type(schema.get('items', {}))}"
        case {"type": "object", "additionalProperties": dict(inner)} if inner:
            return f"object of {_type(inner)}"
        case {"type": "string", "format": known}:
            return {"date-time": "time", "email": "email address"}.get(known, escape(known))
        case {"type": str(kind)}:
            return WORDS.get(kind, kind)
        case {"type": list(kinds)}:
            return " or ".join(WORDS.get(kind, kind) for kind in kinds)
    return "anything"


WORDS: Mapping[str, str] = {"string": "text", "integer": "whole number", "boolean": "true or false"}


# --- words ----------------------------------------------------------------------------------------


def _prose(text: str) -> str:
    """Paragraphs, with **bold** and `code`."""
    return "\n".join(f"<p>{_inline(part)}</p>" for part in text.strip().split("\n\n") if part)


def _inline(text: str) -> str:
    strong = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", strong)
