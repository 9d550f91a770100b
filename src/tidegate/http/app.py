"""The HTTP interface of a served pipeline: which address does what. docs/http.md is its manual.

    GET  /health
    GET  /pipelines
    GET  /pipelines/{pipeline}/runs                                   the client's own
    POST /pipelines/{pipeline}/runs                                   begin one
    GET  /pipelines/{pipeline}/runs/{run}                             how far it is
    GET  /pipelines/{pipeline}/runs/{run}/state                       what has become of it
    GET  /pipelines/{pipeline}/runs/{run}/why                         why it is not done
    GET  /pipelines/{pipeline}/runs/{run}/events                      the same as it happens
    POST /pipelines/{pipeline}/runs/{run}/cancel
    GET  /pipelines/{pipeline}/runs/{run}/sources/{source}            which chunks are there
    PUT  /pipelines/{pipeline}/runs/{run}/sources/{source}/chunks/{number}
    POST /pipelines/{pipeline}/runs/{run}/sources/{source}/end
    GET  /pipelines/{pipeline}/runs/{run}/results                     or ?checkpoint=N|latest
    GET  /pipelines/{pipeline}/runs/{run}/results/{sink}
    GET  /pipelines/{pipeline}/runs/{run}/checkpoints                 all of them
    POST /pipelines/{pipeline}/runs/{run}/checkpoints                 trigger one
    GET  /pipelines/{pipeline}/runs/{run}/checkpoints/{number|latest} the manifest of one
    POST /pipelines/{pipeline}/runs/{run}/restore                     restart from a checkpoint

Endpoints read a request, let an `Account` do the work on one of a few threads, and write the
answer.
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
    from tidegate.store import Run

T = TypeVar("T")

RUN = "/pipelines/{pipeline}/runs/{run}"
SOURCE = RUN + "/sources/{source}"
PAGE, MOST = 1000, 10_000
"""How many chunks or runs are listed, by default and at most."""


def http_app(
    service: PipelineFrontend,
    place: Deployment,
    auth: Authenticator,
    *,
    spool: Spool,
    executors: Executors,
    limits: HttpLimits,
) -> Starlette:
    """The interface of a service, for those whom the gate lets in."""
    endpoints = _Endpoints(service, place, auth, spool, executors, limits)
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
        place: Deployment,
        auth: Authenticator,
        spool: Spool,
        executors: Executors,
        limits: HttpLimits,
    ) -> None:
        self._service = service
        self._place = place
        self._auth = auth
        self._executors = executors
        self._limits = limits
        self._followers = ConcurrencyLimit(limits.followers, TooManyFollowers)
        self._downloads = Downloads(spool, executors, limits)
        self._quotas = Quotas(place, service.task_graph.name)
        admission = Admission(self._quotas.check_bytes, place.reserve.check)
        self._uploads = Uploads(spool, executors, limits, admission)
        seconds = place.settings.health_seconds
        self._health = Health(self._check_health, seconds, executors.health)

    def routes(self) -> list[Route]:
        """Every address, with the methods that it takes."""
        return [
            Route("/health", self.health),
            Route("/pipelines", self.pipelines),
            # One route: of two, only the first would be named to who comes with a third method.
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
        """Whether somebody is at work; for who starts and watches servers, so without a token."""
        await self._health.check()
        return json_response({"status": "ok"})

    def _check_health(self) -> None:
        self._service.check()
        self._place.database.check(self._place.settings.health_seconds)

    async def pipelines(self, request: Request) -> Response:
        """What is served, for who is about to deliver."""
        self._auth.client_of(request)
        return json_response({"pipelines": [self._served()]})

    def _served(self) -> PipelineInfo:
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
        asked = await self._body(request, BeginRun)
        key = request.headers.get("idempotency-key")
        begin = partial(api.begin, asked.run, key, checkpoints=asked.checkpoint_options())
        await self._check_runs(api, asked.run)
        bounds = {"warn_after": asked.warn_after, "deadline": asked.deadline}
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
        """What cannot be seen at first is refused; later the stream ends and can be resumed."""
        api = self._api(request)
        last = sse.EventId.read(request.headers.get("last-event-id"))
        name, number = request.path_params["run"], last.run if last else None
        with ExitStack() as held:
            held.enter_context(self._followers.acquire(api.client))
            run = await self._executors.call(api.client, api.follow, name, number)
            seen = await self._executors.call(api.client, api.view, run)
            heard = last if last is not None and last.run == run.id else sse.EventId(run.id)
            look = partial(self._look, request, api, run)
            return sse.response(seen, look, heard, held.pop_all())

    async def _look(self, request: Request, api: ClientApi, run: Run) -> RunView | None:
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
        """A chunk that is new is 201, one that was there 200; nothing is recorded of a bad one."""
        api = self._api(request)
        run, source, number = chunk_address(request)
        ending = CHUNKS[_format_of(request)]
        await self._executors.call(api.client, api.check_source, run, source, number)
        async with self._uploads.received(api.client, request, source, number, ending) as file:
            self._api(request)  # a token may be withdrawn while a large chunk arrives
            is_new = await self._deliver(api, run, source, number, file)
        return json_response({"is_new": is_new}, 201 if is_new else 200)

    async def _deliver(self, api: ClientApi, run: str, source: str, number: int, file: str) -> bool:
        deliver = partial(api.deliver, run, source, number, file)
        return await self._executors.deliver(api.client, deliver)

    async def end(self, request: Request) -> Response:
        api = self._api(request)
        asked = await self._body(request, EndSource)
        run, source = request.path_params["run"], request.path_params["source"]
        await self._executors.call(api.client, api.end, run, source, asked.chunks)
        return json_response({"source": source})

    # ── outcomes ──

    async def results(self, request: Request) -> Response:
        api = self._api(request)
        run, of = request.path_params["run"], _checkpoint_of(request)
        found = await self._executors.call(api.client, api.results, run, of)
        return json_response({"results": rows_of(found)})

    async def result(self, request: Request) -> Response:
        api = self._api(request)
        run, sink = request.path_params["run"], request.path_params["sink"]
        asked, accept = request.query_params.get("format"), request.headers.get("accept")
        wanted = result_format(asked, accept)
        return await self._downloads.send(api, run, sink, wanted, _checkpoint_of(request))

    # ── cuts ──

    async def checkpoints_or_take(self, request: Request) -> Response:
        return await (self.take if request.method == "POST" else self.checkpoints)(request)

    async def checkpoints(self, request: Request) -> Response:
        api = self._api(request)
        found = await self._executors.call(api.client, api.checkpoints, request.path_params["run"])
        return json_response({"checkpoints": found})

    async def take(self, request: Request) -> Response:
        """That it was begun; its number is that of the cut, if it becomes one."""
        api = self._api(request)
        asked = await self._body(request, TakeCheckpoint)
        number = await self._executors.call(
            api.client, api.take_checkpoint, request.path_params["run"], asked
        )
        return json_response({"number": number}, 202)

    async def checkpoint(self, request: Request) -> Response:
        api = self._api(request)
        run, wanted = (
            request.path_params["run"],
            parse_checkpoint(request.path_params["checkpoint"]),
        )
        return json_response(
            await self._executors.call(api.client, api.checkpoint, run, wanted.number)
        )

    async def restore(self, request: Request) -> Response:
        """All files of the cut are read first, which takes as long as a result."""
        api = self._api(request)
        asked = await self._body(request, RestoreRun)
        run = request.path_params["run"]
        await self._check_runs(api, run)
        restore = partial(api.restore, run, asked.checkpoint)
        return json_response(await self._executors.give(api.client, restore), 201)

    # ── who asks for what ──

    async def _body(self, request: Request, kind: type[T]) -> T:
        return await decode_body(request, kind, self._limits.body)

    def _api(self, request: Request) -> ClientApi:
        client = self._auth.client_of(request)
        pipeline, served = request.path_params["pipeline"], self._service.task_graph.name
        if pipeline != served:
            raise UnknownPipeline(pipeline, "it is not served here", served)
        return ClientApi(self._service, self._place, client)


def _checkpoint_of(request: Request) -> CheckpointSelector | None:
    """None: what is asked for is the end."""
    text = request.query_params.get("checkpoint")
    return None if text is None else parse_checkpoint(text)


def _format_of(request: Request) -> str:
    headers = request.headers
    return chunk_format(
        request.query_params.get("format"),
        headers.get("content-type"),
        headers.get("content-encoding"),
    )
