"""The HTTP interface of a served pipeline: addresses and endpoints. docs/http.md is its manual.

    GET  /health
    GET  /pipelines
    GET  /pipelines/{pipeline}/runs                        list the client's runs
    POST /pipelines/{pipeline}/runs                        begin a run

Below /pipelines/{pipeline}/runs/{run}:

    GET                                    progress of the run
    GET  /state                            its state, for polling
    GET  /why                              why it is not complete
    GET  /events                           server-sent events
    POST /cancel
    GET  /sources/{source}                 delivered chunks
    PUT  /sources/{source}/chunks/{number} deliver a chunk
    POST /sources/{source}/end
    GET  /results                          rows of each sink; ?checkpoint=N|latest
    GET  /results/{sink}                   one result; ?checkpoint=N|latest
    GET  /checkpoints                      list the checkpoints
    POST /checkpoints                      trigger a checkpoint
    GET  /checkpoints/{number|latest}      the manifest of one
    POST /restore                          restore the run from a checkpoint

An endpoint decodes the request, calls the `ClientApi` on one of a few threads, and encodes the
response.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from tidegate.errors import TidegateError, TooManyFollowers, UnknownPipeline
from tidegate.http import sse
from tidegate.http.client_api import ClientApi, PipelineInfo, RunView, rows_of
from tidegate.http.downloads import Downloads
from tidegate.http.formats import CHUNKS, chunk_format, result_format
from tidegate.http.health import Health
from tidegate.http.limits.client_requests import ClientRequests
from tidegate.http.limits.concurrency import ConcurrencyLimit
from tidegate.http.limits.quotas import Quotas
from tidegate.http.requests import (
    BeginRun,
    CheckpointSelector,
    EndSource,
    RestoreRun,
    TakeCheckpoint,
    chunk_address,
    decode_body,
    parse_checkpoint,
    query_number,
)
from tidegate.http.responses import (
    handle_disconnect,
    handle_error,
    handle_routing_error,
    handle_unexpected_error,
    json_response,
)
from tidegate.http.uploads import Admission, Uploads

if TYPE_CHECKING:
    from starlette.requests import Request

    from tidegate.http.auth.authenticator import Authenticator
    from tidegate.http.limits.executors import Executors
    from tidegate.http.limits.limits import HttpLimits
    from tidegate.http.spool import Spool
    from tidegate.runtime.deployment import Deployment
    from tidegate.runtime.service import PipelineFrontend
    from tidegate.store import RunInfo

T = TypeVar("T")

RUN = "/pipelines/{pipeline}/runs/{run}"
SOURCE = RUN + "/sources/{source}"
PAGE, MOST = 1000, 10_000
"""Chunks or runs per page, by default and at most."""


def http_app(
    service: PipelineFrontend,
    deployment: Deployment,
    auth: Authenticator,
    *,
    spool: Spool,
    executors: Executors,
    limits: HttpLimits,
) -> Starlette:
    """The ASGI application for a service; `auth` identifies the client of each request."""
    endpoints = _Endpoints(service, deployment, auth, spool, executors, limits)
    return Starlette(
        routes=endpoints.routes(),
        middleware=[Middleware(ClientRequests, auth=auth, most=limits.requests)],
        exception_handlers={
            TidegateError: handle_error,
            HTTPException: handle_routing_error,
            ClientDisconnect: handle_disconnect,
            Exception: handle_unexpected_error,
        },
    )


class _Endpoints:
    def __init__(
        self,
        service: PipelineFrontend,
        deployment: Deployment,
        auth: Authenticator,
        spool: Spool,
        executors: Executors,
        limits: HttpLimits,
    ) -> None:
        self._service = service
        self._deployment = deployment
        self._auth = auth
        self._executors = executors
        self._limits = limits
        self._followers = ConcurrencyLimit(limits.followers, TooManyFollowers)
        self._downloads = Downloads(spool, executors, limits)
        self._quotas = Quotas(deployment, service.task_graph.name)
        admission = Admission(self._quotas.check_bytes, deployment.reserve.check)
        self._uploads = Uploads(spool, executors, limits, admission)
        seconds = deployment.settings.health_seconds
        self._health = Health(self._check_health, seconds, executors.health)

    def routes(self) -> list[Route]:
        """Every address with its methods."""
        return [
            Route("/health", self.health),
            Route("/pipelines", self.pipelines),
            # One route: of two, a request with a third method would get only the first in Allow.
            Route("/pipelines/{pipeline}/runs", self.runs_or_begin, methods=["GET", "POST"]),
            Route(RUN, self.status),
            Route(RUN + "/state", self.state),
            Route(RUN + "/why", self.why),
            Route(RUN + "/events", self.events),
            Route(RUN + "/cancel", self.cancel, methods=["POST"]),
            Route(SOURCE, self.chunks),
            Route(SOURCE + "/chunks/{number}", self.deliver, methods=["PUT"]),
            Route(SOURCE + "/end", self.end, methods=["POST"]),
            Route(RUN + "/results", self.results),
            Route(RUN + "/results/{sink}", self.result),
            Route(RUN + "/checkpoints", self.checkpoints_or_take, methods=["GET", "POST"]),
            Route(RUN + "/checkpoints/{checkpoint}", self.checkpoint),
            Route(RUN + "/restore", self.restore, methods=["POST"]),
        ]

    # ── the pipeline ──

    async def health(self, request: Request) -> Response:
        """Whether the server can do its work; needs no token, for supervisors."""
        await self._health.check()
        return json_response({"status": "ok"})

    def _check_health(self) -> None:
        self._service.check()
        self._deployment.database.check(self._deployment.settings.health_seconds)

    async def pipelines(self, request: Request) -> Response:
        """The served pipeline."""
        self._auth.client_of(request)
        return json_response({"pipelines": [self._pipeline_info()]})

    def _pipeline_info(self) -> PipelineInfo:
        stages = self._service.checked.stages.values()
        sinks = {stage.sink: [*stage.output.names] for stage in stages if stage.sink}
        sources = [*self._service.task_graph.sources]
        return PipelineInfo(self._service.task_graph.name, sources, sinks, self._limits.chunk_bytes)

    # ── runs ──

    async def runs_or_begin(self, request: Request) -> Response:
        return await (self.begin if request.method == "POST" else self.runs)(request)

    async def runs(self, request: Request) -> Response:
        api = self._api(request)
        limit = query_number(request, "limit", 100, most=MOST)
        return json_response({"runs": await self._executors.call(api.client, api.runs, limit)})

    async def begin(self, request: Request) -> Response:
        api = self._api(request)
        body = await self._body(request, BeginRun)
        key = request.headers.get("idempotency-key")
        begin = partial(api.begin, body.run, key, checkpoints=body.checkpoint_options())
        await self._check_runs(api, body.run)
        bounds = {"warn_after": body.warn_after, "deadline": body.deadline}
        return json_response(await self._executors.call(api.client, begin, **bounds), 201)

    async def _check_runs(self, api: ClientApi, run: str) -> None:
        client = api.client
        await self._executors.call(client, self._quotas.check_runs, client, run)

    async def status(self, request: Request) -> Response:
        api = self._api(request)
        return json_response(
            await self._executors.call(api.client, api.status, request.path_params["run"])
        )

    async def state(self, request: Request) -> Response:
        api = self._api(request)
        return json_response(
            await self._executors.call(api.client, api.state, request.path_params["run"])
        )

    async def why(self, request: Request) -> Response:
        api = self._api(request)
        return json_response(
            await self._executors.call(api.client, api.explain, request.path_params["run"])
        )

    async def cancel(self, request: Request) -> Response:
        api = self._api(request)
        return json_response(
            await self._executors.call(api.client, api.cancel, request.path_params["run"])
        )

    async def events(self, request: Request) -> Response:
        """An error of the first read is the response; later ones end the stream, to be resumed."""
        api = self._api(request)
        last = sse.EventId.read(request.headers.get("last-event-id"))
        name, number = request.path_params["run"], last.run if last else None
        with ExitStack() as resources:
            resources.enter_context(self._followers.acquire(api.client))
            run = await self._executors.call(api.client, api.follow, name, number)
            view = await self._executors.call(api.client, api.view, run)
            after = last if last is not None and last.run == run.id else sse.EventId(run.id)
            read = partial(self._view, request, api, run)
            return sse.response(view, read, after, resources.pop_all())

    async def _view(self, request: Request, api: ClientApi, run: RunInfo) -> RunView | None:
        if self._executors.is_closing or not self._auth.is_still(api.client, request):
            return None
        try:
            return await self._executors.call(api.client, api.view, run)
        except TidegateError:
            return None

    # ── data ──

    async def chunks(self, request: Request) -> Response:
        api = self._api(request)
        run, source = request.path_params["run"], request.path_params["source"]
        after = query_number(request, "after", 0)
        limit = query_number(request, "limit", PAGE, most=MOST)
        return json_response(
            await self._executors.call(api.client, api.chunks, run, source, after, limit)
        )

    async def deliver(self, request: Request) -> Response:
        """201 for a new chunk, 200 for one delivered before; an invalid chunk is not recorded."""
        api = self._api(request)
        run, source, number = chunk_address(request)
        ending = CHUNKS[_format_of(request)]
        await self._executors.call(api.client, api.check_source, run, source, number)
        async with self._uploads.received(api.client, request, source, number, ending) as file:
            self._api(request)  # a token may be withdrawn while a large chunk is received
            is_new = await self._deliver(api, run, source, number, file)
        return json_response({"is_new": is_new}, 201 if is_new else 200)

    async def _deliver(self, api: ClientApi, run: str, source: str, number: int, file: str) -> bool:
        deliver = partial(api.deliver, run, source, number, file)
        return await self._executors.deliver(api.client, deliver)

    async def end(self, request: Request) -> Response:
        api = self._api(request)
        body = await self._body(request, EndSource)
        run, source = request.path_params["run"], request.path_params["source"]
        await self._executors.call(api.client, api.end, run, source, body.chunks)
        return json_response({"source": source})

    # ── results ──

    async def results(self, request: Request) -> Response:
        api = self._api(request)
        run, checkpoint = request.path_params["run"], _checkpoint_of(request)
        found = await self._executors.call(api.client, api.results, run, checkpoint)
        return json_response({"results": rows_of(found)})

    async def result(self, request: Request) -> Response:
        api = self._api(request)
        run, sink = request.path_params["run"], request.path_params["sink"]
        kind = result_format(request.query_params.get("format"), request.headers.get("accept"))
        return await self._downloads.send(api, run, sink, kind, _checkpoint_of(request))

    # ── checkpoints ──

    async def checkpoints_or_take(self, request: Request) -> Response:
        return await (self.take if request.method == "POST" else self.checkpoints)(request)

    async def checkpoints(self, request: Request) -> Response:
        api = self._api(request)
        found = await self._executors.call(api.client, api.checkpoints, request.path_params["run"])
        return json_response({"checkpoints": found})

    async def take(self, request: Request) -> Response:
        """202 with the number of the triggered checkpoint, which may still fail."""
        api = self._api(request)
        body = await self._body(request, TakeCheckpoint)
        take = partial(api.take_checkpoint, request.path_params["run"], body)
        number = await self._executors.call(api.client, take)
        return json_response({"number": number}, 202)

    async def checkpoint(self, request: Request) -> Response:
        api = self._api(request)
        run, text = request.path_params["run"], request.path_params["checkpoint"]
        read = partial(api.checkpoint, run, parse_checkpoint(text).number)
        return json_response(await self._executors.call(api.client, read))

    async def restore(self, request: Request) -> Response:
        """Reads all files of the checkpoint first, so it runs on the threads for results."""
        api = self._api(request)
        body = await self._body(request, RestoreRun)
        run = request.path_params["run"]
        await self._check_runs(api, run)
        restore = partial(api.restore, run, body.checkpoint)
        return json_response(await self._executors.give(api.client, restore), 201)

    # ── requests ──

    async def _body(self, request: Request, kind: type[T]) -> T:
        return await decode_body(request, kind, self._limits.body)

    def _api(self, request: Request) -> ClientApi:
        client = self._auth.client_of(request)
        pipeline, served = request.path_params["pipeline"], self._service.task_graph.name
        if pipeline != served:
            raise UnknownPipeline(pipeline, "it is not served here", served)
        return ClientApi(self._service, self._deployment, client)


def _checkpoint_of(request: Request) -> CheckpointSelector | None:
    """None: the final result is requested."""
    text = request.query_params.get("checkpoint")
    return None if text is None else parse_checkpoint(text)


def _format_of(request: Request) -> str:
    headers = request.headers
    return chunk_format(
        request.query_params.get("format"),
        headers.get("content-type"),
        headers.get("content-encoding"),
    )
