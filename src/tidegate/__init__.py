"""Multi-stage data pipelines on Spark that know exactly when they are done.

import tidegate as tg

shop = tg.Pipeline("shop")
sales = shop.source("sales", "store_id bigint, amount decimal(10,2)")
sales.aggregate(by="store_id", total="sum(amount)").sink("totals")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.checkpoint import Checkpoints
    from tidegate.flows import Flow, FlowRun
    from tidegate.pipeline import Pipeline, Stream
    from tidegate.runtime.deployment import Deployment, connect
    from tidegate.runtime.results import Result, Results
    from tidegate.runtime.run import Run
    from tidegate.runtime.service import PipelineFrontend, PipelineService
    from tidegate.spark import session_on
    from tidegate.store import RunFacts, RunState

__version__ = "0.1.0"

__all__ = [
    "Checkpoints",
    "Deployment",
    "Flow",
    "FlowRun",
    "Pipeline",
    "PipelineFrontend",
    "PipelineService",
    "Result",
    "Results",
    "Run",
    "RunFacts",
    "RunState",
    "Stream",
    "__version__",
    "connect",
    "session_on",
]

_HOMES = {
    "Checkpoints": "tidegate.checkpoint",
    "Deployment": "tidegate.runtime.deployment",
    "Flow": "tidegate.flows",
    "FlowRun": "tidegate.flows",
    "Pipeline": "tidegate.pipeline",
    "PipelineFrontend": "tidegate.runtime.service",
    "PipelineService": "tidegate.runtime.service",
    "Result": "tidegate.runtime.results",
    "Results": "tidegate.runtime.results",
    "Run": "tidegate.runtime.run",
    "RunFacts": "tidegate.store",
    "RunState": "tidegate.store",
    "Stream": "tidegate.pipeline",
    "connect": "tidegate.runtime.deployment",
    "session_on": "tidegate.spark",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    # On first use: loading Spark takes a second and parsing SQL a tenth, which many never need.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
