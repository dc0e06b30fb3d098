"""Access tokens: JWTs (RFC 9068) that name a session, and carry no authority of their own."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from joserfc import jwt
from joserfc.errors import JoseError
from pydantic import BaseModel, ConfigDict, Field

from app.process import Process
from app.store.sessions import Session

LIFETIME_SECONDS = 15 * 60
JWT_TYPE = "at+jwt"  # RFC 9068 §2.1
ISSUER = "tidings"
LONGEST_TOKEN = 2048

Id = Annotated[str, Field(pattern="^[a-z]+_[0-9a-z]+$")]
Seconds = Annotated[int, Field(ge=0, le=253_402_300_799)]  # datetime ends with the year 9999


class Claims(BaseModel):
    """The claims of an access token: all of these and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    iss: str
    aud: str
    sub: Id
    sid: Id
    ws: Id
    iat: Seconds
    exp: Seconds


def issue(process: Process, session: Session, now: datetime) -> str:
    issued_at = int(now.timestamp())
    claims = Claims(
        iss=ISSUER,
        aud=process.settings.environment,
        sub=session.user_id,
        sid=session.id,
        ws=session.workspace_id,
        iat=issued_at,
        exp=issued_at + LIFETIME_SECONDS,
    )
    key = process.vault.jwt_keys.keys[0]
    return jwt.encode({"alg": "HS256", "kid": key.kid, "typ": JWT_TYPE}, claims.model_dump(), key)


def read(process: Process, token: str) -> Claims | None:
    """None for whatever we did not sign as an access token of this environment. The times are not
    judged here, but by the database's clock, which also wrote them."""
    if len(token) > LONGEST_TOKEN:
        return None
    try:
        signed = jwt.decode(token, process.vault.jwt_keys, algorithms=["HS256"])
        claims = Claims.model_validate(signed.claims)
    except (JoseError, ValueError, TypeError):  # TypeError: a header that is JSON but no object
        return None
    ours = (JWT_TYPE, ISSUER, process.settings.environment)
    return claims if (signed.header.get("typ"), claims.iss, claims.aud) == ours else None
