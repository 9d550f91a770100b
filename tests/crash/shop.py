"""The shop of the integration tests, by a name that a process of its own finds."""

from tests.integration.runtime.shop import shop

pipeline = shop()
