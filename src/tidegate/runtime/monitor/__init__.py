"""The monitor: releases, checkpoints, bounds, sweeping, and the diagnosis of waits."""
