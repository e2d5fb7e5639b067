"""The manifests in deploy/kubernetes: what they set, and that they belong together."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.settings_sources import read_settings
from engine.fs.names import API_KEYS_FILE
from tests.support.server import serving

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
WORKLOADS = {"directory": "statefulset.yaml", "kafka": "deployment.yaml"}


def workload(name: str) -> dict[str, Any]:
    """The pods of one way to run it."""
    loaded = yaml.safe_load((FOLDER / name / WORKLOADS[name]).read_text(encoding="utf-8"))
    template: dict[str, Any] = loaded["spec"]["template"]["spec"]
    return template


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_setting_is_known_and_every_probe_is_answered(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the second address, for whatever host the kubelet names, without a key."""
    (container,) = workload(name)["containers"]
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one["value"])
    settings = read_settings({})
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert settings.metrics_listen == f"0.0.0.0:{ports['metrics']}"
    assert f'"--port", "{ports["http"]}"' in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {one["port"] for one in probes} == {"metrics"}
    with serving(tmp_path / "data", metrics_listen="127.0.0.1:0") as served:
        assert served.server.metrics is not None
        for one in probes:
            url = served.server.metrics.address + one["path"]
            answer = httpx.get(url, headers={"host": "10.244.0.7:9464"})
            assert answer.status_code == 200


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_pods_have_no_privileges(name: str) -> None:
    """As Kubernetes' own profile `restricted` asks for, which the namespace enforces."""
    pod = workload(name)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert re.search(r"^USER \d+$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert pod["automountServiceAccountToken"] is False
    for container in [*pod["containers"], *pod.get("initContainers", ())]:
        confined = container["securityContext"]
        assert confined["allowPrivilegeEscalation"] is False
        assert confined["readOnlyRootFilesystem"] is True
        assert confined["capabilities"] == {"drop": ["ALL"]}
        written = {one["mountPath"] for one in container["volumeMounts"]}
        assert written <= {"/var/lib/tidelog", "/tmp", "/etc/tidelog"}


def test_a_pod_waits_for_its_first_key_and_says_how_to_make_one(tmp_path: Path) -> None:
    """With a key, or an issuer of tokens, it does not wait."""
    (waiting,) = workload("directory")["initContainers"]
    script = waiting["args"][0].replace("sleep 5", "exit 3")
    variables = {"PATH": os.environ["PATH"], "TIDELOG_DATA_DIRECTORY": str(tmp_path)}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script],
            env=variables | more,
            capture_output=True,
            text=True,
            check=False,
        )

    without = run()
    assert (without.returncode, "-c first-key -- tidelog keys create" in without.stdout) == (
        3,
        True,
    )
    assert run(TIDELOG_JWKS="https://issuer.example/keys").returncode == 0
    (tmp_path / API_KEYS_FILE).write_text("{}")
    assert run().returncode == 0


@pytest.mark.parametrize("name", ["base", "directory", "kafka", "monitoring"])
def test_every_manifest_is_used(name: str) -> None:
    """And every one that is named is there."""
    named = yaml.safe_load((FOLDER / name / "kustomization.yaml").read_text(encoding="utf-8"))
    files = {one.name for one in (FOLDER / name).iterdir()} - {"kustomization.yaml"}
    assert {one for one in named["resources"] if one != "../base"} == files


@pytest.mark.long
@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("name", WORKLOADS)
def test_what_is_applied_selects_its_own_pods(name: str) -> None:
    """Services, budget and network policy find the pods of the workload, and no others."""
    command = ["kubectl", "kustomize", str(FOLDER / name)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = list(yaml.safe_load_all(built))
    (pods,) = (one["spec"]["template"] for one in found if "template" in one.get("spec", {}))
    labels = pods["metadata"]["labels"]
    selectors = []
    for one in found:
        selector = one.get("spec", {}).get("selector") or one.get("spec", {}).get("podSelector")
        if selector is not None:
            selectors.append(selector.get("matchLabels", selector))
    assert selectors == [labels] * 5
