"""The shop under an address that the command line takes."""

from tests.integration.runtime.shop import shop

pipeline = shop()
