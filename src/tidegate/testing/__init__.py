"""The crash kit: checks that a pipeline gives the same results whatever is killed, and when.

    for trial in run_trials(Subject("coffee", data, folder), seed=7): …

`run_trials` kills one process at every crash point of the protocol, `checkpoint_trials` one whose
run takes checkpoints and is restored, and `cluster_trials` kills and freezes the processes of a
whole deployment while several clients wait for their results. `reference` computes what a pipeline
should give: one plain Spark query per sink.
"""

from tidegate.spark import reference
from tidegate.testing.cluster_chaos import ChaosCluster, Client, cluster_trials
from tidegate.testing.run_chaos import (
    CHECKPOINT_POINTS,
    QUICK_POINTS,
    Publication,
    Subject,
    Trial,
    checkpoint_trials,
    compare,
    generate_data,
    publication_error,
    run_trials,
)

__all__ = [
    "CHECKPOINT_POINTS",
    "QUICK_POINTS",
    "ChaosCluster",
    "Client",
    "Publication",
    "Subject",
    "Trial",
    "checkpoint_trials",
    "cluster_trials",
    "compare",
    "generate_data",
    "publication_error",
    "reference",
    "run_trials",
]
