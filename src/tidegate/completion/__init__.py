"""Monitor: who may release what was held back, and why it is not released yet.

A sharded aggregate keeps its result until the monitor has seen that its input is complete. Two
things make it so: the set of producers is closed (each has declared how many messages it sent
to this shard) and the messages processed are exactly the declared ones. "Complete so far" is
not complete, and more than declared is a fault.

`decide` looks at the facts of one shard and gives a verdict; it reads and writes nothing. The
verdict that says *wait* also says what for, so "why is it not done?" has the same answer as
"may it go on?".
"""

from tidegate.completion.decide import Fault, Release, Verdict, Wait, decide
from tidegate.completion.facts import Producer, ShardFacts

__all__ = ["Fault", "Producer", "Release", "ShardFacts", "Verdict", "Wait", "decide"]
