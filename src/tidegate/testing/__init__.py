"""The crash kit: proves that a pipeline gives the same results whatever is killed, and when.

    for trial in chaos(Subject("coffee", data, folder), seed=7): …

`runs` lets one process die at every step of the protocol, also one whose run is cut and goes back
to a cut (`checkpoints`); `processes` lets the processes of a whole deployment die and freeze while
several clients wait for their results.
"""

from tidegate.testing.cluster_chaos import ChaosCluster, Client, chaos_of_processes
from tidegate.testing.run_chaos import (
    IN_TURN,
    QUICK,
    Published,
    Subject,
    Trial,
    chaos,
    chaos_of_checkpoints,
    compare,
    generated,
    why_not_once,
)

__all__ = [
    "IN_TURN",
    "QUICK",
    "ChaosCluster",
    "Client",
    "Published",
    "Subject",
    "Trial",
    "chaos",
    "chaos_of_checkpoints",
    "chaos_of_processes",
    "compare",
    "generated",
    "why_not_once",
]
