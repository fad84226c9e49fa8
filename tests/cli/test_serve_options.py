"""The effects of the options of `evenhand serve` on a core that runs as a process."""

from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cli.processes import address_of, running
from tests.cli.run import evenhand
from tests.cli.test_shim_ends import logged

QUEUES = "partitions: [{name: default, queues: [{name: root, submitacl: '*'}]}]\n"
ANY_PORT = "127.0.0.1:0"
ROLES = "certificates:\n- {name: ada.example, role: viewer}\n"


def test_a_core_reads_and_writes_the_files_and_ports_that_are_named(tmp_path: Path) -> None:
    config, log, trace = (tmp_path / name for name in ("queues.yaml", "decisions", "trace"))
    config.write_text(QUEUES)
    said = tmp_path / "log"
    files = ["--config", str(config), "--decision-log", str(log), "--trace", str(trace)]
    ports = ["--listen", ANY_PORT, "--metrics", ANY_PORT, "--health", ANY_PORT]
    with running(["serve", *files, *ports], said) as process:
        address = address_of(process, said)
        shown = evenhand("config", "show", "--core", address)
        with urlopen(f"http://{logged(said, 'metrics')['address']}/metrics") as answer:
            meters = answer.read().decode()
        with grpc.insecure_channel(f"127.0.0.1:{logged(said, 'health')['port']}") as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            health = stub.Check(health_pb2.HealthCheckRequest())
    assert shown.out.endswith(f"\n{QUEUES}")
    assert "evenhand_" in meters
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert evenhand("log", "verify", str(log)).code == 0
    assert evenhand("replay", str(trace), "--compare", str(log)).code == 0


def test_the_name_in_a_certificate_has_its_role(tmp_path: Path) -> None:
    authority = trustme.CA()
    names = {"core": "core.example", "ada": "ada.example", "eve": "eve.example"}
    for file, name in names.items():
        issued = authority.issue_cert(name)
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{file}.crt")
        issued.private_key_pem.write_to_path(tmp_path / f"{file}.key")
    ca, roles = tmp_path / "ca.crt", tmp_path / "roles.yaml"
    authority.cert_pem.write_to_path(ca)
    roles.write_text(ROLES)

    def pair(file: str) -> list[str]:
        crt, key = tmp_path / f"{file}.crt", tmp_path / f"{file}.key"
        return ["--tls-cert", str(crt), "--tls-key", str(key)]

    clients = ["--tls-client-ca", str(ca), "--roles", str(roles)]
    with running(
        ["serve", "--listen", ANY_PORT, *pair("core"), *clients], tmp_path / "log"
    ) as core:
        way = ["--core", address_of(core, tmp_path / "log"), "--tls-ca", str(ca)]
        named = [*way, "--tls-server-name", "core.example"]
        ada = evenhand("partitions", *named, *pair("ada"))
        refused = evenhand("nodes", *named, *pair("ada"))
        eve = evenhand("partitions", *named, *pair("eve"))
        nobody = evenhand("partitions", *named)
        elsewhere = evenhand("partitions", *way, *pair("ada"))
    assert ada.code == 0, ada.err
    assert "your role (viewer of root) may not list nodes" in refused.err
    assert [one.code for one in (eve, nobody, elsewhere)] == [3, 3, 3]
