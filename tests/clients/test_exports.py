"""A slug and an image from a clean export hold the built console, and no Node.js.

What Heroku's buildpacks and `docker build` do is done here step by step: neither is on a machine
that runs tests.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from app.net.tls import system_trust
from tests.deployment import ROOT, Part, until
from tests.servers import free_port

STEP_SECONDS = 180
NPM = shutil.which("npm")

pytestmark = [
    pytest.mark.skipif(
        NPM is None and os.environ.get("REQUIRE_CLIENTS") != "1",
        reason="There is no npm on PATH.",
    ),
    pytest.mark.timeout(2 * STEP_SECONDS),
]


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    """The environment with the packages of npm from its cache, if they are there."""
    return {**os.environ, "npm_config_prefer_offline": "true"}


def exported(directory: Path) -> Path:
    """Export what is committed, and what is not yet, but nothing that is ignored."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name)
    return directory


def run(command: list[str], place: Path, environ: dict[str, str]) -> None:
    subprocess.run(command, cwd=place, env=environ, check=True, timeout=STEP_SECONDS)


def holds_the_console_and_no_node(tree: Path) -> None:
    dist = tree / "app/web/dist"
    page = (dist / "index.html").read_text()
    for name in re.findall(r"main-\w+\.(?:js|css)", page):
        assert (dist / name).stat().st_size > 0
        assert (dist / f"{name}.gz").stat().st_size > 0
    left = [path for path in tree.rglob("*") if path.name in ("node", "node_modules", "npm")]
    assert left == []


def shows_the_console(tree: Path, directory: Path) -> None:
    port = free_port()
    database = f"sqlite:///{directory}/tidings.db"
    environ = {"PORT": str(port), "DATABASE_URL": database, "PYTHONPATH": str(tree)}
    part = Part("run", environ, directory)
    try:
        until(lambda: "Stop with Ctrl-C" in part.text, "it says how to try it", part)
        page = httpx2.get(f"http://127.0.0.1:{port}/console/", verify=system_trust())
        assert (page.status_code, "main-" in page.text) == (200, True)
    finally:
        part.kill()


def test_a_slug_holds_the_built_console_and_no_node(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """As heroku/nodejs leaves it: Node.js in .heroku, and what the postbuild script made."""
    slug = exported(tmp_path / "slug")
    for place in (".heroku/node/bin/node", ".profile.d/nodejs.sh"):
        (slug / place).parent.mkdir(parents=True, exist_ok=True)
        (slug / place).touch()
    run(["npm", "run", "heroku-postbuild"], slug, environ)
    assert (slug / "console/node_modules").exists()
    run(["bin/post_compile"], slug, environ)
    holds_the_console_and_no_node(slug)
    shows_the_console(slug, tmp_path)


def stages() -> Iterator[tuple[str, list[str]]]:
    """Read the stages of the Dockerfile: the name of each, and its instructions."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for stage in re.split(r"^FROM ", text, flags=re.M)[1:]:
        first, *rest = stage.splitlines()
        yield first.partition(" AS ")[2], [line for line in rest if line[:1].isalpha()]


def test_an_image_holds_the_built_console_and_no_node(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """The stage of the console as it is written, and what the last one copies from it and us."""
    source, image = exported(tmp_path / "source"), tmp_path / "image"
    roots = {"": source, "console": tmp_path / "console"}
    for name, instructions in stages():
        if name not in ("console", ""):
            continue
        here = roots["console"] if name else image
        for line in instructions:
            word, _, rest = line.partition(" ")
            if word == "WORKDIR":
                here = (roots["console"] if name else image) / rest.lstrip("/")
                here.mkdir(parents=True)
            elif word == "COPY" and "--from=build" not in rest:
                copied(rest, roots, here)
            elif word == "RUN" and name:
                run(["sh", "-c", rest], here, environ)
    tree = image / "srv/tidings"
    assert {path.name for path in tree.iterdir()} == {"app", "workers", "schema.sql"}
    holds_the_console_and_no_node(tree)
    shows_the_console(tree, tmp_path)


def copied(rest: str, roots: dict[str, Path], here: Path) -> None:
    """Copy as COPY does: the content of a directory, or files into one."""
    *names, target = shlex.split(rest)
    root = roots[""]
    if names[0].startswith("--from="):
        root = roots[names.pop(0).removeprefix("--from=")]
    for name in names:
        origin, into = root / name.lstrip("/"), (here / target).resolve()
        if origin.is_dir():
            shutil.copytree(origin, into, dirs_exist_ok=True)
        else:
            shutil.copy2(origin, into)
