"""The picture's style sheet: light, and dark where its reader is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.definitions.drawing.kind_styles import DARK, LIGHT, Colours, Tone


def _colours(palette: Mapping[Tone, Colours]) -> Iterable[str]:
    for tone, colours in palette.items():
        yield f".{tone} .outline{{fill:{colours.fill};stroke:{colours.line}}}"
        yield f".{tone} .kind{{fill:{colours.line}}}"


STYLE = f"""
text{{font-family:Arial,Helvetica,"Liberation Sans",sans-serif;fill:#1c2430}}
.heading,.kind,.count{{font-weight:bold}}
.paper,.sign{{fill:#ffffff}}
.quiet,.says,.port{{fill:#56606d}}
.outline{{stroke-width:1.5;stroke-linejoin:round}}
.link path{{fill:none;stroke:#7b8794;stroke-width:1.5}}
.link polygon{{fill:#7b8794}}
.back path{{stroke-dasharray:5 3}}
.link.broken path{{stroke:#c62b1c;stroke-dasharray:2 3}}
.link.broken polygon{{fill:#c62b1c}}
.box.broken .outline{{stroke-dasharray:4 3}}
{"".join(_colours(LIGHT))}
@media (prefers-color-scheme:dark){{
text{{fill:#e6eaf0}}
.paper,.sign{{fill:#14181e}}
.quiet,.says,.port{{fill:#9aa5b3}}
.link path{{stroke:#7d8896}}
.link polygon{{fill:#7d8896}}
{"".join(_colours(DARK))}
}}
"""
