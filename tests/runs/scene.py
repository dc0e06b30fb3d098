"""Acme with Ada, a contact about whom explanations are asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from app.process import Process
from app.runs.explanations import Explanation
from tests.cast import HELLO, WEBHOOK, Cast, settle
from tests.messages.test_delivery import accepts, with_provider
from tests.routes.test_broadcasts import broadcast
from tests.routes.test_webhooks import send

EMAIL = "ada@example.com"
MANUAL = {"source": "manual"}
WAIT = {"id": "rest", "type": "wait", "duration": "P1D"}


@dataclass(slots=True)
class Scene:
    """Acme with Ada, a contact; what a case does there, and what it is about."""

    process: Process
    cast: Cast
    sender: httpx2.AsyncClient
    ada: dict[str, Any]
    definition: dict[str, Any] | None = None
    broadcast_id: str | None = None

    async def broadcast(self, **given: Any) -> str:
        """Frozen, and as far as it comes by itself; its id."""
        await self.cast.ed.made(f"/contacts/{self.ada['id']}/tags", {"tags": ["vip"]})
        self.broadcast_id = str((await broadcast(self.cast, **given))["id"])
        await self.cast.adam.made(f"/broadcasts/{self.broadcast_id}/schedule", None)
        await settle(self.process)
        return self.broadcast_id

    async def workflow(self, *steps: Any, **trigger: Any) -> str:
        """Activated; its id."""
        body = {"name": "Flow", "state": "ACTIVE", "trigger": trigger or MANUAL}
        self.definition = await self.cast.ed.made("/workflows", {**body, "steps": list(steps)})
        return str(self.definition["id"])

    async def run(self, *steps: Any, settled: bool = True) -> str:
        """Started for Ada by hand, and as far as it comes by itself."""
        id = await self.workflow(*steps)
        run = await self.cast.ed.made(f"/workflows/{id}/runs", {"contactId": self.ada["id"]})
        if settled:
            await settle(self.process)
        return str(run["runId"])

    async def message(self, channel: str = "email", **content: str) -> str:
        """Sent to Ada by a run, as far as it comes by itself."""
        text = {"email": HELLO, "sms": {"text": "Hello"}}[channel]
        step = {"type": "send_message", "channel": channel, "content": {**text, **content}}
        run_id = await self.run(step)
        [message] = (await self.cast.ed.read(f"/messages?runId={run_id}"))["data"]
        return str(message["id"])

    async def live_message(self) -> str:
        """Likewise in production, where quotas hold."""
        settings = replace(self.process.settings, environment="production")
        self.process, _ = with_provider(replace(self.process, settings=settings), accepts)
        return await self.message()

    async def faulty(self, kind: str) -> str:
        await self.cast.ed.made("/sandbox/faults", {"kind": kind})
        return await self.message()

    async def reported(self, kind: str) -> str:
        """Have the provider report later, and wait until it has."""
        message_id = await self.faulty(kind)
        await self.process.channels["email"].close()
        return message_id

    async def hook(self, **trigger: Any) -> str:
        """A webhook's token."""
        await self.workflow(**{**WEBHOOK, **trigger})
        assert self.definition is not None
        return str(self.definition["trigger"]["webhookUrl"].rpartition("/")[2])

    async def request(self, token: str, status: int, body: Any = None, **headers: str) -> str:
        """The record of a request about Ada that is answered with this."""
        raw = json.dumps({"email": EMAIL} if body is None else body).encode()
        answer = await send(self.sender, token, raw, **headers)
        assert answer.status_code == status, answer.text
        await self.process.batches.close()
        assert self.definition is not None
        url = f"/workflows/{self.definition['id']}/webhook-requests"
        return str((await self.cast.ed.read(url))["data"][0]["id"])

    async def explained(self, query: str = "") -> list[dict[str, Any]]:
        about = f"definitionId={self.definition['id']}" if self.definition else ""
        about = f"broadcastId={self.broadcast_id}" if self.broadcast_id else about
        url = f"/contacts/{self.ada['id']}/explain?{about}{query}"
        data: list[dict[str, Any]] = (await self.cast.vic.read(url.rstrip("?")))["data"]
        return data

    async def entry(self, code: Explanation) -> dict[str, Any]:
        found = [one for one in await self.explained() if one["code"] == code]
        assert found, await self.explained()
        return found[0]
