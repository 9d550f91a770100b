"""Store: the control plane in PostgreSQL. The only package that uses SQL.

- `open_database` finds the database of a deployment, by default an `EmbeddedPostgres` in its
  folder, and migrates its schema (`core/schema.sql`). `Database.transact` reruns a transaction
  after a lost connection.
- A `Lease` gives a task, monitor or worker one owner at a time. Writes of an owner call `guard` in
  the same transaction and are refused with `Fenced` when the lease has another owner.
- `begin_run` opens a run. `record_chunk` records a chunk and puts it on the channels of its tasks;
  `end_source` declares the number of chunks. END follows when all are delivered.
- Tasks read their messages with `unread` and commit a step with `commit_step`: cursors, outputs,
  state, results and closed runs in one transaction.
- The monitor releases END at release points, based on the facts from `unreleased`. The checkpoint
  coordinator decides on the facts from `checkpoints.checkpoints.runs_to_checkpoint`.
- `Notifications` call subscribers after commits. They are hints: subscribers also poll.

Sub-packages: `core` (database, schema, leases, notifications), `runs`, `checkpoints`, `flows` and
`cutover`. Each module has its SQL statements in the `.sql` file beside it.
"""

from tidegate.store.checkpoints.checkpoints import (
    Acknowledgement,
    FileChecksum,
    RestoredEntry,
    StateEntry,
    StateUpdate,
    WithdrawnCheckpoints,
    state_of,
    withdrawn_checkpoints,
)
from tidegate.store.core.clocks import ClockWatch
from tidegate.store.core.database import Connection, Database, open_database
from tidegate.store.core.embedded_postgres import EmbeddedPostgres
from tidegate.store.core.lease_keeper import LeaseKeeper
from tidegate.store.core.leases import (
    Lease,
    acquire,
    forget_below,
    free_keys,
    guard,
    holders,
    holders_below,
)
from tidegate.store.core.notifications import Notifications
from tidegate.store.core.text import refused_values, storable
from tidegate.store.core.topics import (
    checkpoint_topic,
    monitor_topic,
    registrations_topic,
    run_topic,
    task_topic,
)
from tidegate.store.runs.channels import (
    FETCH,
    ChannelState,
    OutgoingMessage,
    UnreadMessage,
    channels_of,
    last_watermarks,
    unread,
)
from tidegate.store.runs.chunks import Chunk
from tidegate.store.runs.deliveries import (
    begin_batch,
    end_source,
    find_chunk,
    next_number,
    record_chunk,
)
from tidegate.store.runs.message_codec import message_id
from tidegate.store.runs.releases import release_points_of, released, unreleased
from tidegate.store.runs.results import (
    files_named,
    publications,
    reclaim,
    results_of,
    rows_in,
    to_reclaim,
    unfinished_among,
)
from tidegate.store.runs.runs import (
    ChannelName,
    RunInfo,
    RunState,
    begin_run,
    close_run,
    find_run,
    late_runs,
    number_of,
    open_runs,
    overdue_runs,
    plan_of,
    remove_closed_runs,
)
from tidegate.store.runs.status import (
    ChannelStatus,
    Owner,
    RunFacts,
    RunSummary,
    SourceStatus,
    overview,
    run_facts,
)
from tidegate.store.runs.step_commit import (
    CursorAdvance,
    RunFailure,
    SinkPublication,
    StepCommit,
    closed_among,
    commit_step,
    fail_runs,
)

__all__ = [
    "FETCH",
    "Acknowledgement",
    "ChannelName",
    "ChannelState",
    "ChannelStatus",
    "Chunk",
    "ClockWatch",
    "Connection",
    "CursorAdvance",
    "Database",
    "EmbeddedPostgres",
    "FileChecksum",
    "Lease",
    "LeaseKeeper",
    "Notifications",
    "OutgoingMessage",
    "Owner",
    "RestoredEntry",
    "RunFacts",
    "RunFailure",
    "RunInfo",
    "RunState",
    "RunSummary",
    "SinkPublication",
    "SourceStatus",
    "StateEntry",
    "StateUpdate",
    "StepCommit",
    "UnreadMessage",
    "WithdrawnCheckpoints",
    "acquire",
    "begin_batch",
    "begin_run",
    "channels_of",
    "checkpoint_topic",
    "close_run",
    "closed_among",
    "commit_step",
    "end_source",
    "fail_runs",
    "files_named",
    "find_chunk",
    "find_run",
    "forget_below",
    "free_keys",
    "guard",
    "holders",
    "holders_below",
    "last_watermarks",
    "late_runs",
    "message_id",
    "monitor_topic",
    "next_number",
    "number_of",
    "open_database",
    "open_runs",
    "overdue_runs",
    "overview",
    "plan_of",
    "publications",
    "reclaim",
    "record_chunk",
    "refused_values",
    "registrations_topic",
    "release_points_of",
    "released",
    "remove_closed_runs",
    "results_of",
    "rows_in",
    "run_facts",
    "run_topic",
    "state_of",
    "storable",
    "task_topic",
    "to_reclaim",
    "unfinished_among",
    "unread",
    "unreleased",
    "withdrawn_checkpoints",
]
