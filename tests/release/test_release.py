"""The files of a release: those of the commit, the same bytes each time, and complete."""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import release
from scripts.real import provision
from tests.real.needs import absent

ROOT = Path(__file__).parents[2]
WORKFLOW: Any = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
VERSION = release.check(ROOT, "")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the files of a release of this checkout's commit."""
    git = shutil.which("git")
    if git is None or subprocess.run([git, "rev-parse", "HEAD"], cwd=ROOT, check=False).returncode:
        pytest.skip("git is not here, or this is no checkout")
    if provision.program("helm") is None:
        absent("helm is not built (`make real` builds it)")
    out = tmp_path_factory.mktemp("release")
    release.release(out / "first", "", "HEAD")
    release.release(out / "second", "", "HEAD")
    return out


def test_the_same_commit_gives_the_same_bytes(made: Path) -> None:
    first, second = (
        {it.name: it.read_bytes() for it in (made / of).iterdir()} for of in ("first", "second")
    )
    assert set(first) == {
        f"evenhand-{VERSION}-py3-none-any.whl",
        f"evenhand-{VERSION}.tar.gz",
        f"evenhand-{VERSION}.tgz",
        f"evenhand-{VERSION}.cdx.json",
        "SHA256SUMS",
    }
    assert [name for name in first if first[name] != second[name]] == []


def test_the_checksums_are_those_of_the_files(made: Path) -> None:
    lines = (made / "first" / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == 4
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((made / "first" / name).read_bytes()).hexdigest() == digest


def test_wheel_and_chart_have_what_they_need(made: Path) -> None:
    with zipfile.ZipFile(made / "first" / f"evenhand-{VERSION}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
    assert {"evenhand_cli/app.py", "si/v1/si_pb2.py", "evenhand_cli/rules.json"} <= names
    with tarfile.open(made / "first" / f"evenhand-{VERSION}.tgz") as chart:
        names = set(chart.getnames())
    wanted = ("Chart.yaml", "values.schema.json", "files/certificates.py", "templates/core.yaml")
    assert {f"evenhand/{name}" for name in wanted} <= names


def test_the_bill_of_materials_names_every_package_of_the_image(made: Path) -> None:
    bom = json.loads((made / "first" / f"evenhand-{VERSION}.cdx.json").read_text())
    text = (ROOT / "requirements.txt").read_text()
    pins = sorted(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))
    assert sorted((it["name"], it["version"]) for it in bom["components"]) == pins
    assert all(it["hashes"] and it["purl"].startswith("pkg:pypi/") for it in bom["components"])
    named = [it["name"] for it in bom["components"] if it.get("licenses")]
    assert len(named) > len(pins) * 0.8
    assert bom["metadata"]["component"]["version"] == VERSION
    [needs] = [it["dependsOn"] for it in bom["dependencies"] if it["ref"] == "evenhand"]
    assert len(needs) == len(pins)


def test_a_commit_with_other_numbers_is_refused(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md", "deploy/chart/Chart.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    with pytest.raises(release.ReleaseError, match=f"tag v{VERSION}"):
        release.check(tmp_path, "v0.0.1")
    file = tmp_path / "CHANGELOG.md"
    file.write_text(file.read_text().replace(f"## [{VERSION}]", "## [other]"))
    with pytest.raises(release.ReleaseError, match="CHANGELOG"):
        release.check(tmp_path, f"v{VERSION}")
    file.write_text(f"## [{VERSION}]\n")
    assert release.check(tmp_path, f"v{VERSION}") == VERSION
    chart = tmp_path / "deploy/chart/Chart.yaml"
    chart.write_text(chart.read_text().replace(f"version: {VERSION}", "version: 9.9.9"))
    with pytest.raises(release.ReleaseError, match=re.escape("Chart.yaml")):
        release.check(tmp_path, f"v{VERSION}")


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    with pytest.raises(release.ReleaseError, match="not empty"):
        release.release(tmp_path, "", "HEAD")


def test_the_workflow_makes_a_bill_provenance_and_signatures() -> None:
    """The steps cannot run here; what they name exists, and no job has more rights than it uses."""
    used = {step["uses"].partition("@")[0] for step in STEPS if "uses" in step}
    assert {"actions/attest-sbom", "actions/attest-build-provenance"} <= used
    assert all("@" in step["uses"] for step in STEPS if "uses" in step)
    lines = "\n".join(step["run"] for step in STEPS if "run" in step)
    assert lines.count("cosign sign") == 3
    assert "-m scripts.release" in lines
    for folder, package in re.findall(r"go build -C (\S+) .* (\S+)$", lines, re.MULTILINE):
        assert f"tool {package}" in (ROOT / folder / "go.mod").read_text()
    assert WORKFLOW["permissions"] == {"contents": "read"}
    [build] = [step for step in STEPS if step.get("id") == "build"]
    assert build["with"]["sbom"] is True
    assert build["with"]["provenance"] == "mode=max"
    assert "steps.base.outputs.image" in build["with"]["build-args"]


def test_a_step_reads_inputs_as_variables_and_not_as_text_of_a_script() -> None:
    """A name of a branch or tag within a script could be a command."""
    assert [step for step in STEPS if "${{" in step.get("run", "")] == []
