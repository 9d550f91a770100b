"""Responses: values and errors as JSON."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tidegate.errors import (
    InvalidRequest,
    NoSuchRoute,
    ServerFailed,
    TidegateError,
    UnknownToken,
    WrongMethod,
)
from tidegate.http.error_mapping import RETRY_AFTER, error_body, visible_error

if TYPE_CHECKING:
    from starlette.requests import Request

log = logging.getLogger(__name__)

JSON = "application/json"
NOT_FOUND, WRONG_METHOD = 404, 405


def json_response(value: object, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def error_response(error: TidegateError) -> Response:
    """An error as JSON, with its status code."""
    status = error.http_status
    response = json_response(error_body(error), status)
    if error.retryable and status in RETRY_AFTER:
        response.headers["retry-after"] = str(RETRY_AFTER[status])
    return response


async def handle_error(request: Request, error: Exception) -> Response:
    """The response for an error; internal details are logged and not sent."""
    assert isinstance(error, TidegateError)
    visible = visible_error(error)
    if visible is not error:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    response = error_response(visible)
    if isinstance(error, UnknownToken):
        response.headers["www-authenticate"] = "Bearer"
    return response


async def handle_routing_error(request: Request, error: Exception) -> Response:
    """The response for an unknown address, or a method that the address does not have."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == NOT_FOUND:
        return await handle_error(request, NoSuchRoute(path))
    if error.status_code == WRONG_METHOD:
        allowed = (error.headers or {}).get("Allow", "")
        response = await handle_error(request, WrongMethod(path, request.method, allowed))
        response.headers["allow"] = allowed
        return response
    return json_response(error_body(InvalidRequest(str(error.detail))), error.status_code)


async def handle_disconnect(request: Request, _: Exception) -> Response:
    """The client disconnected while sending; the response is for the log only."""
    return await handle_error(request, InvalidRequest("the client disconnected"))


async def handle_unexpected_error(request: Request, _: Exception) -> Response:
    """The response for a defect of the server: uvicorn logs it, the client gets no details."""
    return await handle_error(request, ServerFailed())
