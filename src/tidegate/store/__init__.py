"""Store: what has happened, in PostgreSQL. The only room that speaks SQL.

`open_database` finds the database of a deployment, by default an `EmbeddedServer` in its folder,
and brings its schema up to date. Everything is done by `Database.transact`, which runs a whole
transaction again when the server went away under it. What has one owner at a time is owned by
`Lease`, and whoever writes for it calls `guard` in the same transaction. Messages travel from task
to task on durable lanes: `commit_step` moves cursors and appends what followed, at once or not at
all. `Wakeups` tell the sleepers.
"""

from tidegate.store.database import Database, open_database
from tidegate.store.embedded import EmbeddedServer, Listen
from tidegate.store.heartbeat import Heartbeat
from tidegate.store.lanes import (
    Advance,
    LaneState,
    Sent,
    StepCommit,
    Unread,
    append,
    commit_step,
    lanes_of,
    last_watermarks,
    task_topic,
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
    latest_run,
    remove_closed_runs,
)
from tidegate.store.wakeups import Wakeups, notify

__all__ = [
    "Advance",
    "Database",
    "EmbeddedServer",
    "Heartbeat",
    "LaneName",
    "LaneState",
    "Lease",
    "Listen",
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
    "commit_step",
    "free_keys",
    "guard",
    "lanes_of",
    "last_watermarks",
    "latest_run",
    "message_id",
    "notify",
    "open_database",
    "release",
    "remove_closed_runs",
    "renew",
    "task_topic",
    "unread",
]
