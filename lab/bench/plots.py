"""One plot for each curve that the benchmarks have noted, as SVG without scripts.

For the process of `make -C lab bench` alone: pygal hooks into how Python finds modules, in an old
way of which the tests would complain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pygal
from pygal.style import Style

STYLE = Style(
    background="white",
    plot_background="white",
    foreground="#333333",
    foreground_strong="#111111",
    foreground_subtle="#999999",
    guide_stroke_dasharray="1,0",
    guide_stroke_color="#e4e4e4",
    major_guide_stroke_dasharray="1,0",
    major_guide_stroke_color="#d0d0d0",
    font_family="sans-serif",
    title_font_size=18,
    label_font_size=13,
    major_label_font_size=13,
    legend_font_size=14,
    value_font_size=13,
    colors=("#1f6feb", "#d1495b", "#2e8b57"),
)
COMMON: Mapping[str, Any] = {
    "style": STYLE,
    "js": (),
    "width": 860,
    "height": 460,
    "explicit_size": True,
    "legend_at_bottom": True,
    "show_minor_x_labels": True,
    "pretty_print": True,
    "margin": 25,
}


def _xy(lines: Iterable[Mapping[str, Any]], title: str, x: str, y: str, **how: Any) -> Any:
    chart = pygal.XY(
        title=title, x_title=x, y_title=y, dots_size=3, include_x_axis=True, **{**COMMON, **how}
    )
    for line in lines:
        chart.add(line["of"], list(zip(line["x"], line["y"], strict=True)))
    return chart


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def intake(lines: Iterable[Mapping[str, Any]]) -> Any:
    return _xy(
        lines,
        "The intake's answers as more is offered (one web process, signed)",
        "events offered, a second",
        "milliseconds",
        x_value_formatter=_whole,
        value_formatter=_whole,
    )


def backlog(lines: Iterable[Mapping[str, Any]]) -> Any:
    return _xy(
        lines,
        "One worker process, as more runs are due at once",
        "runs due",
        "runs completed a second",
        x_value_formatter=_whole,
        value_formatter=_whole,
    )


def recovery(lines: Iterable[Mapping[str, Any]]) -> Any:
    return _xy(
        lines,
        "After a kill -9: runs that were open and have ended",
        "seconds since the kill",
        "of 100",
        range=(0, 100),
        x_value_formatter=_whole,
        value_formatter=_whole,
        show_dots=False,
        show_legend=False,
    )


def scale(lines: Iterable[Mapping[str, Any]]) -> Any:
    [line] = lines
    chart = pygal.HorizontalBar(
        title=f"What a question costs: {line['of']}, goal at most 1.3",
        **{**COMMON, "height": 900, "show_legend": False},
        value_formatter=lambda value: f"{value:.2f}",
        print_values=True,
    )
    # From the top down, as the table has them.
    chart.x_labels = line["x"][::-1]
    chart.add("ratio", line["y"][::-1])
    return chart


PLOTS = {"intake": intake, "backlog": backlog, "recovery": recovery, "scale": scale}


def drawn(noted: Iterable[Mapping[str, Any]], directory: Path) -> list[Path]:
    """The newest of each line counts."""
    newest: dict[str, dict[str, Mapping[str, Any]]] = {}
    for line in noted:
        if "plot" in line:
            newest.setdefault(line["plot"], {})[line["of"]] = line
    written = []
    for name, lines in newest.items():
        path = directory / f"{name}.svg"
        chart = PLOTS[name](list(lines.values()))
        chart.uuid = name  # else another one each time
        text = chart.render(is_unicode=True)
        # It shows itself: what the library adds for its own scripts stays out.
        path.write_text(re.sub(r"<script.*?</script>|<!--.*?-->", "", text, flags=re.DOTALL))
        written.append(path)
    return written
