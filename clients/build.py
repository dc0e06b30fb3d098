"""Builds tidings-client and @tidings/client from our OpenAPI document into clients/dist.

python -m clients.build
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from console.build import SECONDS, Missing, document, install, npm, run

HERE = Path(__file__).resolve().parent
DIST = HERE / "dist"
TOOLS = Path(sys.executable).parent
NAME = "tidings_client"


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    (DIST / "openapi.json").write_bytes(document())
    try:
        _python()
        _typescript()
    except Missing as missing:
        print(f"The clients are not built: {missing}", file=sys.stderr)
        return 1
    print(*(f"clients/dist/{path.name}" for path in sorted(DIST.glob("tidings*.*"))), sep="\n")
    return 0


def generate(openapi: Path, package: Path) -> str:
    """The Python package, and what its generator says of what it left out."""
    command = [str(TOOLS / "openapi-python-client"), "generate", "--meta", "none", "--overwrite"]
    command += ["--config", str(HERE / "python/config.yaml")]
    command += ["--path", str(openapi), "--output-path", str(package)]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    output = made.stdout + made.stderr
    lacks = "WARNING" in output or "Warning" in output or "Unable" in output
    return output if made.returncode or lacks else ""


def _python() -> None:
    """Raises Missing."""
    source = DIST / "python"
    shutil.copytree(HERE / "python", source)
    if output := generate(DIST / "openapi.json", source / "src" / NAME):
        raise Missing(f"the Python package lacks something:\n{output}")
    (source / "src" / NAME / "py.typed").touch()
    build = [str(TOOLS / "uv"), "build", "--quiet", "--wheel", "--offline", "--out-dir", str(DIST)]
    run([*build, str(source)], "The Python package does not build", DIST)


def _typescript() -> None:
    """Raises Missing."""
    place, command = HERE / "typescript", npm()
    install(command, place)
    shutil.rmtree(place / "dist", ignore_errors=True)
    run([*command, "run", "--silent", "types"], "The types cannot be generated", place)
    run([*command, "run", "--silent", "build"], "The TypeScript package does not build", place)
    packed = ["pack", "--silent", "--pack-destination", str(DIST)]
    run([*command, *packed], "The TypeScript package cannot be packed", place)


if __name__ == "__main__":
    sys.exit(main())
