"""A Stripe on a port of its own, as far as we use it: it keeps customers, sessions and
subscriptions, honours idempotency keys, refuses what Stripe refuses, and signs its events."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.config.plans import PLANS
from app.config.settings import Settings
from app.web import server

SECRET_KEY, WEBHOOK_SECRET = "sk_test_of_this_server", "whsec_of_this_endpoint"
PRICES = {"growth": "price_growth", "scale": "price_scale"}
PERIOD = 30 * 86_400


def signature(payload: bytes, *, secret: str = WEBHOOK_SECRET, at: int | None = None) -> str:
    moment = int(time.time()) if at is None else at
    signed = hmac.new(secret.encode(), f"{moment}.".encode() + payload, sha256).hexdigest()
    return f"t={moment},v1={signed}"


def event(kind: str, about: Mapping[str, Any], **more: Any) -> bytes:
    """Make an event as Stripe lays it out."""
    payload = {
        "id": f"evt_{secrets.token_hex(8)}",
        "object": "event",
        "api_version": "2025-03-31.basil",
        "created": int(time.time()),
        "livemode": False,
        "type": kind,
        "data": {"object": about},
        **more,
    }
    return json.dumps(payload, indent=2).encode()


def priced(plan: str) -> dict[str, Any]:
    """Make a price as Stripe shows it."""
    return {
        "id": PRICES[plan],
        "object": "price",
        "active": True,
        "currency": "usd",
        "unit_amount": PLANS[plan].price,
        "recurring": {"interval": "month", "interval_count": 1},
    }


@dataclass
class StripeServer:
    """`gates` hold back the answer to the next listings of subscriptions, one each, which say what
    was so when they were asked; `down` answers nothing but 500. `collides` holds back the next
    answer under a key until another request with that key was refused, and counts those."""

    port: int
    prices: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {PRICES[plan]: priced(plan) for plan in PRICES}
    )
    customers: dict[str, dict[str, Any]] = field(default_factory=dict)
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    subscriptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    forms: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    gates: list[tuple[asyncio.Event, asyncio.Event]] = field(default_factory=list)
    pays_listed: bool = False  # of open sessions, as soon as they are listed
    down: bool = False
    collides: bool = False
    collisions: int = 0
    _in_use: dict[str, asyncio.Event] = field(default_factory=dict)
    _kept: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # --- what people do there ---------------------------------------------------------------------

    def pay(self, session_id: str, *, status: str = "active") -> bytes:
        """Pay on the page of the session; returns the event that reports it."""
        session = self.sessions[session_id]
        if session["status"] != "open":
            raise LookupError(f"the page of this session is {session['status']}")
        session["status"] = "complete"
        now = int(time.time())
        subscription = {
            "id": f"sub_{secrets.token_hex(8)}",
            "object": "subscription",
            "customer": session["customer"],
            "status": status,
            "created": now + len(self.subscriptions),
            "cancel_at_period_end": False,
            "livemode": False,
            "metadata": {"plan": session["form"]["subscription_data[metadata][plan]"]},
            "items": {
                "object": "list",
                "data": [
                    {
                        "id": f"si_{secrets.token_hex(8)}",
                        "object": "subscription_item",
                        "price": {
                            "id": session["form"]["line_items[0][price]"],
                            "object": "price",
                        },
                        "current_period_end": now + PERIOD,
                    }
                ],
            },
        }
        self.subscriptions[subscription["id"]] = subscription
        about = {**_shown(session), "subscription": subscription["id"]}
        return event("checkout.session.completed", about)

    def newest(self, table: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        return list(table.values())[-1]

    def live(self) -> list[str]:
        """List what is charged for: prices."""
        return [
            one["items"]["data"][0]["price"]["id"]
            for one in self.subscriptions.values()
            if one["status"] == "active"
        ]

    # --- its API ----------------------------------------------------------------------------------

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    @property
    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/prices", self._answer),
                Route("/v1/prices/{id}", self._answer),
                Route("/v1/customers", self._answer, methods=["POST"]),
                Route("/v1/checkout/sessions", self._answer, methods=["GET", "POST"]),
                Route("/v1/checkout/sessions/{id}/expire", self._answer, methods=["POST"]),
                Route("/v1/subscriptions", self._answer),
                Route("/v1/subscriptions/{id}", self._answer, methods=["GET", "POST", "DELETE"]),
            ]
        )

    async def _answer(self, request: Request) -> Response:
        if self.down:
            return JSONResponse({"error": {"type": "api_error"}}, 500)
        if request.headers.get("authorization") != f"Bearer {SECRET_KEY}":
            return _refused(401, "Invalid API Key provided")
        text = (await request.body()).decode() or request.url.query
        form = {name: one for name, [one] in parse_qs(text, keep_blank_values=True).items()}
        self.forms.append((f"{request.method} {request.url.path}", form))
        if request.method != "POST":
            return await self._done(request, form)
        media_type = request.headers.get("content-type", "")
        assert media_type == "application/x-www-form-urlencoded" or not form, media_type
        return await self._once(request, form)

    async def _once(self, request: Request, form: dict[str, str]) -> Response:
        """docs.stripe.com/api/idempotent_requests."""
        key = request.headers["idempotency-key"]
        path, asked, answer = self._kept.get(key, (request.url.path, form, None))
        if (path, asked) != (request.url.path, form):
            return _refused(400, "Keys for idempotent requests can only be used with the same form")
        if answer is not None:
            return JSONResponse(answer, headers={"idempotent-replayed": "true"})
        if key in self._in_use:
            self.collisions += 1
            self._in_use[key].set()
            return _refused(409, "There is another request in progress using this key", IN_USE)
        self._in_use[key] = asyncio.Event()
        if self.collides:
            self.collides = False
            await self._in_use[key].wait()
        response = await self._done(request, form)
        del self._in_use[key]
        if response.status_code == 200:
            self._kept[key] = (path, form, json.loads(bytes(response.body)))
        return response

    async def _done(self, request: Request, form: dict[str, str]) -> Response:
        match request.method, request.url.path.split("/")[2:]:
            case "GET", ["prices"]:
                listed = list(self.prices.values())[: int(form["limit"])]
                return JSONResponse({"object": "list", "has_more": False, "data": listed})
            case "GET", ["prices", id] if id in self.prices:
                return JSONResponse(self.prices[id])
            case "GET", ["prices", id]:
                return _refused(404, f"No such price: '{id}'")
            case "POST", ["customers"]:
                return JSONResponse(self._customer(form))
            case "POST", ["checkout", "sessions"]:
                return self._session(form)
            case "GET", ["checkout", "sessions"]:
                return self._open_sessions(form)
            case "POST", ["checkout", "sessions", id, "expire"]:
                return self._expire(id)
            case "GET", ["subscriptions"]:
                return await self._list(form)
            case method, ["subscriptions", id]:
                return self._subscription(method, id, form)
        return _refused(404, "Unrecognized request URL")

    def _customer(self, form: dict[str, str]) -> dict[str, Any]:
        id = f"cus_{secrets.token_hex(8)}"
        metadata = {"workspace": form["metadata[workspace]"]}
        self.customers[id] = {"id": id, "object": "customer", "metadata": metadata}
        return self.customers[id]

    def _session(self, form: dict[str, str]) -> Response:
        if form["customer"] not in self.customers:
            return _refused(400, f"No such customer: '{form['customer']}'")
        if form["line_items[0][price]"] not in PRICES.values():
            return _refused(400, f"No such price: '{form['line_items[0][price]']}'")
        assert form["mode"] == "subscription"
        assert form["line_items[0][quantity]"] == "1"
        id = f"cs_test_{secrets.token_hex(8)}"
        self.sessions[id] = {
            "id": id,
            "object": "checkout.session",
            "customer": form["customer"],
            "status": "open",
            "url": f"{self.url}/pay/{id}",
            "expires_at": int(time.time()) + 86_400,
            "form": form,
        }
        return JSONResponse(_shown(self.sessions[id]))

    def _open_sessions(self, form: dict[str, str]) -> Response:
        found = [
            _shown(one)
            for one in self.sessions.values()
            if (one["customer"], one["status"]) == (form["customer"], form["status"])
        ]
        if self.pays_listed:
            for one in found:
                self.pay(one["id"])
        limit = int(form["limit"])
        more = len(found) > limit
        return JSONResponse({"object": "list", "has_more": more, "data": found[:limit]})

    def _expire(self, id: str) -> Response:
        if self.sessions[id]["status"] != "open":
            return _refused(400, "Only Checkout Sessions with a status of open can be expired.")
        self.sessions[id]["status"] = "expired"
        return JSONResponse(_shown(self.sessions[id]))

    async def _list(self, form: dict[str, str]) -> Response:
        assert form["status"] == "all"
        if form["customer"] not in self.customers:
            return _refused(400, f"No such customer: '{form['customer']}'")
        found = [
            json.loads(json.dumps(one))  # as it is now
            for one in reversed(self.subscriptions.values())
            if one["customer"] == form["customer"]
        ]
        if self.gates:
            asked, answered = self.gates.pop(0)
            asked.set()
            await answered.wait()
        return JSONResponse({"object": "list", "has_more": False, "data": found})

    def _subscription(self, method: str, id: str, form: dict[str, str]) -> Response:
        found = self.subscriptions.get(id)
        if found is None or (method == "DELETE" and found["status"] == "canceled"):
            return _refused(404, f"No such subscription: '{id}'")
        if method == "DELETE":
            found["status"] = "canceled"
        elif method == "POST":
            self._change(found, form)
        return JSONResponse(found)

    def _change(self, found: dict[str, Any], form: dict[str, str]) -> None:
        [item] = found["items"]["data"]
        for name, value in form.items():
            if name == "cancel_at_period_end":
                found[name] = {"true": True, "false": False}[value]
            elif name == "items[0][price]":
                assert value in PRICES.values()
                item["price"]["id"] = value
            elif name.startswith("metadata["):
                found["metadata"].pop(name[9:-1], None)  # an empty value takes it away
                found["metadata"] |= {name[9:-1]: value} if value else {}
            else:
                assert (name, value) in (
                    ("items[0][id]", item["id"]),
                    ("proration_behavior", "none"),
                )


def _shown(session: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in session.items() if name != "form"}


IN_USE = "idempotency_key_in_use"  # docs.stripe.com/error-codes


def _refused(status: int, message: str, code: str | None = None) -> Response:
    error = {"type": "invalid_request_error", "message": message, "code": code}
    return JSONResponse({"error": error}, status)


@asynccontextmanager
async def serving() -> AsyncIterator[StripeServer]:
    listener, stop = server.listen("127.0.0.1", 0), asyncio.Event()
    stripe = StripeServer(listener.getsockname()[1])
    settings = Settings.from_environ({"SECRET_KEY": "no secret of this server's is used ever"})
    task = asyncio.create_task(server.serve(stripe, settings, stop, listener=listener))
    yield stripe
    stop.set()
    await task
