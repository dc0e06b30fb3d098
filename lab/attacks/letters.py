"""Section C of the defects: mail, as it is received."""

from __future__ import annotations

import re
from contextlib import suppress

from lab.attacks.lines import Seen, line
from lab.attacks.staging import (
    OUTSIDE,
    Stage,
    code_of,
    codes,
    ended,
    message,
    read,
    run_of,
    unique,
    words_of,
    workflow,
)
from tests.deployment import made, until
from tests.receivers import Received
from tests.servers import free_port


@line("C1", "marketing cannot show an unsubscribe link: no name, no footer, no finding")
def marketing_shows_a_way_out(at: Stage) -> Seen:
    client, found, holds = at.someone(), [], True
    client.patch("/settings/workspace", json={"postalAddress": "1 Long Street, Leeds"})
    contents = {
        "without": "<p>Buy</p>",
        "with": '<p>Buy <a href="{{unsubscribeUrl}}">or not</a>, {{preferencesUrl}},'
        " {{workspace.postalAddress}}</p>",
    }
    for name, html in contents.items():
        content = {"subject": "Buy", "html": html}
        body = {"name": name, "channel": "email", "category": "marketing", "content": content}
        template, to = made(client, "/templates", body), f"{unique()}@people.test"
        contact = made(client, "/contacts", {"email": to})["id"]
        order = {"channel": "email", "contactId": contact, "templateId": template["id"]}
        ended(client, f"/messages/{made(client, '/messages', order)['messageId']}")
        [mail] = at.mails_to(to)
        link = str(mail.mail["List-Unsubscribe"]).strip("<> ").partition(">")[0]
        parts = [_part(mail, "html"), _part(mail, "plain")]
        shown = [link in part and "Long Street" in part for part in parts]
        found.append(f"{name} a link: link and address in HTML and text {shown}, {codes(template)}")
        holds = holds and all(shown) and ("footer_added" in codes(template)) == (name == "without")
    return "; ".join(found), holds


def _part(mail: Received, subtype: str) -> str:
    part = mail.mail.get_body((subtype,))
    return str(part.get_content()) if part else ""


@line("C2", "550 5.1.1 at RCPT: FAILED, and the next mail goes there again")
def a_dead_address_is_left_alone(at: Stage) -> Seen:
    client, seen, holds = at.someone(), [], True
    for reply in ("550 5.1.1 Unknown", "550 5.1.10 Null MX", "550 5.2.1 Disabled"):
        dead = f"{unique()}@dead.test"
        at.mail.at_rcpt[dead] = reply
        first, second = message(client, dead), message(client, dead)
        seen.append(f"{reply[:10].strip()}: {code_of(first)}, then {code_of(second)}")
        holds = holds and (code_of(first), code_of(second)) == (
            "bounced_hard",
            "suppressed_bounced",
        )
    other, outcomes = at.someone(), []
    for number in range(60):
        to = f"{unique()}@many.test"
        if number % 6 == 5:
            at.mail.at_rcpt[to] = "550 5.1.1 Unknown"
        outcomes.append(made(other, "/messages", _mail(to))["messageId"])
    for id in outcomes:
        ended(other, f"/messages/{id}")
    waiting = code_of(message(other, f"{unique()}@many.test"))
    with suppress(AssertionError):
        until(lambda: not read(other, "/suppressions")["data"], "they are undone", seconds=20)
    left = len(read(other, "/suppressions")["data"])
    seen.append(f"10 of 60 refused: the next {waiting}, {left} suppressed")
    return "; ".join(seen), holds and waiting == "recipients_refused" and left == 0


def _mail(to: str) -> dict[str, object]:
    return {"channel": "email", "to": to, "content": {"subject": "Hello", "text": "Hello"}}


@line("C3", 'a name "Ada\\n" in a subject: FAILED, and the run COMPLETED, so nobody sees it')
def a_subject_is_one_line(at: Stage) -> Seen:
    client, to = at.someone(), f"{unique()}@people.test"
    content = {"subject": "Hello {{trigger.name}}", "text": "Hello"}
    send = {"type": "send_message", "channel": "email", "content": content}
    run_of(client, workflow(client, [send]), {"email": to, "name": "Ada\nLovelace\n"})
    [mail] = at.mails_to(to)
    bad = {**send, "content": {"subject": "{{trigger.name | divided_by: 0}}", "text": "Hello"}}
    run = run_of(client, workflow(client, [bad]), {"email": to, "name": "Ada"})
    found = [one["id"] for one in read(client, "/runs?messageStatus=FAILED")["data"]]
    seen = f"subject {mail.subject!r}; a run {run['status']} of a FAILED message is found: "
    return seen + str(found == [run["id"]]), mail.subject == "Hello Ada Lovelace" and (
        found == [run["id"]]
    )


@line("C4", "short From and Subject are folded before their last word")
def short_headers_are_not_folded(at: Stage) -> Seen:
    client, to = at.someone(), f"{unique()}@people.test"
    client.patch("/settings/workspace", json={"sender": {"fromName": "Nora of Acme Books"}})
    message(client, to, subject="Your order has left for you today", text="Hello")
    long = f"{unique()}@people.test"
    message(client, long, subject="Your order has left " * 6, text="Hello")
    [mail], [longer] = at.mails_to(to), at.mails_to(long)
    head = mail.raw.decode().partition("\r\n\r\n")[0]
    lines = [one for one in head.split("\r\n") if one.startswith(("From:", "Subject:"))]
    whole = [
        one.count("\r\n") for one in re.findall(r"(?m)^(?:From|Subject):.*(?:\r\n[ \t].*)*", head)
    ]
    widest = max(map(len, longer.raw.partition(b"\r\n\r\n")[0].split(b"\r\n")))
    return f"{lines}, folds {whole}; of a long subject the widest line has {widest}", (
        whole == [0, 0] and widest <= 78
    )


@line("C5", "plain-text mail refused")
def text_alone_is_a_mail(at: Stage) -> Seen:
    client, to = at.someone(), f"{unique()}@people.test"
    status = message(client, to, subject="Hello", text="Only text")["status"]
    [mail] = at.mails_to(to)
    kind = mail.mail.get_content_type()
    return f"{status}, {kind}", (status, kind) == ("SENT", "text/plain")


@line("C6", '{{contact.first_name}} saves without a word, the mail says "Hi "')
def a_wrong_name_in_a_template_is_told(at: Stage) -> Seen:
    client = at.someone()
    content = {"subject": "Hi", "html": "Hi {{contact.first_name}}"}
    posted = made(client, "/templates", {"name": "T", "channel": "email", "content": content})
    patch = {"content": {"subject": "Hi", "html": "Hello {{contact.first_name}}"}}
    patched = client.patch(f"/templates/{posted['id']}", json=patch).json()
    both = [codes(posted), codes(patched)]
    words = posted["findings"][0]["message"] if posted.get("findings") else ""
    return f"POST and PATCH: {both}: {words}", all("field_unknown" in one for one in both)


@line("C7", "after erasure and re-creation unsubscribed, and the advice cannot be followed")
def who_comes_back_can_be_written_to(at: Stage) -> Seen:
    client, to = at.someone(), f"{unique()}@people.test"
    first = made(client, "/contacts", {"email": to})["id"]
    assert client.delete(f"/contacts/{first}").status_code == 204
    again = made(client, "/contacts", {"email": to})
    named = [one["id"] for one in again.get("suppressions", [])]
    order = {"channel": "email", "contactId": again["id"], "content": {"subject": "s", "text": "t"}}
    refused = ended(client, f"/messages/{made(client, '/messages', order)['messageId']}")
    deleted = [client.delete(f"/suppressions/{id}").status_code for id in named]
    sent = ended(client, f"/messages/{made(client, '/messages', order)['messageId']}")
    seen = f"named {len(named)}; {code_of(refused)}; DELETE {deleted}; then {sent['status']}"
    return seen, bool(named) and code_of(refused) == "suppressed_erased" and sent[
        "status"
    ] == "SENT"


@line("C8", "sendingPaused: QUEUED, reason null; a replay is refused while a retry is pending")
def what_waits_says_why_and_may_be_replayed(at: Stage) -> Seen:
    client = at.someone()
    client.patch("/settings/workspace", json={"sendingPaused": True})
    paused = message(client, f"{unique()}@people.test")
    url = f"http://{OUTSIDE}:{free_port()}/"  # where nobody listens
    endpoint = made(client, "/event-endpoints", {"url": url})["id"]
    made(client, "/contacts", {"email": f"{unique()}@people.test"})
    path = f"/event-endpoints/{endpoint}/attempts"
    until(lambda: [a for a in read(client, path)["data"] if a["tries"]], "it is tried", seconds=30)
    attempt = read(client, path)["data"][0]
    replayed = client.post(f"{path}/{attempt['id']}/replay")
    seen = f"{paused['status']} {code_of(paused)}; replay while {attempt['status']}: "
    holds = (paused["status"], code_of(paused)) == ("QUEUED", "sending_paused")
    return seen + words_of(replayed), holds and replayed.status_code == 202
