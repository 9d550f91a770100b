"""Store: what has happened, in PostgreSQL. The only room that speaks SQL.

`open_database` finds the database of a deployment, by default an `EmbeddedPostgres` in its folder,
and brings its schema up to date. Everything is done by `Database.transact`, which runs a whole
transaction again when the server went away under it. What has one owner at a time is owned by
`Lease`, and whoever writes for it calls `guard` in the same transaction. Chunks come in by
`record_chunk`, and `end_source` says how many there are. Messages travel from task to task on
durable channels: `commit_step` moves cursors, appends what followed, publishes and closes runs, at
once or not at all. The monitor decides on what `unreleased` tells, the coordinator of checkpoints
on what `checkpoints.runs_to_checkpoint` does. `Notifications` tell the sleepers.
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
from tidegate.store.core.embedded_postgres import EmbeddedPostgres, Listen
from tidegate.store.core.lease_keeper import LeaseKeeper
from tidegate.store.core.leases import (
    Lease,
    acquire,
    forget_below,
    free_keys,
    guard,
    holders,
    holders_below,
    release,
    renew,
)
from tidegate.store.core.notifications import Notifications, notify
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
    append,
    channels_of,
    last_watermarks,
    unread,
)
from tidegate.store.runs.chunks import Chunk
from tidegate.store.runs.deliveries import (
    begin_batch,
    end_source,
    find_chunk,
    number_for,
    record_chunk,
)
from tidegate.store.runs.message_codec import message_id
from tidegate.store.runs.releases import facts_of, release_points_of, released, unreleased
from tidegate.store.runs.results import (
    SinkRows,
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
    CommitOutcome,
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
    "CommitOutcome",
    "Connection",
    "CursorAdvance",
    "Database",
    "EmbeddedPostgres",
    "FileChecksum",
    "Lease",
    "LeaseKeeper",
    "Listen",
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
    "SinkRows",
    "SourceStatus",
    "StateEntry",
    "StateUpdate",
    "StepCommit",
    "UnreadMessage",
    "WithdrawnCheckpoints",
    "acquire",
    "append",
    "begin_batch",
    "begin_run",
    "channels_of",
    "checkpoint_topic",
    "close_run",
    "closed_among",
    "commit_step",
    "end_source",
    "facts_of",
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
    "notify",
    "number_for",
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
    "release",
    "release_points_of",
    "released",
    "remove_closed_runs",
    "renew",
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
