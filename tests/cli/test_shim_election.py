"""The options of `evenhand shim` for several shims and several cores."""

import pytest

from shim_client import deployed
from shim_client.core_client.address import CoreAddress
from shim_client.deployed import ShimOptions
from shim_client.election.lease import Election, LeaseTerms
from tests.cli.run import evenhand

Joined = list[tuple[ShimOptions, tuple[CoreAddress, ...]]]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Joined:
    """Provide the list of clusters that `evenhand shim --kubernetes` would join; none is joined."""
    found: Joined = []

    async def join(place: ShimOptions, *cores: CoreAddress) -> None:
        found.append((place, cores))

    monkeypatch.setattr(deployed, "run_on_kubernetes", join)
    return found


def test_without_elect_nothing_is_elected(joined: Joined) -> None:
    assert evenhand("shim", "--kubernetes").code == 0
    assert [place.election for place, _ in joined] == [None]


def test_the_usual_lease(joined: Joined) -> None:
    assert evenhand("shim", "--kubernetes", "--elect").code == 0
    assert joined[0][0].election == Election("evenhand-shim", "", LeaseTerms(6, 2.0, 1.0))


def test_what_is_given_of_the_lease_reaches_the_shim(joined: Joined) -> None:
    lease = ["--lease", "shim-of-lab", "--lease-namespace", "locks", "--lease-duration", "15s"]
    more = ["--lease-renew", "2500ms", "--lease-margin", "3s"]
    ended = evenhand("shim", "--kubernetes", "--elect", *lease, *more)
    assert ended.code == 0, ended.err
    assert joined[0][0].election == Election("shim-of-lab", "locks", LeaseTerms(15, 2.5, 3.0))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--lease-duration", "4s"], "a lease of 4 s is too short"),
        (["--lease-renew", "3s"], "must last at least 7 s"),
        (["--lease-margin", "0s"], "must be longer than 0"),
        (["--lease-duration", "6500ms"], "not a whole number of seconds"),
        (["--lease-duration", "soon"], "not a length of time"),
    ],
)
def test_a_lease_that_is_not_safe_is_refused(joined: Joined, options: list[str], said: str) -> None:
    ended = evenhand("shim", "--kubernetes", "--elect", *options)
    assert ended.code == 2
    assert said in " ".join(ended.err.split())
    assert joined == []


@pytest.mark.parametrize(
    "option",
    ["--lease", "--lease-namespace", "--lease-duration", "--lease-renew", "--lease-margin"],
)
def test_the_lease_has_no_effect_without_elect(joined: Joined, option: str) -> None:
    ended = evenhand("shim", "--kubernetes", option, "6s")
    assert ended.code == 2
    assert ended.err.startswith(f"error: {option} has no effect without --elect")
    assert joined == []


def test_an_embedded_cluster_elects_nobody() -> None:
    ended = evenhand("shim", "--cluster", ".", "--elect")
    assert ended.code == 2
    assert ended.err.startswith("error: --elect has no effect without --kubernetes")


def test_several_cores_are_tried_in_their_order(joined: Joined) -> None:
    ended = evenhand("shim", "--kubernetes", "--core", "one:1, two:2,three:3")
    assert ended.code == 0, ended.err
    assert [core.target for core in joined[0][1]] == ["one:1", "two:2", "three:3"]


@pytest.mark.parametrize(
    ("cores", "said"),
    [
        ("one:1,", "`` is not an address"),
        ("one:1,two", "`two` is not an address"),
        ("one:1,one:1", "`one:1,one:1` names a core twice"),
    ],
)
def test_a_bad_list_of_cores_is_refused(joined: Joined, cores: str, said: str) -> None:
    ended = evenhand("shim", "--kubernetes", "--core", cores)
    assert ended.code == 2
    assert said in ended.err
    assert joined == []
