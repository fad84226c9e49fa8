"""A real cluster's nodes and pods: the script that converts them into a directory, and the demonstration with it."""

import asyncio
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shim_client.embedded.loading import read_directory
from tests.shim.rig import ROOT

DATA = ROOT.parent / "shared" / "data" / "openb"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not here")
NODES, PODS, GPUS = 1523, 8152, 6212


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "openb_to_cluster", ROOT / "examples" / "openb_to_cluster.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,1024,0,\nn1,64000,2048,8,T4\n"
    )
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time\n"
    (directory / "pods.csv").write_text(
        head + "late,500,64,0,0,,BE,Running,60\nearly,6000,128,1,460,,LS,Running,5\n"
    )
    return directory


def objects(directory: Path, kind: str) -> list[dict[str, Any]]:
    return [found.item for found in read_directory(directory).objects if found.kind == kind]


def test_rows_become_nodes_pods_and_queues(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "cluster"
    assert script().convert(source, target) == (2, 2)
    plain, gpu = objects(target, "Node")
    assert plain["status"]["allocatable"] == {"cpu": "32000m", "memory": "1024Mi", "pods": "110"}
    assert gpu["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert gpu["metadata"]["labels"]["openb/gpu-model"] == "T4"
    early, late = objects(target, "Pod")
    assert (early["metadata"]["name"], late["metadata"]["name"]) == ("early", "late")
    assert early["metadata"]["creationTimestamp"] == "2026-01-01T00:00:05Z"
    assert early["metadata"]["labels"] == {
        "applicationId": "ls-000", "queue": "root.online", "qos": "LS",
    }  # fmt: skip
    requests = early["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "6000m", "memory": "128Mi", "nvidia.com/gpu": "1"}
    assert read_directory(target).queues.startswith("{")


def test_a_missing_or_broken_list_is_an_error_with_its_name(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "pods.csv").write_text("name\nx\n")
    assert script().main([str(source), str(tmp_path / "a")]) == 1
    assert script().main([str(tmp_path / "nowhere"), str(tmp_path / "b")]) == 1
    assert str(tmp_path / "nowhere") in capsys.readouterr().err


@needs_data
def test_the_real_list_is_whole_and_the_seed_decides_the_models(tmp_path: Path) -> None:
    convert = script().convert
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert convert(DATA, tmp_path / name, seed) == (NODES, PODS)
    texts = [(tmp_path / name / "pods.yaml").read_bytes() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    pods = objects(tmp_path / "a", "Pod")
    wanting = [
        pod
        for pod in pods
        if "nvidia.com/gpu" in pod["spec"]["containers"][0]["resources"]["requests"]
    ]
    choosy = [
        pod["spec"]["nodeSelector"]["openb/gpu-model"]
        for pod in wanting
        if "nodeSelector" in pod["spec"]
    ]
    assert 0.3 < len(choosy) / len(wanting) < 0.37
    nodes = objects(tmp_path / "a", "Node")
    models = Counter(node["metadata"]["labels"].get("openb/gpu-model") for node in nodes)
    assert set(choosy) <= set(models)
    gpus = sum(int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) for node in nodes)
    assert gpus == GPUS


@needs_data
async def test_the_demo_places_the_real_list_or_says_why_not(tmp_path: Path) -> None:
    script().convert(DATA, tmp_path)
    command = [sys.executable, "-m", "evenhand_cli", "demo", "--cluster", str(tmp_path)]
    demo = await asyncio.create_subprocess_exec(
        *command, "--output", "json", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(demo.communicate(), 120)
    assert demo.returncode == 0
    outcome = json.loads(out)
    pods, waiting = outcome["pods"], outcome["waiting"]
    assert pods["bound"] + pods["pending"] == pods["total"] == PODS
    assert pods["bound"] > PODS * 0.8
    assert sum(group["pods"] for group in waiting) == pods["pending"]
    assert all(group["code"] and group["why"] for group in waiting)
    assert outcome["usage"]["nvidia.com/gpu"] <= GPUS
    assert {one["severity"] for one in outcome["findings"]} <= {"warning"}
