"""A flow whose step runs a pipeline; workers that die import it."""

from __future__ import annotations

from tests.integration.runtime.shop import shop
from tidegate.flows import Context, Flow, Released

counting = Flow("counting")


@counting.step()
def count(context: Context, folder: str) -> Released:
    return context.run_pipeline(shop(), folder, timeout=300)
