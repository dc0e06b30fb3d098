"""A provider of OpenID Connect: where it signs people in, and whom its tokens speak of.

The authorization code flow with PKCE (RFC 7636), state and nonce, judged by RFC 9700 and OpenID
Connect Core §3.1.3.7. The provider is the operator's choice and is trusted to say who somebody is,
but not to answer soon, or sense: every call has a deadline, and nonsense counts as silence.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from authlib.oidc.discovery import get_well_known_url
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet, import_key
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from app.errors import Silent
from app.net.tls import system_trust

log = logging.getLogger(__name__)

CALL_SECONDS = 5.0  # for one answer of the provider
KEPT_SECONDS = 3_600.0  # what the provider says of itself, and its keys
REREAD_SECONDS = 30.0  # an unknown key may be new, but is not worth a call every time
LEEWAY_SECONDS = 60  # between the provider's clock and the database's
LONGEST_TOKEN = 16_384

SCOPE = "openid email profile"
# By public keys alone: not `none`, and no HMAC, whose key a public one could be mistaken for.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519",
)  # fmt: skip
PUBLIC_KEYS = ("RSA", "EC", "OKP")

Model = TypeVar("Model", bound=BaseModel)
Text = Annotated[str, Field(min_length=1, max_length=2_000)]


class Refused(Exception):
    """The provider signs this person in no further; the sentence says why."""


class Metadata(BaseModel):
    """OpenID Connect Discovery §3, as far as it concerns us."""

    model_config = ConfigDict(frozen=True)

    issuer: Text
    authorization_endpoint: Text
    token_endpoint: Text
    jwks_uri: Text
    userinfo_endpoint: Text | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False  # RFC 9207 §3

    @property
    def endpoints(self) -> tuple[str, ...]:
        """All that are called, or that people are sent to."""
        own = (self.authorization_endpoint, self.token_endpoint, self.jwks_uri)
        return own if self.userinfo_endpoint is None else (*own, self.userinfo_endpoint)


class Jwks(BaseModel):
    keys: list[dict[str, Any]]


class Claims(BaseModel):
    """The person; `email` is worth something when it is verified."""

    model_config = ConfigDict(strict=True, frozen=True)

    sub: Annotated[str, Field(min_length=1, max_length=255)]
    email: Annotated[str, Field(max_length=1_000)] | None = None
    email_verified: StrictBool = False
    name: Annotated[str, Field(max_length=1_000)] | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The state that one browser keeps from the way out to the way back."""

    state: str
    nonce: str
    code_verifier: str

    @classmethod
    def new(cls) -> Attempt:
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))


class IdentityProvider:
    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str | None,
        redirect_uri: str,
        *,
        reread_seconds: float = REREAD_SECONDS,
    ) -> None:
        self.issuer = issuer
        self._client_id = client_id
        self._client_secret = client_secret
        self._redirect_uri = redirect_uri
        self._reread_seconds = reread_seconds
        self._tls = system_trust()
        self._reading = asyncio.Lock()  # one reads for all who wait
        self._metadata: tuple[float, Metadata] | None = None
        self._keys: tuple[float, str, KeySet] | None = None  # when, from where, which

    async def authorization_url(self, attempt: Attempt) -> str:
        """The provider's URL to which a browser is sent. Raises errors.Unavailable."""
        metadata = await self._described()
        async with self._client(metadata) as client:
            url, _ = client.create_authorization_url(
                metadata.authorization_endpoint,
                state=attempt.state,
                nonce=attempt.nonce,
                code_verifier=attempt.code_verifier,
            )
        return str(url)

    async def claims(
        self, attempt: Attempt, code: str, issuer: str | None, now: datetime
    ) -> Claims:
        """The person who came back with the code. `issuer` is the one named in the URL (RFC 9207).

        Raises Refused, errors.Unavailable.
        """
        metadata = await self._described()
        named = issuer is not None or metadata.authorization_response_iss_parameter_supported
        if named and issuer != self.issuer:
            raise Refused("The answer is not from the provider that was asked.")
        token = await self._redeem(metadata, attempt, code)
        id_token, access_token = token.get("id_token"), token.get("access_token")
        if not isinstance(id_token, str) or not isinstance(access_token, str):
            raise Refused("The provider sent no ID token; is the scope openid allowed there?")
        verified = await self._verified(metadata, id_token, access_token, attempt.nonce, now)
        claims = _checked(Claims, verified)
        if claims.email is None and metadata.userinfo_endpoint is not None:
            # What the ID token left to that endpoint (OpenID Connect Core §5.3.2).
            more = _checked(Claims, await self._get(metadata.userinfo_endpoint, access_token))
            if more.sub != claims.sub:
                raise Refused("The provider's ID token and userinfo name different people (sub).")
            return more
        return claims

    # --- what the provider says of itself ---------------------------------------------------------

    async def _described(self) -> Metadata:
        async with self._reading:
            kept, now = self._metadata, time.monotonic()
            if kept is None or now - kept[0] > KEPT_SECONDS:
                url = get_well_known_url(self.issuer, external=True)
                metadata = _sense(Metadata, await self._get(url))
                if metadata.issuer != self.issuer:  # OpenID Connect Discovery §4.3
                    raise _silent(
                        f"it calls itself {metadata.issuer}, and OIDC_ISSUER {self.issuer}"
                    )
                is_tls = self.issuer.startswith("https:")
                allowed = ("https://",) if is_tls else ("https://", "http://")
                if not all(endpoint.startswith(allowed) for endpoint in metadata.endpoints):
                    raise _silent("an endpoint of it is not https://")
                kept = self._metadata = (now, metadata)
        return kept[1]

    async def _key_set(self, metadata: Metadata, *, newer_than: float) -> KeySet:
        """The provider's keys, not read longer ago than this."""
        async with self._reading:
            kept, now = self._keys, time.monotonic()
            if kept is None or kept[1] != metadata.jwks_uri or now - kept[0] > newer_than:
                jwks = _sense(Jwks, await self._get(metadata.jwks_uri))
                kept = self._keys = (now, metadata.jwks_uri, _public(jwks))
        return kept[2]

    async def _get(self, url: str, bearer: str | None = None) -> Any:
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        try:
            async with (
                asyncio.timeout(CALL_SECONDS),
                httpx2.AsyncClient(verify=self._tls, timeout=CALL_SECONDS) as client,
            ):
                response = await client.get(url, headers=headers)
                return response.raise_for_status().json()
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, TimeoutError) as error:
            raise _silent(f"{url}: {str(error) or type(error).__name__}") from error

    # --- whom its tokens speak of -----------------------------------------------------------------

    def _client(self, metadata: Metadata) -> AsyncOAuth2Client:
        methods = metadata.token_endpoint_auth_methods_supported
        by_header = "client_secret_basic" in methods or "client_secret_post" not in methods
        named = "client_secret_basic" if by_header else "client_secret_post"
        return AsyncOAuth2Client(
            self._client_id,
            self._client_secret,
            token_endpoint_auth_method="none" if self._client_secret is None else named,
            scope=SCOPE,
            redirect_uri=self._redirect_uri,
            code_challenge_method="S256",
            verify=self._tls,
            timeout=CALL_SECONDS,
        )

    async def _redeem(self, metadata: Metadata, attempt: Attempt, code: str) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(CALL_SECONDS), self._client(metadata) as client:
                token = await client.fetch_token(
                    metadata.token_endpoint,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=attempt.code_verifier,
                )
        except OAuthError as error:
            log.warning("the provider refused a code", extra={"error": str(error)})
            raise Refused("The provider does not know this sign-in (any more).") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, TypeError, TimeoutError) as error:
            raise _silent(f"{metadata.token_endpoint}: {error!r}") from error
        if not isinstance(token, dict):
            raise _silent(f"{metadata.token_endpoint} answers no object")
        return token

    async def _verified(
        self, metadata: Metadata, id_token: str, access_token: str, nonce: str, now: datetime
    ) -> Mapping[str, Any]:
        """The ID token's claims, if it is the provider's, for us, of now, and of this sign-in."""
        if len(id_token) > LONGEST_TOKEN:
            raise Refused("The provider's ID token is too long.")
        try:
            signed = await self._decoded(metadata, id_token)
            claims = CodeIDToken(
                signed.claims,
                signed.header,
                {
                    "iss": {"essential": True, "value": self.issuer},
                    "aud": {"essential": True, "value": self._client_id},
                },
                {"nonce": nonce, "client_id": self._client_id, "access_token": access_token},
            )
            claims.validate(int(now.timestamp()), LEEWAY_SECONDS)
            return dict(claims)
        except (JoseError, ValueError, TypeError) as error:  # TypeError: JSON of another shape
            log.warning("an ID token was refused", extra={"error": repr(error)})
            raise Refused(
                "The provider's ID token is not valid: its signature or a claim in it is wrong."
            ) from None

    async def _decoded(self, metadata: Metadata, id_token: str) -> jwt.Token:
        keys = await self._key_set(metadata, newer_than=KEPT_SECONDS)
        try:
            return jwt.decode(id_token, keys, algorithms=list(ALGORITHMS))
        except InvalidKeyIdError:  # the provider has changed its keys
            keys = await self._key_set(metadata, newer_than=self._reread_seconds)
            return jwt.decode(id_token, keys, algorithms=list(ALGORITHMS))


def _public(jwks: Jwks) -> KeySet:
    """The keys that can verify a signature; of a kind that is yet to be invented, none."""
    keys = []
    for jwk in jwks.keys:
        if jwk.get("kty") in PUBLIC_KEYS and jwk.get("use", "sig") == "sig":
            try:
                keys.append(import_key(jwk))
            except (JoseError, ValueError, TypeError) as error:
                log.warning("a key of the provider is not usable", extra={"error": repr(error)})
    return KeySet(keys)


def _sense(model: type[Model], answer: Any) -> Model:
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        raise _silent(str(error)) from None


def _checked(model: type[Model], claims: Any) -> Model:
    try:
        return model.model_validate(claims)
    except ValidationError:
        raise Refused("The provider's claims are not what OpenID Connect says.") from None


def _silent(cause: str) -> Silent:
    log.warning("request to the single sign-on provider failed", extra={"error": cause})
    detail = "The single sign-on provider gave no usable answer; try again."
    return Silent(detail, cause)
