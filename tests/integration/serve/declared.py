"""The shop under an address that the command line takes."""

from tests.integration.run.shop import shop

pipeline = shop()
