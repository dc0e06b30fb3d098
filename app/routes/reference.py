"""The OpenAPI document that clients program against, and the page over it that people read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starlette.responses import HTMLResponse, Response

from app.machine import document
from app.routes.outbound_events import EVENTS
from app.simulation.cases import Case
from app.web import conditions, openapi, reference, schemas
from app.web.packing import packed
from app.web.reference import HEADERS
from app.web.reply import Revised
from app.web.routing import PUBLIC, Call, Endpoint, get

VERSION = "1"

# --- what values look like, by field or `Model.field` ---------------------------------------------

CONTACT_ID = "con_01kk8f3m9xe2vb4z7c1q5t6w8y"
CONTENT = {
    "subject": 'Welcome, {{contact.firstName | default: "friend"}}',
    "html": "<p>You picked <b>{{trigger.data.plan}}</b>.</p>",
}
SENDING = {
    "type": "send_message",
    "channel": "email",
    "templateId": "tpl_01kk8f3m9xe2vb4z7c1q5t6w8y",
}
STEPS = [
    {
        "type": "branch",
        "cases": [
            {
                "when": {"path": "trigger.data.plan", "op": "eq", "value": "pro"},
                "steps": [{"type": "add_tag", "tag": "pro"}],
            }
        ],
    },
    SENDING,
]
GRAPH = {
    "nodes": [
        {"id": "start", "type": "trigger", "position": {"x": 0, "y": 0}, "data": {}},
        {
            "id": "hi",
            "type": "send_message",
            "position": {"x": 0, "y": 120},
            "data": {name: value for name, value in SENDING.items() if name != "type"},
        },
    ],
    "edges": [{"id": "e1", "source": "start", "target": "hi"}],
}
WEBHOOK = {
    "source": "inbound_webhook",
    "contactLookup": "email",
    "contactPath": "data.email",
    "createContact": True,
    "contactDefaults": {"firstName": "{{trigger.data.name}}", "tags": ["lead"]},
}
WANTED = {"steps": [{"nodeId": "steps[0]", "port": "case1"}]}
EVENT = {"data": {"email": "ada@example.com", "name": "Ada", "plan": "pro"}}
PAID = {
    "match": {"email": "ada@example.com"},
    "name": "order_paid",
    "properties": {"total": 49.9},
    "occurredAt": "2026-03-14T09:26:53.589Z",
    "id": "order-1042-paid",
    "createContact": True,
}

FILE: Mapping[str, Any] = {
    "key": "welcome",
    "name": "Welcome",
    "definition": {
        "trigger": WEBHOOK,
        "steps": [{"id": "hi", "type": "send_message", "channel": "email", "templateId": "hi"}],
    },
    "templates": {
        "hi": {
            "name": "Welcome",
            "channel": "email",
            "category": "transactional",
            "content": CONTENT,
        }
    },
}
EXAMPLES: Mapping[str, Any] = {
    "contactId": CONTACT_ID,
    "workspaceId": "ws_01kk8f3m9xe2vb4z7c1q5t6w8y",
    "email": "ada@example.com",
    "to": "ada@example.com",
    "from": "Tidings <hello@tidings.example>",
    "phone": "+4915112345678",
    "firstName": "Ada",
    "lastName": "Lovelace",
    "name": "Welcome",
    "workspaceName": "Acme",
    "WritableSegment.kind": "live",
    "SegmentShape.kind": "live",
    "ContactSegment.kind": "live",
    "ContactSegment.name": "Gold",
    "NamesInUse": {
        "fields": [{"name": "plan", "types": ["string"]}],
        "events": ["order_paid"],
    },
    "HtmlPreview": {
        "length": 9,
        "sha256": "9c655e84ab91015eed7670dfbb369ffdc31f6efe04ef8bad2615cab6b9e63ca6",
    },
    "Workspace.name": "Acme",
    "OwnWorkspace.name": "Acme",
    "WritableWorkspace.name": "Acme",
    "NewWorkspace.name": "Acme",
    "Removal.name": "Acme",
    "WorkspacePatch": {"timezone": "Europe/Berlin", "country": "DE"},
    "User.name": "Olivia Owner",
    "User.email": "olivia@example.com",
    "Registration.name": "Olivia Owner",
    "Registration.email": "olivia@example.com",
    "Credentials": {"email": "olivia@example.com", "password": "correct horse battery"},
    "Held.reason": "erased",
    "ProviderTrouble.code": "provider_throttled",
    "Forgotten.email": "olivia@example.com",
    "Membership.name": "Ed Editor",
    "Membership.email": "ed@example.com",
    "NewMember.email": "ed@example.com",
    "Invitation.email": "ed@example.com",
    "Acceptance.name": "Ed Editor",
    "role": "editor",
    "password": "correct horse battery",
    "currentPassword": "correct horse battery",
    "newPassword": "staple correct horse",
    "accessToken": "eyJhbGciOiJIUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJ1c3JfMDEifQ.c2lnbmVk",
    "refreshToken": "rt_9vXq2LrT7dPz4KfWm8YbHn",
    "session": None,
    "SignInLink.session": "cookie",
    "token": "nE7vR2mKq9XbT4wLz8PdYc1FhGsJ6a",
    "expiresIn": 900,
    "permissions": ["contacts:read", "contacts:write"],
    "timezone": "Europe/Berlin",
    "country": "DE",
    "locale": "de-DE",
    "metadata": {"plan": "pro", "hubspotId": 981230455},
    "?metadata": {"plan": "pro"},
    "tags": ["lead"],
    "subscriptions": {"email": "subscribed", "sms": "unsubscribed", "whatsapp": "subscribed"},
    "topics": {"top_01kk8f3m9xe2vb4z7c1q5t6w8y": {"email": "subscribed"}},
    "QuietHours": {"from": "21:00", "to": "08:00", "maxWait": "PT12H"},
    "FrequencyCap": {"limit": 3, "window": "P7D"},
    "sendAt": "2026-03-14T09:00:00Z",
    "topicId": "top_01kk8f3m9xe2vb4z7c1q5t6w8y",
    "WritableTemplate.topicId": None,
    "Template.topicId": None,
    "TemplateSummary.topicId": None,
    "WritableTopic.name": "Offers",
    "TopicShape.name": "Offers",
    "channels": ["email"],
    "doubleOptIn": False,
    "isDefault": False,
    "evidence": "“Send me offers, at most once a week”",
    "TopicAnswer.source": "checkout form",
    "IdentifiedContact.consent": {"source": "checkout form"},
    "address": "ada@example.com",
    "source": "link",
    "?reason": "bounced",
    "Suppression.reason": "unsubscribed",
    "Consent.reason": "unsubscribed",
    "inFlight": [],
    "tag": "lead",
    "Tag.name": "lead",
    "NewKey": {"name": "Warehouse sync", "role": "editor"},
    "ApiKey.name": "Warehouse sync",
    "NewApiKey.name": "Warehouse sync",
    "key": "td_live_8kQ2mZr5TxW1vBn7LcYp4HdGs9JfKa0EuRi3o",
    "last4": "Ri3o",
    "madeBy": "usr_01kk8f3m9xe2vb4z7c1q5t6w8y",
    "channel": "email",
    "content": CONTENT,
    "Template.variables": ["contact.firstName", "trigger.data.plan"],
    "subject": "Welcome, Ada",
    "text": "You picked pro.",
    "html": "<p>You picked <b>pro</b>.</p>",
    "TestEmail": {"to": "ada@example.com", **CONTENT, "data": EVENT},
    "NewMessage": {
        "channel": "email",
        "contactId": CONTACT_ID,
        "content": CONTENT,
        "data": EVENT,
    },
    "Message.content": {"subject": "Welcome, Ada", "html": "<p>You picked <b>pro</b>.</p>"},
    "Rendered": {
        "subject": {"rendered": "Welcome, Ada"},
        "html": {"error": "trigger.data.plan is not there."},
    },
    "Preview": {"trigger": EVENT},
    "UnsavedPreview": {
        "template": {"name": "Welcome", "channel": "email", "content": CONTENT},
        "trigger": EVENT,
    },
    "UnsavedAutomation": {
        "definition": {"name": "Welcome", "trigger": WEBHOOK, "graph": GRAPH},
        "trigger": EVENT,
    },
    "UnsavedWorkflow": {
        "definition": {"name": "Welcome", "trigger": WEBHOOK, "steps": STEPS},
        "trigger": EVENT,
    },
    "VersionDifference": {
        "before": 1,
        "after": 2,
        "trigger": {"contactPath": ["data.email", "data.customer.email"]},
        "nodes": {
            "added": [{"id": "pause", "type": "wait"}],
            "removed": [],
            "changed": [
                {
                    "id": "hi",
                    "type": "send_message",
                    "members": {"to": [None, "{{trigger.data.email}}"]},
                }
            ],
        },
        "edges": {
            "added": [{"source": "trigger", "port": "next", "target": "pause"}],
            "removed": [{"source": "trigger", "port": "next", "target": "hi"}],
        },
        "runs": {"1": 12, "2": 0},
    },
    "Copy": {"name": "Welcome, again"},
    "DefinitionFile": FILE,
    "Import": {"file": FILE, "mode": "update"},
    "Imported": {
        "action": "updated",
        "id": "wfl_01kk8f3m9xe2vb4z7c1q5t6w8y",
        "key": "welcome",
        "name": "Welcome",
        "state": "DRAFT",
        "findings": [],
        "templates": [
            {
                "key": "hi",
                "id": "tpl_01kk8f3m9xe2vb4z7c1q5t6w8y",
                "name": "Welcome",
                "action": "unchanged",
            }
        ],
        "before": {**FILE, "name": "Hello"},
        "etagBefore": '"6d1c2e0f9b8a7d5e4c3b2a10"',
        "file": FILE,
        "etag": '"0f9b8a7d5e4c3b2a106d1c2e"',
    },
    "Explaining": {
        "at": "2026-03-14T09:26:53.589Z",
        "code": "other_branch",
        "sentence": "The run left known by else, which does not lead to hello.",
        "reason": "condition_false",
        "evidence": {
            "type": "run",
            "id": "run_01kk8f3m9xe2vb4z7c1q5t6w8y",
            "nodeId": "known",
        },
    },
    "Unchecked": {"name": "Welcome", "trigger": {"source": "event"}},
    "CheckResult": {
        "findings": [
            {
                "severity": "error",
                "code": "name_missing",
                "pointer": "/trigger/name",
                "message": "Say which event of a contact starts a run.",
            }
        ],
        "positions": {"trigger": {"x": 0.0, "y": 0.0}, "steps[0]": {"x": 0.0, "y": 91.0}},
    },
    "Asked": {
        "trigger": EVENT,
        "contactId": CONTACT_ID,
        "startAt": "2026-03-14T09:26:53.589Z",
        "events": [{"at": "P1D", "name": "trial_ended"}],
    },
    "Given": {
        "trigger": EVENT,
        "contact": {"email": "ada@example.com"},
        "startAt": "2026-03-14T09:26:53.589Z",
    },
    "Expected": WANTED,
    "Case.name": "a pro",
    "CaseResults": {
        "passes": False,
        "cases": [
            {
                "name": "a pro",
                "passes": False,
                "difference": 'At /steps/0/port there is "else", not "case1".',
                "expected": WANTED,
                "actual": {"steps": [{"nodeId": "steps[0]", "port": "else"}]},
            }
        ],
    },
    "WritableEvent.name": "trial_ended",
    "IdentifiedContact": {
        "match": {"email": "ada@example.com"},
        "firstName": "Ada",
        "metadata": {"customerId": 981230455, "plan": "pro"},
    },
    "Match": {"email": "ada@example.com"},
    "ReportableEvent": PAID,
    "ReportedEvents": {
        "events": [PAID, {"match": {"metadata": {"customerId": 7}}, "name": "seen"}]
    },
    "RecordedEvent.name": "order_paid",
    "RecordedEvent.replayed": False,
    "EventOutcomes": {
        "recorded": 1,
        "refused": 1,
        "outcomes": [
            {
                "status": 202,
                "event": {
                    "id": "evt_01kk8f3m9xe2vb4z7c1q5t6w8y",
                    "contactId": CONTACT_ID,
                    "name": "order_paid",
                    "at": "2026-03-14T09:26:53.589Z",
                    "replayed": False,
                },
                "problem": None,
            },
            {
                "status": 404,
                "event": None,
                "problem": {
                    "code": "contact_not_found",
                    "detail": "No contact matches the metadata field customerId; create it first.",
                    "errors": [],
                },
            },
        ],
    },
    "Event": EVENT,
    "trigger": EVENT,
    "WritableBroadcast": {
        "name": "Summer sale",
        "tag": "lead",
        "templateId": "tpl_01kk8f3m9xe2vb4z7c1q5t6w8y",
    },
    "BroadcastSummary.name": "Summer sale",
    "BroadcastShape.name": "Summer sale",
    "RecipientShape.reason": "unsubscribed",
    "TemplatePatch": {"content": {"subject": "Good to see you"}},
    "ContactPatch": {"firstName": "Ada", "metadata": {"plan": "pro", "trialEnds": None}},
    "AutomationPatch": {"state": "ACTIVE"},
    "WorkflowPatch": {"state": "ACTIVE"},
    "WritableTrigger": WEBHOOK,
    "WritableAutomation": {
        "name": "Welcome",
        "trigger": WEBHOOK,
        "graph": GRAPH,
    },
    "WritableWorkflow": {"name": "Welcome", "trigger": WEBHOOK, "steps": STEPS},
    "Trigger": {
        **WEBHOOK,
        "signingSecretSet": True,
        "signingSecretLast4": "9f3c",
        "webhookUrl": "https://tidings.example/v1/webhooks/in/nE7vR2mKq9XbT4wLz8PdYc1FhGsJ6a",
    },
    "Workflow.steps": STEPS,
    "graph": GRAPH,
    "findings": [],
    "triggerSource": "inbound_webhook",
    "kind": "send_message",
    "depth": None,
    "root": None,
    "ProviderFault.kind": "throttle",
    "NewProviderFault.kind": "throttle",
    "nodeId": "hi",
    "port": None,
    "output": None,
    "reason": None,
    "waitingFor": None,
    "url": "https://example.com/hooks",
    "provider": "smtp",
    "NewChannel": {
        "provider": "smtp",
        "url": "smtps://user:secret@smtp.example.com",
        "from": "Tidings <hello@tidings.example>",
    },
    "ProviderChoice.name": "smtp",
    "Credential.name": "url",
    "Credential.label": "URL, smtps://user:password@host",
    "Channel.url": "smtps://user@smtp.example.com",
    "providerMessageId": "<01kk8f3m@tidings.example>",
    "NewReply": {"channel": "sms", "from": "+4915112345678", "text": "STOP"},
    "meaning": "stop",
    "answer": "Acme: you will get no more messages. Reply START to resume.",
    "DeliveryAttempt.events": [
        {"at": "2026-03-14T09:26:53.589Z", "status": "SENT", "code": None, "detail": None}
    ],
    "headers": {"Subject": "Welcome, Ada"},
    "action": "contact.created",
    "AuditLog.actor": {
        "type": "api_key",
        "id": "key_01kk8f3m9xe2vb4z7c1q5t6w8y",
        "name": "Warehouse sync",
    },
    "AuditLog.resource": {"type": "contact", "id": CONTACT_ID},
    "changes": {"firstName": [None, "Ada"]},
    "ip": "203.0.113.9",
    "requestId": openapi.REQUEST_ID,
    "hash": "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
    "fault": None,
    "nextCursor": None,
    "q": "ada",
    "code": "invalid",
    "Document": {"openapi": "3.1.0"},
    "DefinitionSchema": {"$schema": "https://json-schema.org/draft/2020-12/schema"},
}


# --- the two answers ------------------------------------------------------------------------------


class Document(Revised, extra="allow"):
    """OpenAPI 3.1 document of this API."""

    openapi: str


class DefinitionSchema(Revised, extra="allow"):
    """A JSON Schema (2020-12)."""


@lru_cache(1)
def definition_schema() -> bytes:
    return document.dumps({"title": "Tidings definition", **schemas.standing_alone(Case)})


KEPT = {"Cache-Control": "no-cache"}  # by the browser, and asked for again


@dataclass(frozen=True, slots=True)
class Written:
    document: bytes
    page: str
    tag: str


def routes(everywhere: Sequence[Endpoint], in_the_sandbox: Sequence[Endpoint]) -> list[Endpoint]:
    """`everywhere` is read when they are first asked for: what is added to it later is told too."""

    @lru_cache(4)
    def written(base_url: str, production: bool) -> Written:
        endpoints = everywhere if production else [*everywhere, *in_the_sandbox]
        found = openapi.document(
            endpoints, base_url=base_url, version=VERSION, examples=EXAMPLES, events=EVENTS
        )
        text = document.dumps(found)
        return Written(text, reference.page(found), conditions.digest(text))

    writing = asyncio.Lock()

    async def read_document(call: Call) -> Response:
        """Read the OpenAPI 3.1 document of this API."""
        found = await _of(call)
        headers = {"ETag": found.tag, **KEPT}
        response = Response(found.document, headers=headers, media_type="application/json")
        return packed(call.request.headers, response)

    async def read_definition_schema(call: Call) -> Response:
        """A JSON Schema (2020-12) of definitions in files, as in docs/examples, for editors that
        check what is typed: a workflow or an automation that may be active, with its templates and
        what is tried with it."""
        text = await asyncio.to_thread(definition_schema)
        headers = {"ETag": conditions.digest(text), **KEPT}
        response = Response(text, headers=headers, media_type="application/json")
        return packed(call.request.headers, response)

    async def read_reference(call: Call) -> Response:
        """The same as a page for people."""
        found = await _of(call)
        return packed(call.request.headers, HTMLResponse(found.page, headers={**HEADERS, **KEPT}))

    async def _of(call: Call) -> Written:
        """Written once, in a thread, for it takes a moment; all who ask meanwhile wait for it."""
        settings = call.process.settings
        if not written.cache_info().currsize:
            async with writing:
                await asyncio.to_thread(written, settings.base_url, settings.production)
        return written(settings.base_url, settings.production)

    return [
        get("/openapi.json", read_document, can=PUBLIC, tx=None, gives={200: Document}),
        get(
            "/definition-schema",
            read_definition_schema,
            can=PUBLIC,
            tx=None,
            gives={200: DefinitionSchema},
        ),
        get("/docs", read_reference, can=PUBLIC, tx=None, gives={200: ("text/html",)}),
    ]
