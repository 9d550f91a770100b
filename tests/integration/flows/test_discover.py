"""The example of a stream whose size nobody knows."""

from __future__ import annotations

from tests.integration.flows.calls import Start
from tests.integration.flows.conftest import Hand
from tidegate_examples.discover import Report, library
from tidegate_examples.discover.site import served


def test_articles_that_are_busy_are_tried_again_and_some_that_are_gone_are_tolerated(
    work: Start, hand: Hand
) -> None:
    works = work(library)
    with served(220) as site:
        run = works.finish(library, site.address)
        expected = Report(len(site.there), site.words)
    assert run.result("report") == expected
    found = hand.steps(run.id)["discover"]
    assert (found.spawned, found.succeeded, found.failed) == (220, 218, 2)
    assert max(site.asked.values()) == 2, "what is gone is asked for once, what is busy twice"
    assert [at for at, times in site.asked.items() if times == 1 and site.is_gone(at)] == [100, 201]
