"""What every test shares, so that it gives the same verdict on every machine."""

import signal

from hypothesis import settings

# In the background of a shell the signal is ignored, also by every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine must not fail a property that holds; pytest-timeout bounds the whole test.
settings.register_profile("tidegate", deadline=None, print_blob=True)
settings.load_profile("tidegate")
