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
    from tidegate.flows import Flow
    from tidegate.pipeline import Pipeline, Stream
    from tidegate.runtime.deployment import open_deployment
    from tidegate.runtime.service import serve
    from tidegate.spark import session_on

__version__ = "0.1.0"

__all__ = [
    "Checkpoints",
    "Flow",
    "Pipeline",
    "Stream",
    "__version__",
    "open_deployment",
    "serve",
    "session_on",
]

_HOMES = {
    "Checkpoints": "tidegate.checkpoint",
    "Flow": "tidegate.flows",
    "Pipeline": "tidegate.pipeline",
    "Stream": "tidegate.pipeline",
    "open_deployment": "tidegate.runtime.deployment",
    "serve": "tidegate.runtime.service",
    "session_on": "tidegate.spark",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    # On first use: loading Spark takes a second and parsing SQL a tenth, which many never need.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
