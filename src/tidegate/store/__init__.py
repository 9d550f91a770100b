"""Store: what has happened, in PostgreSQL. The only room that speaks SQL.

`open_database` finds the database of a deployment, by default an `EmbeddedServer` in its folder,
and brings its schema up to date. Everything is done by `Database.transact`, which runs a whole
transaction again when the server went away under it. What has one owner at a time is owned by
`Lease`, and whoever writes for it calls `guard` in the same transaction. Messages travel from task
to task on durable lanes: `commit_step` moves cursors and appends what followed, at once or not at
all. `Wakeups` tell the sleepers.
"""

from tidegate.store.chunks import Chunk
from tidegate.store.database import Connection, Database, open_database
from tidegate.store.deliveries import end_source, find_chunk, record_chunk
from tidegate.store.embedded import EmbeddedServer, Listen
from tidegate.store.heartbeat import Heartbeat
from tidegate.store.lanes import (
    LaneState,
    Sent,
    Unread,
    append,
    lanes_of,
    last_watermarks,
    unread,
)
from tidegate.store.leases import Lease, acquire, free_keys, guard, release, renew
from tidegate.store.messages import message_id
from tidegate.store.runs import (
    LaneName,
    Run,
    RunState,
    begin_run,
    close_run,
    find_run,
    open_runs,
    overdue_runs,
    plan_of,
    remove_closed_runs,
)
from tidegate.store.steps import (
    Advance,
    Committed,
    Failed,
    Published,
    StepCommit,
    closed_among,
    commit_step,
)
from tidegate.store.topics import run_topic, task_topic
from tidegate.store.wakeups import Wakeups, notify

__all__ = [
    "Advance",
    "Chunk",
    "Committed",
    "Connection",
    "Database",
    "EmbeddedServer",
    "Failed",
    "Heartbeat",
    "LaneName",
    "LaneState",
    "Lease",
    "Listen",
    "Published",
    "Run",
    "RunState",
    "Sent",
    "StepCommit",
    "Unread",
    "Wakeups",
    "acquire",
    "append",
    "begin_run",
    "close_run",
    "closed_among",
    "commit_step",
    "end_source",
    "find_chunk",
    "find_run",
    "free_keys",
    "guard",
    "lanes_of",
    "last_watermarks",
    "message_id",
    "notify",
    "open_database",
    "open_runs",
    "overdue_runs",
    "plan_of",
    "record_chunk",
    "release",
    "remove_closed_runs",
    "renew",
    "run_topic",
    "task_topic",
    "unread",
]
