"""Section B of the defects: what somebody nobody knows may do."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from contextlib import suppress

from lab.attacks.lines import Seen, Skipped, line
from lab.attacks.staging import PASSWORD, Stage, code_of, message, read, unique, words_of
from tests.deployment import made, until

DOMAIN = "acme.test"  # of MAIL_FROM


@line("B1", "an unverified newcomer sends as security@ the operator's domain: 100,000 a month")
def a_newcomer_earns_sending(at: Stage) -> Seen:
    client, victim = at.someone(verified=False), f"{unique()}@people.test"
    sender = {"sender": {"fromEmail": f"security@{DOMAIN}"}}
    patched = client.patch("/settings/workspace", json=sender)
    refused = code_of(message(client, victim))
    arrived = len(at.mails_to(victim))
    sending = read(client, "/billing/plan")["sending"]
    established = at.someone()
    friend = f"{unique()}@people.test"
    message(established, friend)
    [mail] = at.mails_to(friend)
    seen = (
        f"PATCH: {words_of(patched)}; message: {refused}, {arrived} arrived;"
        f" {sending['dailyLimit']} a day; a verified one writes from {mail.mail['From']}"
    )
    holds = patched.status_code == 422 and refused == "suppressed_unverified" and not arrived
    is_its_own = "<nora-" in mail.mail["From"]
    return seen, holds and sending["dailyLimit"] == 200 and is_its_own


@line("B2", "unverified: 200 invitations in 6.8 s, its own words and URLs in their subject")
def a_newcomer_writes_no_letters_to_strangers(at: Stage) -> Seen:
    unverified = at.someone(verified=False)
    invited = [f"{unique()}@invited.test" for _ in range(20)]
    answers = [
        unverified.post("/memberships", json={"email": one, "role": "viewer"}) for one in invited
    ]
    statuses = Counter(map(words_of, answers))
    named = at.someone(workspaceName="Win at http://evil.test/now")
    somebody = f"{unique()}@invited.test"
    made(named, "/memberships", {"email": somebody, "role": "viewer"})
    until(lambda: at.mails_to(somebody), "the letter of a verified owner arrives", seconds=30)
    letters = sum(len(at.mails_to(one)) for one in invited)
    subject, text = at.mails_to(somebody)[0].subject, at.mails_to(somebody)[0].raw.decode()
    founded = [named.post("/workspaces", json={"name": "W"}) for _ in range(8)]
    more = Counter(map(words_of, founded))
    seen = (
        f"20 invitations: {dict(statuses)}, {letters} letters; subject of a verified one:"
        f" {subject!r}; eight workspaces more: {dict(more)}"
    )
    verify_first = all("/auth/email/verification" in answer.text for answer in answers)
    holds = not letters and verify_first and "evil.test" not in text
    return seen, holds and 0 < more["201"] < 8


@line("B3", "ten register calls with a victim's address: the victim's right password gets 429")
def nobody_locks_another_out(at: Stage) -> Seen:
    victim, attacker = at.someone(), at.stranger()
    email = victim.headers["X-Email"]
    registration = {"email": email, "password": PASSWORD, "name": "N", "workspaceName": "N"}
    tried = Counter[int]()
    for _ in range(12):
        tried[attacker.post("/auth/register", json=registration).status_code] += 1
        attacker.post("/auth/token", json={"email": email, "password": "wrong, wrong"})
        attacker.post("/auth/password/forgot", json={"email": email})
    credentials = {"email": email, "password": PASSWORD}
    owner = at.stranger()
    owner.headers["X-Forwarded-For"] = "198.51.100.7"
    signed_in = owner.post("/auth/token", json=credentials)
    until(lambda: at.mails_to(email), "a letter arrives", seconds=30)
    time.sleep(3)
    before = len(at.mails_to(email))
    owner.post("/auth/password/forgot", json={"email": email})
    with suppress(AssertionError):
        until(lambda: len(at.mails_to(email)) > before, "the owner's reset arrives", seconds=30)
    reset = len(at.mails_to(email)) - before
    seen = (
        f"12 registrations: {dict(tried)}; the owner signs in: {signed_in.status_code};"
        f" {before} letters, then the owner's own reset: {reset}"
    )
    return seen, signed_in.status_code == 200 and reset == 1


@line("B4", "POST /memberships makes an account a member unasked, and answers its name and id")
def nobody_is_a_member_unasked(at: Stage) -> Seen:
    owner, known = at.someone(), at.someone()
    shown = [
        made(owner, "/memberships", {"email": email, "role": "viewer"})
        for email in (known.headers["X-Email"], f"{unique()}@invited.test")
    ]
    differing = ("id", "email", "invitation", "createdAt")
    parts = [{k: v for k, v in one.items() if k not in differing} for one in shown]
    workspaces = [one["name"] for one in read(known, "/workspaces")["data"]]
    seen = f"{parts[0]}, for both; the known one's workspaces: {workspaces}"
    holds = parts[0] == parts[1] and parts[0]["status"] == "PENDING" and len(workspaces) == 1
    return seen, holds and parts[0]["userId"] is None and parts[0]["name"] is None


class WithoutTls:
    """A mail server between, which has taken STARTTLS out of the offer; what it is told."""

    def __init__(self, host: str) -> None:
        self.lines: list[bytes] = []
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection, suppress(OSError), connection.makefile("rb") as lines:
                    connection.sendall(b"220 mail.test ESMTP\r\n")
                    for text in lines:
                        self.lines.append(text)
                        hello = text.upper().startswith(b"EHLO")
                        answer = (
                            b"250-mail.test\r\n250 AUTH PLAIN LOGIN\r\n" if hello else b"235 Ok\r\n"
                        )
                        connection.sendall(answer)


@line("B5", "STARTTLS stripped: AUTH PLAIN in clear")
def no_password_goes_in_clear(at: Stage) -> Seen:
    host = _own_address()
    server = WithoutTls(host)
    url = f"smtp://user:hunter2hunter2@{host}:{server.port}"
    with at.booted(SMTP_URL=url, EGRESS_ALLOW=f"{host}/32") as it:
        client = at.someone(it)
        operators = code_of(message(client, f"{unique()}@people.test"))
        given = {"provider": "smtp", "url": url, "from": "Acme <hello@own.test>"}
        own = client.put("/settings/channels/email", json=given)
        verified = client.post("/settings/channels/email/verify", json={})
        findings = [one["code"] for one in verified.json().get("findings", [])]
        mine = code_of(message(client, f"{unique()}@people.test"))
    server.listener.close()
    spoken = [text for text in server.lines if text.upper().startswith((b"AUTH", b"MAIL"))]
    seen = (
        f"the operator's: {operators}; a workspace's: PUT {own.status_code}, verify {findings},"
        f" message {mine}; the server heard {len(server.lines)} lines, {len(spoken)} AUTH or MAIL"
    )
    return seen, not spoken and bool(server.lines) and findings == ["tls"]


def _own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError as error:
            raise Skipped("needs an address that is not loopback") from error
        return str(probe.getsockname()[0])
