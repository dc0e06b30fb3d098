"""Commands for who operates an installation: its keys, trails, limits and administrators."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.accounts import registration as accounts
from app.accounts import sign_in_domains as domains
from app.audience import addresses
from app.audience.addresses import BadAddress
from app.audit import chain, trail
from app.billing import quotas
from app.commands import after_restore as restoring
from app.commands import demo, doctor
from app.config.settings import Settings
from app.errors import Problem, Unavailable
from app.machine import reasons
from app.main import NotReady, cause_of, open_process
from app.process import Process
from app.store import data_keys, retention, user_identities, workspaces
from app.store.sign_in_domains import SignInDomain

T = TypeVar("T")


def _in_process(settings: Settings, act: Callable[[Process], Awaitable[T]]) -> T:
    """Run `act` in a process of this installation, which is opened for it."""

    async def main() -> T:
        async with open_process(settings) as process:
            try:
                return await act(process)
            except Unavailable as problem:
                raise NotReady(
                    f"It was not done to the end: {cause_of(problem)}. Run this again: what was"
                    " done stays."
                ) from problem

    return asyncio.run(main())


def show_demo(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Seed the demo workspace of a sandbox once, and print how to try it."""
    if settings.production:
        raise NotReady("The demo is only for the sandbox: leave ENVIRONMENT unset.")
    print(demo.welcome(settings, _in_process(settings, demo.seed)))
    return 0


def examine(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Check settings, database, keys, clock, Redis and all providers, and say what to fix.

    Exits with 0 when no check fails (warnings do not count), otherwise with 1.
    """

    async def main() -> bool:
        sound = True
        async for finding in doctor.examine(settings):
            print(finding, flush=True)
            sound = sound and finding.verdict != "FAIL"
        return sound

    return 0 if asyncio.run(main()) else 1


def rewrap_keys(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Wrap the data key with the first entry of SECRET_KEY, so that older ones can be removed."""

    async def rewrap(process: Process) -> bool:
        async with process.database.write() as db:
            old = await data_keys.load(db)
            return old is not None and await data_keys.replace(
                db, old=old, new=process.vault.rewrap()
            )

    if not _in_process(settings, rewrap):
        raise NotReady("Another process rewrapped the key at the same time; run this again.")
    print("The data key is wrapped with the first entry of SECRET_KEY.")
    print(
        "Remove the others after fifteen minutes, when the access tokens they signed have expired."
    )
    return 0


def after_restore(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Park what a restored backup says is due. Run this before the workers start.

    Otherwise workers would send again what was sent after the backup. Stop every process first,
    including web: what they accept or send meanwhile would be parked, too. docs/operating.md
    describes the whole restore.
    """
    parked = _in_process(settings, restoring.park)
    print(f"{parked.messages} messages are now UNKNOWN and {parked.runs} runs FAILED, as restored.")
    print(f"{parked.broadcasts} broadcasts are PAUSED: resume or cancel each.")
    print(
        f"{parked.watches} dates and schedules begin anew, and {parked.segments} segments are"
        " filled anew: what time has brought up to now starts no runs."
    )
    print("They are not retried automatically; docs/operating.md says what to do with them.")
    return 0


def verify_audit(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Verify the audit trail of every workspace, and report tampering.

    Exits with 0 when all are whole, and with 1 when one is not. Store the output where nobody with
    write access to the database can change it: a trail whose head is behind one printed earlier
    has been rolled back.
    """

    async def verify(process: Process) -> bool:
        whole, id = True, ""
        while True:
            async with process.database.read() as db:
                page = await retention.next_workspaces(db, id, limit=1)
            if not page:
                return whole
            id = page[0].id
            found = await chain.verify(process, id)
            if found.fault is None:
                head = f"head {found.head.sequence} {found.head.hash.hex()}"
                line = f"whole: {found.entries} entries, {found.unchained} not chained yet, {head}"
            else:
                at = " ".join(str(part) for part in (found.fault.sequence, found.fault.id) if part)
                line = f"NOT WHOLE{at and ' at entry '}{at}: {found.fault.message}"
            print(f"{id}  {line}", flush=True)
            whole = whole and found.fault is None

    return 0 if _in_process(settings, verify) else 1


def grant_super_admin(settings: Settings, arguments: argparse.Namespace) -> int:
    """Make the user with this email address an administrator of every workspace."""
    email = arguments.email

    async def grant(process: Process) -> bool:
        return await accounts.grant_super_admin(process, email, unverified=arguments.unverified)

    if not _in_process(settings, grant):
        raise NotReady(
            f"No user has the address {email} and has verified it, by the link in the mail that"
            " went there; a stranger may have registered with it. If you know that it was you, add"
            " --unverified."
        )
    print(f"{email} is a super-admin.")
    return 0


def set_limit(settings: Settings, arguments: argparse.Namespace) -> int:
    """Set how many messages a day a workspace may send through the operator's channels.

    The number holds until it is set again; "none" restores the default, which is 200 a day in the
    first seven days of a workspace that does not pay, shared by all such workspaces of an owner,
    and afterwards no limit.
    """
    id = arguments.workspace
    limit: int | None = None
    if arguments.limit != "none":
        if not re.fullmatch(r"[0-9]{1,9}", arguments.limit):
            raise NotReady("The limit must be a whole number below 1,000,000,000, or none.")
        limit = int(arguments.limit)

    async def change(process: Process) -> bool:
        async with process.database.write() as db:
            row = await workspaces.locked(db, id=id)
            if row is not None:
                await quotas.set_daily_limit(
                    process, db, trail.OPERATOR, id, before=row.daily_limit, limit=limit
                )
            return row is not None

    if not _in_process(settings, change):
        raise NotReady(f"There is no workspace {id}; GET /admin/workspaces lists them.")
    print(f"{id} has the default limit." if limit is None else f"{id}: {limit} messages a day.")
    return 0


def release_domain(settings: Settings, arguments: argparse.Namespace) -> int:
    """Release a domain for sign-ins that a workspace has claimed; its members stay."""

    async def release(process: Process) -> SignInDomain | None:
        domain = domains.normal(arguments.domain)
        async with process.database.write() as db:
            return await domains.release(process, db, domain)

    try:
        row = _in_process(settings, release)
    except Problem as problem:
        raise NotReady(problem.detail) from None
    if row is None:
        raise NotReady(f"No workspace has claimed {arguments.domain}.")
    print(f"{row.domain} is no longer claimed by {row.workspace_id}.")
    return 0


def release_sign_in(settings: Settings, arguments: argparse.Namespace) -> int:
    """Forget whom single sign-on means by an account: its address's next sign-in takes it over."""

    async def release(process: Process) -> int:
        key = addresses.email(arguments.email).key
        async with process.database.write() as db:
            return await user_identities.release(db, email_key=key)

    try:
        released = _in_process(settings, release)
    except BadAddress as error:
        raise NotReady(f"{arguments.email}: {error}") from None
    if not released:
        raise NotReady(
            f"Nobody has signed in to an account of {arguments.email} by single sign-on."
        )
    print(f"The account of {arguments.email} belongs to nobody at the provider any more.")
    return 0


def show_reasons(_settings: Settings, _arguments: argparse.Namespace) -> int:
    """Print docs/reasons.md: every reason code with its explanation."""
    print(reasons.page(), end="")
    return 0
