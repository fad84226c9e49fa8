"""The page of the configurations that were in force, and the way back to an earlier one through what-if."""

from dataclasses import replace

from evenhand.v1 import config_pb2, history_pb2
from evenhand_console.query import Query, query_of
from evenhand_console.views import configurations
from tests.console import replies
from tests.console.samples import core
from tests.console.serving import console


def _query(**given: str) -> Query:
    view = configurations.VIEW
    return query_of(view.path, view.parameters, given.items())


def test_the_recorded_configuration_in_force_is_marked_and_cannot_be_returned_to() -> None:
    page = configurations.shape(replies.load(configurations.Read, "configurations"), _query())
    assert page.has_history
    assert [one.in_force for one in page.rows].count(True) == 1
    assert page.rows[0].in_force
    assert not page.rows[0].can_return


def test_an_earlier_configuration_has_its_effects_and_its_difference_from_now() -> None:
    found = replies.load(configurations.Read, "configurations")
    old = history_pb2.PastConfiguration(
        revision=1,
        digest="old",
        source="apply queues.yaml",
        until_ms=5,
        changes=[config_pb2.ConfigChange(kind="added", subject=f"queue {at}") for at in range(12)],
        effects=[
            history_pb2.PolicyEffect(policy="guaranteed", victims=3),
            history_pb2.PolicyEffect(policy="quota", victims=4),
        ],
    )
    assert found.listed is not None
    found.listed.configurations.append(old)
    chosen = history_pb2.GetConfigurationResponse(configuration=old, yaml="partitions: []\n")
    change = config_pb2.ConfigChange(kind="removed", subject="queue root.a")
    difference = config_pb2.DiffResponse(changes=[change])
    page = configurations.shape(
        replace(found, chosen=chosen, difference=difference), _query(revision="1")
    )
    row = page.rows[-1]
    assert (row.victims, row.can_return, row.changes_left_out) == (7, True, 2)
    assert page.chosen is not None
    assert (page.chosen.changes, page.chosen.in_force) == ((change,), False)


def test_a_core_without_a_history_says_so() -> None:
    page = configurations.shape(configurations.Read(None, None, None, None), _query())
    assert not page.has_history


def test_the_way_back_fills_the_editor_with_the_earlier_text() -> None:
    fake = core()
    fake.answers["Get"] = config_pb2.GetResponse(yaml="# now", source="a file", revision=2)
    with console(fake) as client:
        listed = client.get("/configurations?revision=1").text
        assert '<a href="/what-if?revision=1">' in listed
        page = client.get("/what-if?revision=1").text
    assert "The text is revision 1, from the history." in page
    assert "# earlier</textarea>" in page
    assert 'name="base_revision" value="2"' in page
