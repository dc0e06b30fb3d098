"""Definitions as files in a directory: pulled from a workspace, compared with it, pushed to it.

A client of the API on somebody's own machine, or in their CI: it opens no database. The server is
the one that they name, often on the same machine, and its answers are longer than what the guarded
client of app/net keeps.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from app.definitions import portable
from app.machine import document
from app.machine.program import Json

SECONDS = 30.0  # of one request
TRIES = 5  # of one that came too soon after others
LONGEST_PAUSE = 60.0
PAGE = 200
MOST = 2_000  # definitions of each kind
MOST_BYTES = 1_000_000  # of one file
KNOWN = ".tidings.json"  # what was last seen where
IMPORT = "/definitions/import"
NOUNS: Mapping[str, str] = {"steps": "workflow", "graph": "automation"}


class FilesError(Exception):
    """A sentence for whoever typed the command."""


# --- the server -----------------------------------------------------------------------------------


class Server:
    """The API, and the workspace of the key."""

    def __init__(self, client: httpx2.Client, url: str) -> None:
        self._client = client
        self._url = url
        self.name = f"{url} {self.get('/settings/workspace')['id']}"

    def get(self, path: str) -> dict[str, Any]:
        return self._body(self._answer("GET", path), path)

    def export(self, path: str) -> tuple[dict[str, Json], str]:
        """The file of a definition, and its tag."""
        answer = self._answer("GET", f"{path}/export")
        return self._body(answer, path), answer.headers["etag"]

    def all(self, path: str) -> Iterator[dict[str, Any]]:
        cursor: str | None = ""
        for _ in range(MOST // PAGE):
            page = self.get(f"{path}?limit={PAGE}{cursor and f'&cursor={cursor}'}")
            yield from page["data"]
            cursor = page["nextCursor"]
            if cursor is None:
                return
        raise FilesError(f"The workspace has more than {MOST:,} {path.strip('/')}.")

    def bring(self, body: Mapping[str, Json], headers: Mapping[str, str]) -> dict[str, Any]:
        answer = self._answer("POST", IMPORT, content=document.dumps(body), headers=headers)
        return self._body(answer, IMPORT)

    def _answer(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        sent = {"Content-Type": "application/json", **(headers or {})}
        for _ in range(TRIES):
            try:
                answer = self._client.request(method, path, content=content, headers=sent)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise FilesError(f"{self._url} cannot be reached: {error}.") from None
            if answer.status_code != httpx2.codes.TOO_MANY_REQUESTS:
                return answer
            asked = answer.headers.get("retry-after", "")  # or a date, which we never send
            time.sleep(min(float(asked) if asked.isdecimal() else 1.0, LONGEST_PAUSE))
        raise FilesError(f"{self._url} takes no more requests for now; try again in a minute.")

    def _body(self, answer: httpx2.Response, path: str) -> dict[str, Any]:
        """Raises FilesError, with what the server answered."""
        try:
            body: Any = document.parse(answer.content)
        except document.MalformedJson:
            body = None
        if answer.is_success and isinstance(body, dict):
            return body
        if not isinstance(body, dict) or "detail" not in body:
            detail = f"{self._url}{path} answered {answer.status_code}, and not as Tidings would."
            raise FilesError(f"{detail} Check --url.")
        if answer.status_code == httpx2.codes.PRECONDITION_FAILED:
            raise Changed(body["detail"])
        wrong = [f"\n  {one['pointer']}: {one['message']}" for one in body.get("errors", ())]
        raise FilesError(f"{body['detail']}{''.join(wrong)}")


class Changed(FilesError):
    """Somebody changed it on the server since it was looked at."""


@contextmanager
def connected(url: str, key: str) -> Iterator[Server]:
    """Connect to the API without following redirects, which would carry the key elsewhere. A URL
    that carries credentials of its own is refused: it is written down beside the files."""
    address = url.rstrip("/")
    if not re.match(r"https?://[^/]", address):
        raise FilesError("The URL must begin with https:// or http://.")
    if "@" in urlsplit(address).netloc:
        raise FilesError("The URL must not contain a user or password; give the key by --key.")
    headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
    with httpx2.Client(base_url=address, headers=headers, timeout=SECONDS) as client:
        yield Server(client, address)


# --- the files ------------------------------------------------------------------------------------


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Raises FilesError, with what the system says against this file or directory."""
    try:
        yield
    except OSError as error:
        raise FilesError(f"{path}: {error.strerror}.") from None


@dataclass(frozen=True, slots=True)
class File:
    """One definition, by the name of its file unless it names another key."""

    path: Path
    key: str
    content: Mapping[str, Json]

    @classmethod
    def read(cls, path: Path) -> Self:
        with _named(path):
            raw = path.read_bytes()
        if len(raw) > MOST_BYTES:
            raise FilesError(f"{path}: a file has at most {MOST_BYTES:,} bytes.")
        try:
            content = document.parse(raw)
        except document.MalformedJson as error:
            raise FilesError(f"{path}: {error}") from None
        if not isinstance(content, dict) or not isinstance(content.get("definition"), dict):
            raise FilesError(f"{path}: a file is a JSON object with a definition.")
        if not isinstance(content.get("templates") or {}, dict):
            raise FilesError(f"{path}: its templates are a JSON object, by their keys.")
        key = content.get("key", path.stem)
        if not isinstance(key, str) or not re.fullmatch(portable.KEY, key):
            detail = (
                "a key has small letters, digits, - and _, and begins with one of the first two"
            )
            raise FilesError(f"{path}: {detail}. Rename the file, or give it a key.")
        return cls(path, key, content)

    @property
    def starts(self) -> set[str]:
        """The keys of the definitions that it starts."""
        shape, body = self.body
        named = portable.references(shape, body)
        return {key for name in portable.DEFINITIONS for key in named[name]}

    @property
    def body(self) -> tuple[str, Json]:
        definition = self.content["definition"]
        shape = "graph" if "graph" in definition else "steps"
        return shape, definition.get(shape)

    @property
    def secret(self) -> str | None:
        """The signing secret, where the environment has it."""
        return os.environ.get(f"TIDINGS_SECRET_{self.key.upper().replace('-', '_')}") or None

    def body_of(self, mode: str, *, activate: bool) -> dict[str, Json]:
        secret = {"signingSecret": self.secret} if self.secret else {}
        file = {**self.content, "key": self.key}
        return {"file": file, "mode": mode, "activate": activate, **secret}

    def tried(self, others: Iterable[File], *, activate: bool) -> dict[str, Json]:
        """The body of a dry run, by which the other files are brought in already."""
        alongside = {one.key: NOUNS[one.body[0]] for one in others if one.key in self.starts}
        return {**self.body_of("dry_run", activate=activate), "alongside": alongside}


def read_all(paths: Sequence[Path]) -> list[File]:
    """The files, those first that others start. Raises FilesError before anything is sent."""
    files = [File.read(path) for one in paths for path in _files_in(one)]
    by_key: dict[str, File] = {}
    templates: dict[str, tuple[Json, Path]] = {}
    for file in files:
        if file.key in by_key:
            raise FilesError(f"{file.path}: {by_key[file.key].path} has the key {file.key} too.")
        by_key[file.key] = file
        for key, template in (file.content.get("templates") or {}).items():
            other, path = templates.setdefault(key, (template, file.path))
            if other != template:
                raise FilesError(f"{file.path}: its template {key} is another one in {path}.")
    starts = {key: file.starts & by_key.keys() for key, file in by_key.items()}
    try:
        return [by_key[key] for key in TopologicalSorter(starts).static_order()]
    except CycleError as error:
        circle = [str(by_key[key].path) for key in reversed(error.args[1])]
        detail = f"{', which starts '.join(circle)}: they start one another in a circle"
        raise FilesError(f"{detail}. Take one start out; nothing was sent.") from None


def _files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(one for one in path.glob("*.json") if not one.name.startswith("."))


@dataclass(frozen=True, slots=True)
class Seen:
    """The tags of what was last pulled or pushed, by server and key: kept beside the files."""

    path: Path
    server: str

    @classmethod
    def beside(cls, path: Path, server: Server) -> Self:
        folder = path if path.is_dir() else path.parent
        return cls(folder / KNOWN, server.name)

    def tags(self) -> dict[str, str]:
        return self._all().get(self.server, {})

    def keep(self, tags: Mapping[str, str]) -> None:
        everywhere = self._all()
        kept = {**everywhere, self.server: {**everywhere.get(self.server, {}), **tags}}
        with _named(self.path):
            self.path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")

    def _all(self) -> dict[str, dict[str, str]]:
        """Nothing of a file that is not as it was written, such as one with a merge conflict."""
        try:
            found = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return {}
        servers = found.items() if isinstance(found, dict) else ()
        return {name: tags for name, tags in servers if isinstance(tags, dict)}


# --- the commands ---------------------------------------------------------------------------------


def pull(server: Server, folder: Path) -> Iterator[str]:
    """Write each definition that is not archived to its file, which is the one that says its key if
    there is one; a line for each."""
    with _named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    known: dict[Path, str] = {}
    for path in _files_in(folder):
        # What cannot be pushed is in nobody's way as long as its name is no definition's.
        known[path] = path.stem
        with suppress(FilesError):
            known[path] = File.read(path).key
    by_key = {key: path for path, key in known.items()}
    tags: dict[str, str] = {}
    for noun in NOUNS.values():
        for one in server.all(f"/{noun}s"):
            if one["state"] == "ARCHIVED":
                continue
            file, tag = server.export(f"/{noun}s/{one['id']}")
            key = str(file["key"])
            if not re.fullmatch(portable.KEY, key):  # it becomes the name of a file
                raise FilesError(f"{one['id']} has the key {key!r}, which is none.")
            if key in tags:
                raise FilesError(f"{key} was changed while it was pulled; pull again.")
            tags[key] = tag
            path = by_key.get(key, folder / f"{key}.json")
            if known.get(path, key) != key:
                raise FilesError(f"{path}: it has the key {known[path]}; rename it and pull again.")
            yield f"{path.name}: {_written(path, file)}"
    Seen.beside(folder, server).keep(tags)
    for path, key in known.items():
        if key not in tags:
            yield f"{path.name}: not in the workspace"
    yield f"{len(tags)} definitions."


def _written(path: Path, file: Mapping[str, Json]) -> str:
    """The key is the file's name, where that says it, and a file that means the same is left as it
    is."""
    is_named = path.stem == file["key"]
    content = {name: value for name, value in file.items() if not is_named or name != "key"}
    if path.exists():
        with_key = {"key": path.stem, **content}
        if {"key": path.stem, **File.read(path).content} == with_key:
            return "unchanged"
    known = path.exists()
    with _named(path):
        path.write_text(document.pretty(content))
    return "changed" if known else "new"


def diff(server: Server, paths: Sequence[Path]) -> Iterator[str]:
    """The lines that a push would change, and a line for each file in which there are any."""
    files = read_all(paths)
    for file in files:
        would = _tried(server, file, files, activate=False)
        if would["action"] == "unchanged":
            continue
        yield f"{file.path.name}: {would['action']}"
        before = document.pretty(would["before"]) if would["before"] else ""
        yield from difflib.unified_diff(
            before.splitlines(),
            document.pretty(would["file"]).splitlines(),
            "workspace",
            str(file.path),
            lineterm="",
        )


def _tried(server: Server, file: File, files: Sequence[File], *, activate: bool) -> dict[str, Any]:
    try:
        return server.bring(file.tried(files, activate=activate), {})
    except FilesError as error:
        raise FilesError(f"{file.path}: {error}") from None


@dataclass(frozen=True, slots=True)
class Pushed:
    """The line about a file, and whether all that was asked for was done."""

    line: str
    is_done: bool = True


def push(
    server: Server, paths: Sequence[Path], *, activate: bool = False, force: bool = False
) -> Iterator[Pushed]:
    """First every file is tried without a change, then each is brought in, whole. Raises FilesError
    that names the file at which it stopped."""
    files = read_all(paths)
    tried = [(file, _tried(server, file, files, activate=activate)) for file in files]
    for file, would in tried:
        seen = Seen.beside(file.path, server).tags().get(file.key)
        is_other = seen is not None and seen != would["etagBefore"]
        if is_other and not force and would["before"] != would["file"]:
            detail = "it was changed in the workspace since it was pulled or pushed from here"
            advice = "Compare them (diff), and push with --force, or pull. Nothing was pushed."
            raise FilesError(f"{file.path}: {detail}. {advice}")
    actions: list[str] = []
    mine: set[str] = set()  # the templates that this push has changed
    for file, first in tried:
        would = first
        with _stopping(file, len(actions)):
            if first["before"] and mine & first["before"]["templates"].keys():
                would = _tried(server, file, files, activate=activate)
                _refuse_changed(first, would, mine)
            answer = would
            if would["action"] != "unchanged":
                tag = would["etagBefore"]
                held = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
                answer = server.bring(file.body_of("update", activate=activate), held)
        mine |= _changed_templates(would)
        yield _pushed(server, file, answer, activate=activate)
        actions.append(would["action"])
    counted = ", ".join(
        f"{actions.count(action)} {action}" for action in ("created", "updated", "unchanged")
    )
    yield Pushed(f"{len(actions)} files: {counted}.")


@contextmanager
def _stopping(file: File, done: int) -> Iterator[None]:
    """Raises FilesError that names the file, and how many are whole."""
    try:
        yield
    except FilesError as error:
        what = "it was changed in the workspace meanwhile" if isinstance(error, Changed) else error
        before = f"the {done} before it are pushed" if done else "nothing was pushed"
        detail = f"Of this file and those after it nothing was changed; {before}."
        raise FilesError(f"{file.path}: {what}. {detail}") from None


def _refuse_changed(first: Mapping[str, Any], again: Mapping[str, Any], mine: set[str]) -> None:
    """Raises Changed, unless the two dry runs differ in nothing but what this push changed."""
    others = []
    for one in (first, again):
        before = one["before"]
        templates = before["templates"] if before else {}
        kept = {key: template for key, template in templates.items() if key not in mine}
        others.append({**(before or {}), "templates": kept})
    if others[0] != others[1] or mine & _changed_templates(again):
        raise Changed


def _changed_templates(answer: Mapping[str, Any]) -> set[str]:
    return {one["key"] for one in answer["templates"] if one["action"] != "unchanged"}


def _pushed(server: Server, file: File, answer: Mapping[str, Any], *, activate: bool) -> Pushed:
    Seen.beside(file.path, server).keep({file.key: answer["etag"]})
    lines = [f"{file.path.name}: {answer['action']}, {answer['state']}"]
    stays = activate and answer["state"] == "DRAFT"
    lines += [
        f"  {one['code']} at {one['pointer']}: {one['message']}"
        for one in answer["findings"]
        if one["code"] == "case_failed" or (stays and one["severity"] == "error")
    ]
    return Pushed("\n".join(lines), is_done=not stays)
