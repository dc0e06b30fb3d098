"""Pages of the errors: what each means and what to do about it; the `type` of a problem leads
there."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from app.errors import CODES, Problem
from app.web.page import page
from app.web.routing import PUBLIC, Call, get

# Code → what it means, and what to do; HTML.
TEXTS: Mapping[str, tuple[str, str]] = {
    "malformed_json": (
        "The body cannot be parsed as JSON: it is empty, truncated, not UTF-8, nested too deeply,"
        " or contains something that is not JSON, such as NaN.",
        "Send one JSON document (RFC 8259); the detail names the line and column of the error.",
    ),
    "malformed_request": (
        "The request is ambiguous or unreadable: a header is duplicated or out of range, or the"
        " query is not UTF-8.",
        "Fix what the detail names. HTTP libraries do not normally send such requests.",
    ),
    "unauthenticated": (
        "The request has no valid bearer token: it is missing, expired, revoked or altered.",
        "Send one header <code>Authorization: Bearer</code> with an API key or an access token."
        " Access tokens expire after fifteen minutes: get another at <code>/auth/refresh</code>.",
    ),
    "invalid_signature": (
        "A signing secret is set, and the signature of this request is missing, or was not made"
        " with that secret over exactly these bytes.",
        "Send <code>X-Service-Signature: sha256=</code> and the HMAC-SHA256 of the raw body in hex."
        " Sign the exact bytes that you send, not JSON that is serialised again.",
    ),
    "payment_required": (
        "This must be paid for first.",
        "Start a checkout with <code>POST /billing/checkout</code>, then repeat the request.",
    ),
    "forbidden": (
        "You may not do this: because of your role, or for another reason, which the detail says.",
        "Do what the detail says. If your role is too low, ask an admin or owner of the workspace"
        " to do it or to change your role. A key has its own role, which is never higher than that"
        " of the member who created it.",
    ),
    "plan_required": (
        "The workspace's plan does not include this.",
        "An owner can change the plan; <code>GET /billing/plan</code> lists what each includes.",
    ),
    "quota_exceeded": (
        "The workspace has used up what its plan, or its daily limit while it is new, allows.",
        "Wait for the next period, delete what is not needed, or change the plan.",
    ),
    "workspace_suspended": (
        "The operator has suspended this workspace. Nothing in it is lost.",
        "Contact the operator.",
    ),
    "not_found": (
        "Nothing exists at this path, or your workspace has nothing with this ID. Resources"
        " of other workspaces are not found either.",
        "Check the path and ID, and that the key belongs to the right workspace. Paths do not end"
        " in a slash.",
    ),
    "contact_not_found": (
        "What was sent is valid, but no contact has the value that it names, and this request"
        " creates none.",
        "Create the contact first, or turn on <code>createContact</code>: in the trigger of a"
        " webhook, or in the event. An ID alone creates nobody.",
    ),
    "method_not_allowed": (
        "This path does not support this method.",
        "Use one of the methods in the <code>Allow</code> header.",
    ),
    "not_acceptable": (
        "The <code>Accept</code> header excludes the only available format.",
        "Accept <code>application/json</code>, or send no <code>Accept</code> header.",
    ),
    "request_timeout": (
        "The body did not arrive in time, and nothing was done.",
        "Retry, and send the body without delay.",
    ),
    "conflict": (
        "The request conflicts with the current state: for example, another resource has the same"
        " address, or a template is still in use.",
        "Read the detail, and <code>existingId</code> or <code>usedBy</code> if there is one; then"
        " change the request or the conflicting resource.",
    ),
    "last_owner": (
        "A workspace must have an owner, and this would leave it without one.",
        "Make somebody else an owner first.",
    ),
    "invitation_used": (
        "This invitation has already been accepted.",
        "Sign in, or ask for another invitation.",
    ),
    "idempotency_in_progress": (
        "A request with the same <code>Idempotency-Key</code> is still running.",
        "Retry after a second: you then get the response of the first request. Nothing happens"
        " twice.",
    ),
    "stale": (
        "The resource has changed since you read it, and <code>If-Match</code> prevents you from"
        " overwriting that. Or it has no <code>ETag</code>, so nothing matches.",
        "Read it again, apply your change to the current version, and send the new"
        " <code>ETag</code>. If a GET returns none, leave out <code>If-Match</code>.",
    ),
    "body_too_large": (
        "The body is larger than this installation accepts.",
        "Send less per request; the detail states the limit.",
    ),
    "unsupported_media_type": (
        "The <code>Content-Type</code> is not accepted here, or the body is compressed.",
        "Send <code>Content-Type: application/json</code>, in UTF-8, without"
        " <code>Content-Encoding</code>.",
    ),
    "invalid": (
        "The request can be parsed, but is not valid.",
        "Every error is listed in <code>errors</code>, with a JSON Pointer (RFC 6901) to its place"
        " in the body, or the name of the query parameter. Fix them all and retry.",
    ),
    "lookup_unresolved": (
        "The trigger's path leads to nothing in this body that could identify a contact.",
        "Compare the path with the body: the detail names the nearest existing paths. Then fix the"
        " trigger's <code>contactPath</code>, or the body.",
    ),
    "chain_too_long": (
        "The request belongs to a chain of runs that start one another, by HTTP steps or outbound"
        " events: more than ten in a row, or more than 1,000 in all. Nothing was started.",
        "Look for HTTP steps, and for receivers of outbound events, that lead back to their own"
        " workspace, and break the loop.",
    ),
    "not_activatable": (
        "The workflow or automation was not activated, because it cannot run as it is.",
        "Fix every entry of <code>errors</code>; each points to its step or node.",
    ),
    "idempotency_mismatch": (
        "This <code>Idempotency-Key</code> belongs to another request of the last 24 hours.",
        "Use a new key for every new request, and retry a request with exactly the same body.",
    ),
    "rate_limited": (
        "There were too many requests in a short time. This one was not processed.",
        "Wait as many seconds as <code>Retry-After</code> says; <code>RateLimit-Policy</code> says"
        " how many requests are allowed in how many seconds.",
    ),
    "not_implemented": (
        "The method is not one that is known here: methods are case-sensitive.",
        "Send it in capitals, such as <code>GET</code>.",
    ),
    "internal": (
        "This is an error on our side. It has been logged.",
        "Retry; if it persists, give the operator the <code>requestId</code>.",
    ),
    "billing_not_configured": (
        "This installation has no payment provider.",
        "The operator must set one up; until then, plans cannot be changed here.",
    ),
    "unavailable": (
        "A dependency did not answer in time, or this process is being replaced.",
        "Retry after <code>Retry-After</code> seconds. If the detail says that a change was not"
        " confirmed, read the resource first, or retry with an <code>Idempotency-Key</code>.",
    ),
}


async def show(call: Call) -> Response:
    code = call.path("code")
    if code not in TEXTS:
        raise Problem("not_found", "There is no such error.")
    status, title = CODES[code]
    meaning, remedy = TEXTS[code]
    return page(title, f"<code>{code}</code>, status {status}", meaning, remedy)


routes = [get("/problems/{code}", show, can=PUBLIC, tx=None, gives={200: ("text/html",)})]
