"""The metrics of a shim, as a Prometheus server reads them over HTTP."""

from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shim_client.metrics import Leading, served
from shim_client.probe import NoPortError

ANY = "127.0.0.1:0"


def scraped(leading: Leading | None) -> dict[str, float]:
    """Return the metrics of a shim by name."""
    with served(ANY, lambda: leading) as port, urlopen(f"http://127.0.0.1:{port}/metrics") as found:
        families = text_string_to_metric_families(found.read().decode())
        return {sample.name: sample.value for family in families for sample in family.samples}


def test_a_shim_that_leads_and_one_that_does_not() -> None:
    assert scraped(Leading(7, 3.5)) == {
        "evenhand_shim_leader": 1,
        "evenhand_shim_epoch": 7,
        "evenhand_shim_lease_seconds_left": 3.5,
    }
    assert scraped(Leading(0, 0.0)) == {
        "evenhand_shim_leader": 0,
        "evenhand_shim_epoch": 0,
        "evenhand_shim_lease_seconds_left": 0,
    }


def test_a_shim_alone_leads_and_has_no_lease() -> None:
    assert scraped(None) == {"evenhand_shim_leader": 1}


def test_a_port_in_use_or_out_of_range_is_named() -> None:
    with served(ANY, lambda: None) as port:
        for address in (f"127.0.0.1:{port}", "127.0.0.1:70000"):
            with (
                pytest.raises(NoPortError, match=f"no metrics at {address}"),
                served(address, lambda: None),
            ):
                raise AssertionError("the port was opened")
