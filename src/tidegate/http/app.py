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
    GET  /pipelines/{pipeline}/runs/{run}/results                     at the end, or
    ?checkpoint=N|latest GET  /pipelines/{pipeline}/runs/{run}/results/{sink} GET
    /pipelines/{pipeline}/runs/{run}/checkpoints                 how each went POST
    /pipelines/{pipeline}/runs/{run}/checkpoints                 begin one GET
    /pipelines/{pipeline}/runs/{run}/checkpoints/{number|latest}        the manifest of one POST
    /pipelines/{pipeline}/runs/{run}/restore                     begin again at a cut

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
from tidegate.http.client_api import ClientApi, Seen, Served, rows_of
from tidegate.http.downloads import Downloads
from tidegate.http.formats import CHUNKS, chunk_format, result_format
from tidegate.http.health import Health
from tidegate.http.limits.client_requests import ClientRequests
from tidegate.http.limits.concurrency import AtOnce
from tidegate.http.limits.quotas import Quotas
from tidegate.http.requests import (
    Beginning,
    Ending,
    Restoring,
    RunClient,
    WantedCheckpoint,
    asked_checkpoint,
    asked_chunk,
    asked_number,
    body_as,
)
from tidegate.http.responses import (
    answer,
    refused,
    refused_by_mistake,
    refused_by_routing,
    refused_in_vain,
)
from tidegate.http.uploads import Admission, Uploads

if TYPE_CHECKING:
    from starlette.requests import Request

    from tidegate.http.auth.auth import Gate
    from tidegate.http.limits.executors import Threads
    from tidegate.http.limits.limits import Limits
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
    gate: Gate,
    *,
    spool: Spool,
    threads: Threads,
    limits: Limits,
) -> Starlette:
    """The interface of a service, for those whom the gate lets in."""
    endpoints = _Endpoints(service, place, gate, spool, threads, limits)
    return Starlette(
        routes=endpoints.routes(),
        middleware=[Middleware(ClientRequests, gate=gate, most=limits.requests)],
        exception_handlers={
            TidegateError: refused,
            HTTPException: refused_by_routing,
            ClientDisconnect: refused_in_vain,
            Exception: refused_by_mistake,
        },
    )


class _Endpoints:
    def __init__(
        self,
        service: PipelineFrontend,
        place: Deployment,
        gate: Gate,
        spool: Spool,
        threads: Threads,
        limits: Limits,
    ) -> None:
        self._service = service
        self._place = place
        self._gate = gate
        self._threads = threads
        self._limits = limits
        self._followers = AtOnce(limits.followers, TooManyFollowers)
        self._downloads = Downloads(spool, threads, limits)
        self._quotas = Quotas(place, service.task_graph.name)
        admission = Admission(self._quotas.check_bytes, place.reserve.check)
        self._uploads = Uploads(spool, threads, limits, admission)
        seconds = place.settings.health_seconds
        self._health = Health(self._check_health, seconds, threads.health)

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
            Route(RUN + "/checkpoints/{cut}", self.checkpoint),
            Route(RUN + "/restore", self.restore, methods=["POST"]),
        ]

    # ── the pipeline ──

    async def health(self, request: Request) -> Response:
        """Whether somebody is at work; for who starts and watches servers, so without a token."""
        await self._health.check()
        return answer({"status": "ok"})

    def _check_health(self) -> None:
        self._service.check()
        self._place.database.check(self._place.settings.health_seconds)

    async def pipelines(self, request: Request) -> Response:
        """What is served, for who is about to deliver."""
        self._gate.client_of(request)
        return answer({"pipelines": [self._served()]})

    def _served(self) -> Served:
        stages = self._service.checked.stages.values()
        sinks = {stage.sink: [*stage.output.names] for stage in stages if stage.sink}
        sources = [*self._service.task_graph.sources]
        return Served(self._service.task_graph.name, sources, sinks, self._limits.chunk_bytes)

    # ── runs ──

    async def runs_or_begin(self, request: Request) -> Response:
        return await (self.begin if request.method == "POST" else self.runs)(request)

    async def runs(self, request: Request) -> Response:
        account = self._account(request)
        limit = asked_number(request, "limit", 100, most=MOST)
        return answer({"runs": await self._threads.call(account.client, account.runs, limit)})

    async def begin(self, request: Request) -> Response:
        account = self._account(request)
        asked = await self._body(request, Beginning)
        key = request.headers.get("idempotency-key")
        begin = partial(account.begin, asked.run, key, checkpoints=asked.wanted_checkpoints())
        await self._check_runs(account, asked.run)
        bounds = {"warn_after": asked.warn_after, "deadline": asked.deadline}
        return answer(await self._threads.call(account.client, begin, **bounds), 201)

    async def _check_runs(self, account: ClientApi, run: str) -> None:
        client = account.client
        await self._threads.call(client, self._quotas.check_runs, client, run)

    async def status(self, request: Request) -> Response:
        account = self._account(request)
        return answer(
            await self._threads.call(account.client, account.status, request.path_params["run"])
        )

    async def state(self, request: Request) -> Response:
        account = self._account(request)
        return answer(
            await self._threads.call(account.client, account.state, request.path_params["run"])
        )

    async def why(self, request: Request) -> Response:
        account = self._account(request)
        return answer(
            await self._threads.call(account.client, account.explain, request.path_params["run"])
        )

    async def cancel(self, request: Request) -> Response:
        account = self._account(request)
        return answer(
            await self._threads.call(account.client, account.cancel, request.path_params["run"])
        )

    async def events(self, request: Request) -> Response:
        """What cannot be seen at first is refused; later the stream ends and can be resumed."""
        account = self._account(request)
        last = sse.EventId.read(request.headers.get("last-event-id"))
        name, number = request.path_params["run"], last.run if last else None
        with ExitStack() as held:
            held.enter_context(self._followers.one_more(account.client))
            run = await self._threads.call(account.client, account.follow, name, number)
            seen = await self._threads.call(account.client, account.see, run)
            heard = last if last is not None and last.run == run.id else sse.EventId(run.id)
            look = partial(self._look, request, account, run)
            return sse.response(seen, look, heard, held.pop_all())

    async def _look(self, request: Request, account: ClientApi, run: Run) -> Seen | None:
        if self._threads.is_closing or not self._gate.is_still(account.client, request):
            return None
        try:
            return await self._threads.call(account.client, account.see, run)
        except TidegateError:
            return None

    # ── data ──

    async def chunks(self, request: Request) -> Response:
        account = self._account(request)
        run, source = request.path_params["run"], request.path_params["source"]
        after = asked_number(request, "after", 0)
        limit = asked_number(request, "limit", PAGE, most=MOST)
        return answer(
            await self._threads.call(account.client, account.chunks, run, source, after, limit)
        )

    async def deliver(self, request: Request) -> Response:
        """A chunk that is new is 201, one that was there 200; nothing is recorded of a bad one."""
        account = self._account(request)
        run, source, number = asked_chunk(request)
        ending = CHUNKS[_format_of(request)]
        await self._threads.call(account.client, account.check_source, run, source, number)
        async with self._uploads.received(account.client, request, source, number, ending) as file:
            self._account(request)  # a token may be withdrawn while a large chunk arrives
            is_new = await self._deliver(account, run, source, number, file)
        return answer({"is_new": is_new}, 201 if is_new else 200)

    async def _deliver(
        self, account: ClientApi, run: str, source: str, number: int, file: str
    ) -> bool:
        deliver = partial(account.deliver, run, source, number, file)
        return await self._threads.deliver(account.client, deliver)

    async def end(self, request: Request) -> Response:
        account = self._account(request)
        asked = await self._body(request, Ending)
        run, source = request.path_params["run"], request.path_params["source"]
        await self._threads.call(account.client, account.end, run, source, asked.chunks)
        return answer({"source": source})

    # ── outcomes ──

    async def results(self, request: Request) -> Response:
        account = self._account(request)
        run, of = request.path_params["run"], _checkpoint_of(request)
        found = await self._threads.call(account.client, account.results, run, of)
        return answer({"results": rows_of(found)})

    async def result(self, request: Request) -> Response:
        account = self._account(request)
        run, sink = request.path_params["run"], request.path_params["sink"]
        asked, accept = request.query_params.get("format"), request.headers.get("accept")
        wanted = result_format(asked, accept)
        return await self._downloads.send(account, run, sink, wanted, _checkpoint_of(request))

    # ── cuts ──

    async def checkpoints_or_take(self, request: Request) -> Response:
        return await (self.take if request.method == "POST" else self.checkpoints)(request)

    async def checkpoints(self, request: Request) -> Response:
        account = self._account(request)
        found = await self._threads.call(
            account.client, account.checkpoints, request.path_params["run"]
        )
        return answer({"checkpoints": found})

    async def take(self, request: Request) -> Response:
        """That it was begun; its number is that of the cut, if it becomes one."""
        account = self._account(request)
        asked = await self._body(request, RunClient)
        number = await self._threads.call(
            account.client, account.take_checkpoint, request.path_params["run"], asked
        )
        return answer({"number": number}, 202)

    async def checkpoint(self, request: Request) -> Response:
        account = self._account(request)
        run, wanted = (
            request.path_params["run"],
            asked_checkpoint(request.path_params["checkpoint"]),
        )
        return answer(
            await self._threads.call(account.client, account.checkpoint, run, wanted.number)
        )

    async def restore(self, request: Request) -> Response:
        """All files of the cut are read first, which takes as long as a result."""
        account = self._account(request)
        asked = await self._body(request, Restoring)
        run = request.path_params["run"]
        await self._check_runs(account, run)
        restore = partial(account.restore, run, asked.checkpoint)
        return answer(await self._threads.give(account.client, restore), 201)

    # ── who asks for what ──

    async def _body(self, request: Request, kind: type[T]) -> T:
        return await body_as(request, kind, self._limits.body)

    def _account(self, request: Request) -> ClientApi:
        client = self._gate.client_of(request)
        pipeline, served = request.path_params["pipeline"], self._service.task_graph.name
        if pipeline != served:
            raise UnknownPipeline(pipeline, "it is not served here", served)
        return ClientApi(self._service, self._place, client)


def _checkpoint_of(request: Request) -> WantedCheckpoint | None:
    """None: what is asked for is the end."""
    text = request.query_params.get("checkpoint")
    return None if text is None else asked_checkpoint(text)


def _format_of(request: Request) -> str:
    headers = request.headers
    return chunk_format(
        request.query_params.get("format"),
        headers.get("content-type"),
        headers.get("content-encoding"),
    )
