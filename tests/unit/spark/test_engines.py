"""Whether an engine can run a pipeline: plain values in, complaints out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import Complaint, EngineUnfit
from tidegate.spark.session.engines import (
    EngineCapabilities,
    EngineKind,
    EngineRequirements,
    Executor,
    Feature,
    FolderSharing,
    StandaloneCluster,
    WorkerHost,
    mebibytes,
    shortfalls,
)

NEEDS = EngineRequirements(executor=Executor(cores=1, mib=512))
WORKER = WorkerHost(cores=1, mib=1024)
ROOM = EngineCapabilities(EngineKind.CLUSTER, "Spark on spark://m:1", slots=2, within=20.0)
NO_ROOM = replace(ROOM, slots=0)
SHARED = FolderSharing("/data", written_there=64, seen_here=64, written_here=8, seen_there=8)

counts = st.integers(0, 4)
hosts = st.builds(WorkerHost, cores=counts, mib=st.integers(0, 4096))
clusters = st.builds(StandaloneCluster, st.lists(hosts).map(tuple), st.lists(st.text()).map(tuple))
offers = st.builds(
    EngineCapabilities,
    st.sampled_from(EngineKind),
    st.just("an engine"),
    slots=st.none() | counts,
    cluster=st.none() | clusters,
    shared=st.none()
    | st.builds(FolderSharing, st.just("/data"), st.just(""), st.just(""), *[counts] * 4),
    missing_features=st.frozensets(st.sampled_from(Feature)),
)


def only(requirements: EngineRequirements, capabilities: EngineCapabilities) -> Complaint:
    (complaint,) = shortfalls(requirements, capabilities)
    return complaint


def test_nothing_is_missing_with_task_slots_and_a_shared_folder() -> None:
    assert shortfalls(NEEDS, replace(ROOM, shared=SHARED)) == []


def test_an_engine_that_does_not_report_its_slots_has_run_a_job_and_fits() -> None:
    assert shortfalls(NEEDS, replace(ROOM, slots=None)) == []


def test_a_cluster_without_workers_is_reported_instead_of_hanging() -> None:
    complaint = only(NEEDS, replace(NO_ROOM, cluster=StandaloneCluster(())))

    assert complaint.required == "1 task slot on an executor of 1 core and 512 MiB"
    assert complaint.available == "0 within 20 s: no worker has registered with the master"


def test_workers_that_are_too_small_are_listed_with_what_they_have() -> None:
    requirements = EngineRequirements(executor=Executor(cores=None, mib=4096))
    complaint = only(
        requirements, replace(NO_ROOM, cluster=StandaloneCluster((WORKER, WorkerHost(2, 512))))
    )

    assert complaint.required == "1 task slot on an executor of 4096 MiB"
    found = "2 workers with 1 core and 1024 MiB, 2 cores and 512 MiB"
    assert complaint.available == f"0 within 20 s: {found}"
    assert "spark.executor.memory" in complaint.advice


def test_workers_with_too_few_cores_are_too_small_as_well() -> None:
    requirements = EngineRequirements(executor=Executor(cores=2, mib=512))

    assert (
        "spark.executor.cores"
        in only(requirements, replace(NO_ROOM, cluster=StandaloneCluster((WORKER,)))).advice
    )


def test_a_cluster_that_others_use_names_them() -> None:
    taken = StandaloneCluster((WORKER,), others=("shell (app-1)",))
    complaint = only(NEEDS, replace(NO_ROOM, cluster=taken))

    assert complaint.available.endswith("1 core and 1024 MiB, shared with shell (app-1)")
    assert "spark.cores.max" in complaint.advice


def test_without_other_applications_the_reason_is_in_the_logs() -> None:
    complaint = only(NEEDS, replace(NO_ROOM, cluster=StandaloneCluster((WORKER,))))

    assert "logs of the workers" in complaint.advice


def test_without_the_state_of_the_master_only_the_wait_is_reported() -> None:
    assert only(NEEDS, NO_ROOM).available == "0 within 20 s"


def test_more_slots_than_there_are_can_be_required() -> None:
    complaint = only(replace(NEEDS, slots=4), ROOM)

    assert complaint.required.startswith("4 task slots")
    assert complaint.available == "2 within 20 s"


@pytest.mark.parametrize(
    ("shared", "required", "available"),
    [
        (FolderSharing("/data", error_here="read-only"), "writable by this process", "read-only"),
        (
            FolderSharing("/data", error_there="no such file"),
            "readable and writable by executors",
            "no such file",
        ),
        (
            replace(SHARED, seen_there=3),
            "executors see the 8 rows that this process writes",
            "they see 3",
        ),
        (
            replace(SHARED, seen_here=0),
            "this process sees the 64 rows that executors write",
            "it sees 0",
        ),
    ],
)
def test_a_folder_that_is_not_shared_is_reported_with_the_rows_missing_on_each_side(
    shared: FolderSharing, required: str, available: str
) -> None:
    complaint = only(NEEDS, replace(ROOM, shared=shared))

    assert complaint.what == "the data folder /data"
    assert (complaint.required, complaint.available) == (required, available)


def test_every_feature_that_an_engine_lacks_is_named_with_the_engine() -> None:
    capabilities = EngineCapabilities(
        EngineKind.OTHER, "another engine", missing_features=frozenset({Feature.SUMS})
    )
    complaint = only(NEEDS, capabilities)

    assert complaint.what == "sums"
    assert complaint.required == "sums that overflow raise an error"
    assert complaint.available == "another engine behaves differently"


def test_a_feature_that_is_not_needed_may_be_missing() -> None:
    capabilities = EngineCapabilities(
        EngineKind.OTHER, "another engine", missing_features=frozenset({Feature.SUMS})
    )

    assert shortfalls(replace(NEEDS, features=frozenset()), capabilities) == []


def test_a_stage_that_cannot_run_is_named_with_the_reason() -> None:
    capabilities = EngineCapabilities(
        EngineKind.OTHER, "another engine", refused=(("top-1", "no such function"),)
    )

    assert (only(NEEDS, capabilities).what, only(NEEDS, capabilities).available) == (
        "stage top-1",
        "no such function",
    )


@given(offers)
def test_every_complaint_has_required_versus_available(
    capabilities: EngineCapabilities,
) -> None:
    for complaint in shortfalls(NEEDS, capabilities):
        assert complaint.what
        assert complaint.required
        assert complaint.available
        assert not complaint.advice.endswith(".")


@given(offers)
def test_an_engine_fits_exactly_if_slots_folder_and_features_are_there(
    capabilities: EngineCapabilities,
) -> None:
    has_room = capabilities.slots is None or capabilities.slots >= 1
    shared = capabilities.shared
    is_shared = shared is None or (
        shared.seen_here >= shared.written_there and shared.seen_there >= shared.written_here
    )

    assert (not shortfalls(NEEDS, capabilities)) == (
        has_room and is_shared and not capabilities.missing_features
    )


def test_the_error_lists_all_complaints_of_an_engine() -> None:
    complaints = (Complaint("room", "two", "one", "Start more"), Complaint("a", "b", "c", "Do d"))

    assert str(EngineUnfit("Spark on x", complaints)).splitlines() == [
        "the pipeline cannot be served on Spark on x:",
        "  room: required: two; available: one. Start more.",
        "  a: required: b; available: c. Do d.",
    ]


@pytest.mark.parametrize(
    ("text", "mib"),
    [("1g", 1024), ("512m", 512), ("1048576K", 1024), ("2T", 2 << 20), ("300", 300)],
)
def test_memory_is_read_as_spark_writes_it(text: str, mib: int) -> None:
    assert mebibytes(text) == mib
