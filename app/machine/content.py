"""What a message says, part by part, on each channel; one renderer for preview, test and send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.machine import template
from app.machine.program import Facts, Json


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of Liquid. HTML is escaped where values enter it."""

    needed: bool = False
    html: bool = False


PARTS: Mapping[str, Mapping[str, Part]] = {
    "email": {
        "subject": Part(needed=True),
        "html": Part(needed=True, html=True),
        "text": Part(),  # derived from the HTML when absent
        "preheader": Part(),
        "fromName": Part(),
        "replyTo": Part(),
    },
}


class PartError(Exception):
    """A part could not be rendered."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(f"{part}: {message}")
        self.part = part
        self.message = message


def check(channel: str, content: Mapping[str, Json]) -> list[tuple[str, str]]:
    """What is wrong, as (part, sentence); empty when the content can be saved."""
    parts = PARTS[channel]
    found = [(name, _unknown(parts)) for name in content if name not in parts]
    for name, part in parts.items():
        source = content.get(name)
        if source is None or source == "":
            if part.needed:
                found.append((name, f"A message by {channel} cannot do without {name}."))
        elif not isinstance(source, str):
            found.append((name, "This must be text; Liquid may stand in it."))
        else:
            found += [(name, sentence) for sentence in _template_errors(source, part)]
    return found


def render(channel: str, content: Mapping[str, Json], facts: Facts) -> dict[str, str]:
    """Every part that is there, rendered. Raises PartError."""
    return {name: render_part(channel, name, content[name], facts) for name in _given(content)}


def render_part(channel: str, name: str, source: str, facts: Facts) -> str:
    """Raises PartError."""
    try:
        return template.parse(source, html=PARTS[channel][name].html).render(facts).text
    except (template.TemplateError, template.RenderError) as error:
        raise PartError(name, str(error)) from None


def variables(content: Mapping[str, Json]) -> list[str]:
    """The paths that the parts read, such as `trigger.data.email`, each once."""
    found = [name for part in _given(content) for name in template.variables(content[part])]
    return list(dict.fromkeys(found))


def _given(content: Mapping[str, Json]) -> Iterator[str]:
    return (name for name, source in content.items() if source)


def _template_errors(source: str, part: Part) -> Iterator[str]:
    try:
        template.parse(source, html=part.html)
    except template.TemplateError as error:
        yield str(error)


def _unknown(parts: Mapping[str, Part]) -> str:
    return f"There is no such part; known parts are {', '.join(parts)}."
