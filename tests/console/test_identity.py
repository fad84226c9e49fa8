"""With which identity a visitor reads, where the console has one of its own."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from evenhand_cli.connect import Core, connected_core, open_channel
from evenhand_cli.contexts import Context
from evenhand_console.connection import Connection
from evenhand_console.reading import LogInFault, Source
from evenhand_console.refusals import refusal_of


@pytest.mark.parametrize(
    ("field", "has"),
    [("token_file", True), ("tls_cert", True), ("tls_ca", False), ("core", False)],
)
def test_a_token_or_a_client_certificate_is_an_identity(
    tmp_path: Path, field: str, *, has: bool
) -> None:
    file = tmp_path / "file"
    file.write_text("a token, or a certificate that no core will see")
    given = {"core": "127.0.0.1:1"} | ({} if field == "core" else {field: str(file)})
    if field == "tls_cert":
        given["tls_key"] = str(file)
    with connected_core(Context(**given), "", 1.0) as core:
        assert core.has_identity is has


@pytest.mark.parametrize("has", [False, True])
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("token", ["", "of-a-visitor"])
def test_nobody_reads_with_an_identity_that_is_not_shared(
    token: str, *, shares: bool, has: bool
) -> None:
    core = Core("127.0.0.1:1", open_channel("127.0.0.1:1", None), 1.0, has_identity=has)
    source = Source(
        Connection(lambda _token: nullcontext(core), lambda: 0.0), shares_identity=shares
    )
    if has and not shares and not token:
        with pytest.raises(LogInFault) as caught:
            source.read(token, lambda _: None)
        refusal = refusal_of(caught.value)
        assert (refusal.status, refusal.log_in) == (401, True)
    else:
        assert source.read(token, lambda found: found.metadata).value == (
            (("authorization", f"Bearer {token}"),) if token else ()
        )
