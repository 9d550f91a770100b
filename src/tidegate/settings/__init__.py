"""Every tunable of a deployment: name, default, unit, meaning.

A setting is given as `--set NAME=VALUE` to a command or as `TIDEGATE_NAME` in the environment,
which the processes of `tidegate up` inherit. Sizes are written as `512MiB` or in bytes, durations
in seconds. `tidegate settings` lists them all.

`topics` has a class per topic, which is what a component takes; `Settings` inherits from all.
"""

from tidegate.settings.settings import (
    DEFAULTS,
    KNOWN,
    PREFIX,
    SettingInfo,
    Settings,
    parse,
    set_in_environment,
)
from tidegate.settings.topics import (
    ChunkSettings,
    HttpSettings,
    LogSettings,
    MonitorSettings,
    RunSettings,
    StoreSettings,
    TaskSettings,
)

__all__ = [
    "DEFAULTS",
    "KNOWN",
    "PREFIX",
    "ChunkSettings",
    "HttpSettings",
    "LogSettings",
    "MonitorSettings",
    "RunSettings",
    "SettingInfo",
    "Settings",
    "StoreSettings",
    "TaskSettings",
    "parse",
    "set_in_environment",
]
