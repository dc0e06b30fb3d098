"""Files for platforms and containers, which fit what the service asks for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import chain, pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.config.settings import Settings
from app.config.variables import VARIABLES
from app.database.db import Deadlines
from tests.deployment import ROOT

NAMES = {variable.name for variable in VARIABLES}
REQUIRED = {variable.name for variable in VARIABLES if variable.required_in_production}
GIVEN_BY_ADDONS = {"DATABASE_URL", "REDIS_URL"}
HEROKU = json.loads((ROOT / "app.json").read_text())
GONE_SECONDS = 10  # after SIGTERM, as the README promises
GUIDE = (ROOT / "docs/deploying.md").read_text()
ANALYZE = shutil.which("systemd-analyze")


def test_the_button_asks_for_what_production_needs_and_nothing_unknown() -> None:
    assert set(HEROKU["env"]) <= NAMES
    assert set(HEROKU["env"]) | GIVEN_BY_ADDONS >= REQUIRED


def of_the_button() -> Settings:
    """Make the settings of the button, with what it sets, and what it asks for."""
    values = {name: text["value"] for name, text in HEROKU["env"].items() if "value" in text}
    asked = {
        "SECRET_KEY": "0" * 64,
        "BASE_URL": "https://your-app.herokuapp.com",
        "SMTP_URL": "smtp://user:password@smtp.example.com:587?starttls=required",
        "MAIL_FROM": "Acme <hello@acme.example>",
        "DATABASE_URL": "postgres://user:password@host:5432/name",
        "REDIS_URL": "rediss://:password@host:6379",
    }
    return Settings.from_environ({**values, **asked})


def test_what_the_button_sets_is_accepted() -> None:
    assert of_the_button().production


def test_the_connections_of_the_formation_fit_the_smallest_plan_during_a_deploy() -> None:
    """Of both releases. Where it is not set, the buildpacks set WEB_CONCURRENCY by the dyno."""
    [heroku] = [words for words in commands() if words[:2] == ["heroku", "config:set"]]
    set_by_guide = dict(word.split("=", 1) for word in heroku if re.match(r"[A-Z_]+=", word))
    for name in ("WEB_CONCURRENCY", "DATABASE_POOL_SIZE"):
        assert HEROKU["env"][name]["value"] == set_by_guide[name]
    assert all(dynos["quantity"] == 1 for dynos in HEROKU["formation"].values())
    assert 2 * of_the_button().most_connections <= 20


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_the_guide_names_what_has_to_be_set(name: str) -> None:
    assert f"`{name}" in GUIDE


def test_the_formation_is_the_procfile() -> None:
    procfile = (ROOT / "Procfile").read_text()
    started = set(re.findall(r"^(\w+):", procfile, re.M)) - {"release"}
    assert set(HEROKU["formation"]) == started


def commands() -> list[list[str]]:
    """Every command of the guide, as a shell splits it, continued lines joined."""
    blocks = re.findall(r"(?:^    .*\n)+", GUIDE, re.M)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split() for line in lines if line.strip()]


def test_every_container_outlives_a_reboot_and_has_time_to_finish() -> None:
    started = [words for words in commands() if words[:3] == ["docker", "run", "-d"]]
    assert {words[-1] for words in started} == {"web", "worker"}
    names = set()
    for words in started:
        options = dict(pairwise(words))
        names.add(options["--name"])
        assert options["--restart"] == "unless-stopped"
        assert int(options["--stop-timeout"]) > GONE_SECONDS
        # The image asks over HTTP, which a worker does not speak.
        assert ("--no-healthcheck" in words) == (words[-1] == "worker")
    assert len(names) == len(started)


def test_containers_are_where_their_settings_say_that_database_and_proxy_are() -> None:
    given = dict(line.split("=", 1) for line in block("ENVIRONMENT=production\n").splitlines())
    beside = [given["HOST"], *(urlsplit(given[name]).hostname for name in GIVEN_BY_ADDONS)]
    assert set(beside) == {"127.0.0.1"}  # which in a network of its own is the container
    started = [words for words in commands() if words[:2] == ["docker", "run"]]
    assert {words[-1] for words in started} == {"migrate", "web", "worker"}
    for words in started:
        options = dict(pairwise(words[: words.index("tidings")]))
        assert options["--network"] == "host"
        assert options["--env-file"] == "tidings.env"
        assert "-p" not in words  # docker publishes nothing of the machine's own network


def test_no_command_needs_what_a_bare_machine_lacks() -> None:
    assert "sudo" not in {words[0] for words in commands()}


def unit_settings() -> dict[str, str]:
    return dict(words[0].split("=", 1) for words in commands() if re.match(r"[A-Z]\w+=", words[0]))


def test_the_units_and_what_is_run_beside_them_have_a_user_and_its_settings() -> None:
    unit = unit_settings()
    user = unit["User"]
    assert int(unit["TimeoutStopSec"]) > GONE_SECONDS
    [added] = [words for words in commands() if words[0] == "useradd"]
    assert added[-1] == user
    [beside] = [words for words in commands() if words[0] == "systemd-run"]
    assert {f"User={user}", f"EnvironmentFile={unit['EnvironmentFile']}"} <= set(beside)
    assert {"--pipe", "--wait"} <= set(beside)
    # Its default place, below a file system that is read-only else.
    assert unit["ReadWritePaths"] == f"{unit['WorkingDirectory']}/data"
    assert f"install -d -o {user} -m 0700 {unit['ReadWritePaths']}" in GUIDE


def test_a_unit_gives_its_migration_the_time_that_migrate_gives_itself() -> None:
    """Cut off, a long section would begin anew for ever. It has a deadline of its own, so a server
    that hangs ends it all the same."""
    assert unit_settings()["ExecStartPre"] == "/srv/tidings/.venv/bin/python"  # -m app migrate
    assert unit_settings()["TimeoutStartSec"] == "infinity"
    assert 0 < Deadlines().migration_ms <= 600_000  # "ten minutes"


def block(beginning: str) -> str:
    """Find a block of the guide, as it is typed or saved."""
    [found] = [
        one for one in re.findall(r"(?:^    .*\n|^\n(?=    ))+", GUIDE, re.M) if beginning in one
    ]
    return re.sub(r"^    ", "", found, flags=re.M).strip() + "\n"


def test_the_settings_of_a_machine_are_accepted_and_believe_its_own_proxy_alone() -> None:
    lines = block("ENVIRONMENT=production\n").splitlines()
    given = dict(line.split("=", 1) for line in lines)
    settings = Settings.from_environ({**given, "SECRET_KEY": "0" * 64})
    assert settings.production
    assert (settings.host, settings.trusted_hops) == ("127.0.0.1", 1)
    assert f"reverse_proxy {settings.host}:{settings.port}" in GUIDE
    assert f"{urlsplit(settings.base_url).hostname} {{" in GUIDE
    assert set(given) >= REQUIRED


@pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed")
@pytest.mark.parametrize("command", ["web", "worker", "run"])
def test_systemd_understands_the_units(tmp_path: Path, command: str) -> None:
    unit = block("[Unit]").replace("web", command)
    if command == "run":
        unit = unit.replace("[Service]\n", block("ReadWritePaths="))
    # It wants the program to be there.
    unit = unit.replace("/srv/tidings/.venv/bin/python", sys.executable)
    file = tmp_path / f"tidings-{command}.service"
    file.write_text(unit)
    text = subprocess.run(
        [str(ANALYZE), "verify", "--man=no", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (text.returncode, text.stderr) == (0, "")


def test_what_the_image_holds_is_enough_to_start(tmp_path: Path) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = [re.findall(r"^COPY ([\w.]+) \./", one, re.M) for one in dockerfile.split("\nFROM ")]
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if "!" in line}
    assert {*chain(*copied), "requirements.txt", "docs/examples"} == let_in
    assert set(copied[-1]) == {"schema.sql", "app", "workers"}
    for name in copied[-1]:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    ended = subprocess.run(
        [sys.executable, "-m", "app", "migrate"],
        cwd=tmp_path,
        env={"PATH": "", "DATABASE_URL": f"sqlite:///{tmp_path}/data/tidings.db"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Applied sections 0001")


# --- the console ----------------------------------------------------------------------------------


def test_heroku_builds_the_console_before_python_is_installed_and_prunes_node() -> None:
    assert [each["url"] for each in HEROKU["buildpacks"]] == ["heroku/nodejs", "heroku/python"]
    package = json.loads((ROOT / "package.json").read_text())
    assert "dependencies" not in package
    assert package["scripts"]["heroku-postbuild"].endswith("run build")
    pruned = (ROOT / "bin/post_compile").read_text()
    assert {".heroku/node", "console/node_modules"} <= set(pruned.split())


def test_the_image_and_the_wheel_carry_the_built_console_and_no_node() -> None:
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.M)[1:]
    assert "npm run build" in stages[1]
    assert "COPY docs/examples ../docs/examples" in stages[1]
    assert "!docs/examples" in (ROOT / ".dockerignore").read_text().splitlines()
    assert stages[-1].startswith("python:")
    assert "/app/web/dist ./app/web/dist" in stages[-1]
    assert 'artifacts = ["app/web/dist"]' in (ROOT / "pyproject.toml").read_text()


def test_no_lock_file_of_the_console_names_a_registry() -> None:
    lock = json.loads((ROOT / "console/package-lock.json").read_text())
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
    assert all("integrity" in package for name, package in lock["packages"].items() if name)


def without_node(tmp_path: Path) -> dict[str, str]:
    """An environment in which neither Node.js nor the package index is to be had."""
    return {
        "PATH": str(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "PIP_NO_CACHE_DIR": "1",
    }


@pytest.mark.parametrize(("words", "code"), [(["--if-stale"], 0), ([], 1)])
def test_without_node_and_the_index_the_build_says_so_and_make_run_goes_on(
    tmp_path: Path, words: list[str], code: int
) -> None:
    sources = tmp_path / "console"
    shutil.copytree(
        ROOT / "console", sources, ignore=shutil.ignore_patterns("node_modules", "*.json")
    )
    # -S: without what a developer has installed into the environment.
    ran = subprocess.run(
        [sys.executable, "-S", str(sources / "build.py"), *words],
        env=without_node(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert "Building the console" in ran.stdout
    assert ran.stderr.rstrip().splitlines()[-1].startswith("The console is not built: There is no")
    assert not (tmp_path / "app").exists()


def test_a_console_that_is_newer_than_its_sources_is_not_built_again(tmp_path: Path) -> None:
    sources, built = tmp_path / "console", tmp_path / "app/web/dist/index.html"
    shutil.copytree(ROOT / "console", sources, ignore=shutil.ignore_patterns("node_modules"))
    built.parent.mkdir(parents=True)
    built.write_text("built")
    command = [sys.executable, "-S", str(sources / "build.py"), "--if-stale"]
    for touched, says in ((built, ""), (sources / "src/main.tsx", "Building the console")):
        later = max(path.stat().st_mtime for path in tmp_path.rglob("*")) + 10
        os.utime(touched, (later, later))
        ran = subprocess.run(
            command, env=without_node(tmp_path), capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0
        assert ran.stdout.startswith(says)
        assert bool(ran.stdout) == bool(says)
