"""A driver requires a secret, or is not reachable from other machines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import SparkUnprotected
from tidegate.spark.session.authentication import protection

ELSEWHERE = "spark://10.0.0.5:7077"
HERE = "spark://127.0.0.1:7077"


def test_a_local_driver_requires_a_secret_and_listens_on_loopback() -> None:
    settings = protection("local[*]", {}, is_here=True)

    assert settings["spark.authenticate"] == "true"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("master", [ELSEWHERE, "yarn", "k8s://https://10.0.0.5"])
def test_a_driver_on_a_cluster_requires_a_secret_and_encrypts(master: str) -> None:
    settings = protection(master, {}, is_here=False)

    assert settings == {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@given(st.sampled_from(["false", "False", " FALSE ", "0", ""]))
def test_a_driver_without_a_secret_is_refused_beyond_this_machine(off: str) -> None:
    with pytest.raises(SparkUnprotected):
        protection(ELSEWHERE, {"spark.authenticate": off}, is_here=False)


@pytest.mark.parametrize("master", ["local[2]", HERE])
def test_a_driver_without_a_secret_may_only_listen_on_loopback(master: str) -> None:
    off = {"spark.authenticate": "false"}

    assert protection(master, off, is_here=True)["spark.driver.bindAddress"] == "127.0.0.1"
    with pytest.raises(SparkUnprotected):
        protection(master, {**off, "spark.driver.bindAddress": "0.0.0.0"}, is_here=True)


def test_a_secret_that_the_list_of_processes_would_show_is_refused() -> None:
    with pytest.raises(SparkUnprotected):
        protection(ELSEWHERE, {"spark.authenticate.secret": "x"}, is_here=False)

    shown = "--conf spark.authenticate.secret=x pyspark-shell"
    with pytest.raises(SparkUnprotected):
        protection(ELSEWHERE, {}, shown, is_here=False)
