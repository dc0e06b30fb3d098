"""Every screen: nothing foreign, nothing said by the browser, accessible, and fit for a phone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import AXE, Service, opened

# Names, subjects, tags, keys and bodies as somebody would send who wants a script to run.
HOSTILE = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>"
# What colours and the width change; the rest of a screen is the same.
LOOKS = ("color-contrast", "scrollable-region-focusable")
SCREENS = (
    "/",
    "/runs",
    "/runs?status=FAILED",
    "/runs/{run}",
    "/contacts",
    "/contacts?q=nobody-is-called-so",
    "/contacts/new",
    "/contacts/import",
    "/contacts/{contact}?why=all",
    "/segments",
    "/segments/new",
    "/segments/{segment}",
    "/segments/{segment}/edit",
    "/broadcasts",
    "/broadcasts?state=PAUSED",
    "/broadcasts/new",
    "/broadcasts/{broadcast}",
    "/broadcasts/{broadcast}/edit",
    "/events/{event}",
    "/messages",
    "/messages/{message}",
    "/inbox",
    "/flows",
    "/flows/workflows/{flow}",
    "/flows/workflows/{flow}/edit",
    "/flows/workflows/{flow}/versions",
    "/flows/workflows/{flow}/requests",
    "/flows/automations/{drawn}/edit",
    "/flows/new",
    "/requests/{request}",
    "/templates",
    "/templates/new",
    "/templates/{template}",
    "/settings/workspace",
    "/settings/account",
    "/settings/members",
    "/settings/keys",
    "/settings/channels",
    "/settings/endpoints",
    "/settings/suppressions",
    "/settings/topics",
    "/settings/audit",
    "/settings/plan",
    "/nothing/is/here",
)


@pytest.fixture(scope="session")
def ids(service: Service) -> dict[str, str]:
    """A workspace in which everything that people can write is hostile."""
    template = service.made(
        "/templates",
        {
            "name": HOSTILE,
            "channel": "email",
            "content": {"subject": "{{trigger.data.name}}", "html": f"<h1>Hi</h1>{HOSTILE}"},
        },
    )
    flow = service.made(
        "/workflows",
        {
            "name": HOSTILE,
            "state": "ACTIVE",
            "trigger": {
                "source": "inbound_webhook",
                "contactLookup": "email",
                "contactPath": "data.email",
                "createContact": True,
                "contactDefaults": {"firstName": "{{trigger.data.name}}", "tags": [HOSTILE[:40]]},
            },
            "steps": [
                {
                    "type": "branch",
                    "cases": [
                        {
                            "when": {"path": "trigger.data.name", "op": "eq", "value": HOSTILE},
                            "steps": [{"type": "add_tag", "tag": "hostile"}],
                        }
                    ],
                },
                {"type": "send_message", "channel": "email", "templateId": template["id"]},
            ],
        },
    )
    hook = flow["trigger"]["webhookUrl"]
    event = {"data": {"email": "mallory@example.com", "name": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}}}
    headers = {"Content-Type": "application/json", "User-Agent": HOSTILE}
    accepted = service.api.post(hook, content=json.dumps(event), headers=headers).json()
    refused = service.api.post(hook, content=json.dumps({HOSTILE: HOSTILE}), headers=headers)
    assert refused.status_code == 422
    service.made("/event-endpoints", {"url": "https://example.com/h", "description": HOSTILE})
    run = service.until(lambda: finished(service, accepted["runId"]))
    requests = service.read(f"/workflows/{flow['id']}/webhook-requests?outcome=REFUSED")["data"]
    node = {"id": HOSTILE[:60], "type": "add_tag", "data": {"tag": HOSTILE}}
    drawn = service.made("/automations", {"name": HOSTILE, "graph": {"nodes": [node]}})
    named = {"name": HOSTILE[:60], "properties": {HOSTILE: HOSTILE}}
    event = service.made(f"/contacts/{run['contactId']}/events", named)
    filter = {"path": "contact.tags", "op": "contains", "value": HOSTILE[:40]}
    segment = service.made("/segments", {"name": HOSTILE, "filter": filter})
    channels = {"name": HOSTILE, "description": HOSTILE, "channels": ["email"]}
    service.made("/topics", channels)
    audience = {"tag": HOSTILE[:40], "templateId": template["id"]}
    broadcast = service.made("/broadcasts", {"name": HOSTILE, **audience})
    return {
        "broadcast": broadcast["id"],
        "segment": segment["id"],
        "event": event["id"],
        "drawn": drawn["id"],
        "run": run["id"],
        "contact": run["contactId"],
        "message": run["steps"][-1]["message"]["id"],
        "flow": flow["id"],
        "request": requests[0]["id"],
        "template": template["id"],
    }


def finished(service: Service, run_id: str) -> Any:
    run = service.read(f"/runs/{run_id}")
    return run if run["finishedAt"] else None


@pytest.mark.parametrize("path", SCREENS)
def test_a_screen_is_clean_accessible_and_fits_a_phone(
    page: Page, service: Service, ids: dict[str, str], path: str
):
    """Light on a desk, and dark on a phone."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")
    opened(page, service, path.format(**ids))
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    assert violations(page, *LOOKS) == []
    assert sideways(page) <= 0
    assert "ran" not in page.title().split()


def sideways(page: Page) -> int:
    """By how much the page is wider than its window."""
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(wider))


def violations(page: Page, *rules: str) -> list[str]:
    """By these rules of axe-core, or by all."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text("utf-8"))
    options = {"iframes": False, **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("options => axe.run(options)", options)
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
    ]
