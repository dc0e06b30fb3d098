"""A real provider of OpenID Connect on a port of its own, which lies on request."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from app.config.settings import Settings
from app.web import server
from tests.present import present

CLIENT_ID, CLIENT_SECRET = "tidings", "a secret between two servers"
ADA = {"sub": "ada", "email": "ada@corp.example", "email_verified": True, "name": "Ada Lovelace"}


def unsigned(claims: Mapping[str, Any]) -> str:
    """`alg: none`, as no library writes it."""
    return f"{_written({'alg': 'none'}, claims)}."


def _written(*parts: Mapping[str, Any]) -> str:
    return ".".join(_text(json.dumps(part).encode()) for part in parts)


def _text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


@dataclass
class OpenIdProvider:
    """`person` signs in next; `altered` changes what the ID token says, `signed` how it is signed,
    `answers` what a path answers instead."""

    port: int
    person: Mapping[str, Any] = field(default_factory=lambda: dict(ADA))
    userinfo: Mapping[str, Any] | None = None
    altered: Callable[[dict[str, Any]], dict[str, Any]] = dict
    signed: Callable[[dict[str, Any]], str] | None = None
    answers: dict[str, Callable[[], Response]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    keys: list[RSAKey] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if not self.keys:
            self.new_key()

    @property
    def issuer(self) -> str:
        return f"http://{self.host}:{self.port}"

    def new_key(self) -> None:
        """Make a new key in place of those before it."""
        kid = secrets.token_hex(4)
        self.keys = [RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"})]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append(scope["path"])
        if answer := self.answers.get(scope["path"]):
            await answer()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    @property
    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._describe),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/jwks", self._jwks),
                Route("/userinfo", self._userinfo),
            ]
        )

    def description(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
        }

    async def _describe(self, _request: Request) -> Response:
        return JSONResponse(self.description())

    async def _jwks(self, _request: Request) -> Response:
        return JSONResponse({"keys": [key.as_dict(private=False) for key in self.keys]})

    async def _authorize(self, request: Request) -> Response:
        """The person is signed in here already."""
        asked = dict(request.query_params)
        assert asked["client_id"] == CLIENT_ID
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(8)
        self.codes[code] = asked
        answer = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{answer}")

    async def _token(self, request: Request) -> Response:
        """A code is good once, and for who began (RFC 7636 §4.6)."""
        credentials = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {credentials}":
            return JSONResponse({"error": "invalid_client"}, 401)
        form = {name: one for name, [one] in parse_qs((await request.body()).decode()).items()}
        asked = self.codes.pop(form["code"], None)
        challenge = _text(hashlib.sha256(form["code_verifier"].encode()).digest())
        if asked is None or challenge != asked["code_challenge"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        assert form["redirect_uri"] == asked["redirect_uri"]
        return JSONResponse(
            {
                "access_token": "for userinfo",
                "token_type": "Bearer",
                "expires_in": 60,
                "id_token": self._id_token(asked["nonce"]),
            }
        )

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        token = {"iss": self.issuer, "aud": CLIENT_ID, "nonce": nonce, "iat": now, "exp": now + 60}
        claims = self.altered({**token, **self.person})
        return (self.signed or self.sign)(claims)

    def sign(self, claims: dict[str, Any]) -> str:
        header = {"alg": "RS256", "kid": self.keys[0].kid}
        return jwt.encode(header, claims, self.keys[0])

    def sign_with_the_public_key(self, claims: dict[str, Any]) -> str:
        """HS256, whose secret is what everybody may know (RFC 8725 §2.1)."""
        signed = _written({"alg": "HS256", "kid": self.keys[0].kid}, claims)
        key = self.keys[0].as_pem(private=False)
        return f"{signed}.{_text(hmac.digest(key, signed.encode(), 'sha256'))}"

    def sign_with_another_key(self, claims: dict[str, Any]) -> str:
        other = RSAKey.generate_key(2048, {"kid": present(self.keys[0].kid)})
        return jwt.encode({"alg": "RS256", "kid": other.kid}, claims, other)

    async def _userinfo(self, request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer for userinfo" or self.userinfo is None:
            return JSONResponse({"error": "invalid_token"}, 401)
        return JSONResponse(self.userinfo)


@asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncIterator[OpenIdProvider]:
    """`host` is what it calls itself; it listens on loopback."""
    listener, stop = server.listen("127.0.0.1", 0), asyncio.Event()
    provider = OpenIdProvider(listener.getsockname()[1], host=host)
    settings = Settings.from_environ({"SECRET_KEY": "no secret of this server's is used ever"})
    task = asyncio.create_task(server.serve(provider, settings, stop, listener=listener))
    yield provider
    stop.set()
    await task
