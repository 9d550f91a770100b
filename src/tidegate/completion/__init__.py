"""Completion: when the input of a sharded aggregate is complete, so that END may pass.

The input of a shard is complete when its producer set is closed (each has declared how many
messages it sent to this shard) and the messages processed are exactly the declared ones. "Complete
so far" is not complete, and more than declared is a fault.

`decide` maps the facts of one shard to a verdict, without I/O. `Wait` names what is missing, so
the monitor's decision is also the diagnosis that users see.
"""

from tidegate.completion.decide import Fault, Release, Verdict, Wait, decide
from tidegate.completion.facts import Producer, ShardFacts

__all__ = ["Fault", "Producer", "Release", "ShardFacts", "Verdict", "Wait", "decide"]
