"""Every error Tidegate raises, as one tree. One imports from here, and reads a file per topic.

    TidegateError               base
    ├── UsageError              usage      asked for by a name that means nothing here
    ├── DeclarationError        declaring  the user's pipeline or flow is wrong; points at the line;
    │                                      declaring_flows
    ├── AlignmentError          signals    a barrier broke the rules of a fan-in
    ├── CheckpointError         signals    a barrier of a checkpoint is none, or did not arrive
    ├── ChannelError            signals    a channel between two processors cannot be used any more
    ├── RunError                runs       a live pipeline or run cannot do what was asked;
    │                                      also chunks, chunk_limits, streams, checkpoints
    ├── FlowError               flows      a run of a flow cannot do what was asked
    ├── CutoverError            cutover    an index cannot be made from a table, or switched to
    ├── GroupError              group      a process and its group do not come together
    ├── ServeError              serve      a client and its server do not come together;
    │                                      access: tokens, proxies, names, request keys;
    │                                      serve_limits: a client asks more than it may at once
    ├── SparkUnavailable        engines    there is no Spark to run on
    ├── SparkUnprotected        engines    strangers could talk to Spark's driver
    ├── SparkLost               engines    the Spark of this process has ended
    ├── EngineUnfit             engines    what a pipeline runs on does not have what it needs
    └── StoreError              store      PostgreSQL is not there, or is not what it should be

An error is a class (the condition) with typed fields (the parameters); its sentence is made
from them. Programs and tests look at the class and the fields, people read the sentence: what
happened, to what, and what to do next. `retryable` is true when the same call may
succeed later without any change.
"""

from tidegate.errors.access import *
from tidegate.errors.base import *
from tidegate.errors.checkpoints import *
from tidegate.errors.chunk_limits import *
from tidegate.errors.chunks import *
from tidegate.errors.cutover import *
from tidegate.errors.declaring import *
from tidegate.errors.declaring_flows import *
from tidegate.errors.engines import *
from tidegate.errors.flows import *
from tidegate.errors.group import *
from tidegate.errors.runs import *
from tidegate.errors.serve import *
from tidegate.errors.serve_limits import *
from tidegate.errors.signals import *
from tidegate.errors.store import *
from tidegate.errors.streams import *
from tidegate.errors.usage import *
