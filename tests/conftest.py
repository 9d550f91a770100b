"""What every test shares: Hypothesis profiles that give the same verdict on every machine."""

from hypothesis import settings

# A slow machine must not fail a property that holds; pytest-timeout bounds the whole test.
settings.register_profile("tidegate", deadline=None, print_blob=True)
settings.load_profile("tidegate")
