"""The guide to operating names what there is: every figure, and no other; every command."""

from __future__ import annotations

import re
from pathlib import Path

from app.__main__ import COMMANDS
from app.metrics import FAMILIES
from app.routes import ROUTES

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs/operating.md").read_text()


def test_every_figure_has_a_line_that_says_what_to_do():
    assert set(re.findall(r"^\| `(tidings_\w+)` \|", GUIDE, re.MULTILINE)) == set(FAMILIES)


def test_what_it_says_to_do_can_be_done():
    documents = [GUIDE, (ROOT / "README.md").read_text(), (ROOT / "docs/deploying.md").read_text()]
    typed = {name for text in documents for name in re.findall(r"python -m app ([\w-]+)", text)}
    assert typed <= set(COMMANDS)
    assert {"after-restore", "rewrap-keys", "migrate", "doctor"} <= typed
    there = {(one.method, re.sub(r"\{(\w+)[^}]*\}", r":\1", one.path)) for one in ROUTES}
    named = re.findall(r"(GET|POST|PATCH) `(/[\w/:-]+)[?`]", GUIDE)
    assert len(named) > 8
    assert set(named) <= there


def test_the_readme_leads_to_it():
    assert "](docs/operating.md)" in (ROOT / "README.md").read_text()
