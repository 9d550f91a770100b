"""Flows that wait for their state, and that kill their workers; workers that die import them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from time import sleep

from tests.crash.flows import Item, Job
from tidegate.flows import Context, Flow, Tolerate

patient = Flow("patient")
offset = patient.state("offset", int, monotonic=True, external=True)
watermark = patient.state("watermark", int)


@patient.step(writes=watermark, reads=[offset, watermark])
def switch(context: Context, job: Job) -> int:
    """Capture how often it was run, wait, and take its time."""
    job.mark("captured")
    tries = Path(job.marks).read_text().count("captured")
    captured = context.set_state_once(watermark, 100 * tries)
    context.wait_for_state(lambda state: state[offset] >= state[watermark])
    job.mark("through")
    sleep(job.seconds)
    return captured


deadly = Flow("deadly")
MOST = 3
"""Workers that the poisonous item kills."""


@deadly.generator(batch=10, flush_every=0.02, on_fail=Tolerate(count=0))
def produce(context: Context, job: Job) -> Iterator[Item]:
    for number in range(job.items):
        yield Item(number, job)


@produce.handler
def handle(context: Context, item: Item) -> int:
    if item.number == 7:
        item.job.mark("poison")
        if Path(item.job.marks).read_text().count("poison") <= MOST:
            os.kill(os.getpid(), signal.SIGKILL)
    item.job.mark(f"item {item.number}")
    return item.number
