"""Answers: values and refusals as JSON."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tidegate.errors import InvalidRequest, NoSuchRoute, TidegateError, UnknownToken, WrongMethod
from tidegate.http.error_mapping import RETRY_AFTER, refusal_of, status_of, told, unexpected

if TYPE_CHECKING:
    from starlette.requests import Request

log = logging.getLogger(__name__)

JSON = "application/json"
NOT_FOUND, WRONG_METHOD = 404, 405


def answer(value: object, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def refusal(error: TidegateError) -> Response:
    """An error as JSON, with the status that the table has for it."""
    status = status_of(error)
    response = answer(refusal_of(error), status)
    if error.retryable and status in RETRY_AFTER:
        response.headers["retry-after"] = str(RETRY_AFTER[status])
    return response


async def refused(request: Request, error: Exception) -> Response:
    """The response for an error; internal details are logged and not sent."""
    assert isinstance(error, TidegateError)
    shown = told(error)
    if shown is not error:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    response = refusal(shown)
    if isinstance(error, UnknownToken):
        response.headers["www-authenticate"] = "Bearer"
    return response


async def refused_by_routing(request: Request, error: Exception) -> Response:
    """No such address, or no such method there."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == NOT_FOUND:
        return await refused(request, NoSuchRoute(path))
    if error.status_code == WRONG_METHOD:
        allowed = (error.headers or {}).get("Allow", "")
        response = await refused(request, WrongMethod(path, request.method, allowed))
        response.headers["allow"] = allowed
        return response
    return answer(refusal_of(InvalidRequest(str(error.detail))), error.status_code)


async def refused_in_vain(request: Request, _: Exception) -> Response:
    """The client went away while it was sending, so nobody hears this."""
    return await refused(request, InvalidRequest("it was cut off"))


async def refused_by_mistake(request: Request, _: Exception) -> Response:
    """A mistake of ours: uvicorn's log has it, the client does not."""
    return await refused(request, unexpected())
