"""config/kubernetes.yaml: its parts name each other, and what vmq is told there is what it takes."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from vmq.cli.main import COMMANDS
from vmq.config.load import load

ROOT = Path(__file__).parents[2]
FILE = ROOT / "config" / "kubernetes.yaml"
PARTS: dict[tuple[str, str], dict[str, Any]] = {
    (each["kind"], each["metadata"]["name"]): each
    for each in yaml.safe_load_all(FILE.read_text("utf-8"))
}
SET = PARTS["StatefulSet", "vmq"]
POD = SET["spec"]["template"]["spec"]
(BROKER,) = POD["containers"]
TOML: str = PARTS["ConfigMap", "vmq"]["data"]["vmq.toml"]


def environment(pod: str) -> dict[str, str]:
    """The variables of a pod, as the kubelet gives them."""
    found: dict[str, str] = {}
    for each in BROKER["env"]:
        value = pod if "valueFrom" in each else each["value"]
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda m: found[m[1]], value)
    return found


def test_it_has_what_a_cluster_needs_and_nothing_else() -> None:
    assert set(PARTS) == {
        ("ConfigMap", "vmq"),
        ("Service", "vmq-nodes"),
        ("Service", "vmq"),
        ("PodDisruptionBudget", "vmq"),
        ("StatefulSet", "vmq"),
    }
    versions = {kind: each["apiVersion"] for (kind, _), each in PARTS.items()}
    assert versions["StatefulSet"] == "apps/v1"
    assert versions["PodDisruptionBudget"] == "policy/v1"


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda each: each["kind"])
@pytest.mark.parametrize("version", ("1.28", "1.33"))
def test_kubernetes_takes_it(part: dict[str, Any], version: str) -> None:
    """By the schemas of Kubernetes itself; a field that it does not know is a mistake."""
    import kubernetes_validate  # slow

    kubernetes_validate.validate(part, version, strict=True)


def test_a_mistake_would_be_seen() -> None:
    import kubernetes_validate

    misspelt = {**SET, "spec": {**SET["spec"], "serviceNam": "vmq-nodes"}}
    with pytest.raises(kubernetes_validate.ValidationError, match="serviceNam"):
        kubernetes_validate.validate(misspelt, "1.33", strict=True)


def test_everything_is_about_the_same_pods() -> None:
    labels = SET["spec"]["template"]["metadata"]["labels"]
    assert SET["spec"]["selector"]["matchLabels"] == labels
    assert PARTS["Service", "vmq"]["spec"]["selector"] == labels
    assert PARTS["Service", "vmq-nodes"]["spec"]["selector"] == labels
    assert PARTS["PodDisruptionBudget", "vmq"]["spec"]["selector"]["matchLabels"] == labels


def test_pods_find_each_other_by_the_headless_service() -> None:
    service = PARTS["Service", "vmq-nodes"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert SET["spec"]["serviceName"] == "vmq-nodes"
    port = {each["name"]: each["containerPort"] for each in BROKER["ports"]}
    cluster = tomllib.loads(TOML)["cluster"]
    assert cluster["listen"] == f"tcp://0.0.0.0:{port['cluster']}"
    for number, address in enumerate(cluster["join"]):
        pod = environment(f"vmq-{number}")
        assert pod["VMQ_CLUSTER__ADVERTISE"] == address
        assert pod["VMQ_CLUSTER__NODE_NAME"] == f"vmq-{number}"
    assert len(cluster["join"]) >= 2, (
        "the first pod finds the second, if it comes back with nothing"
    )


def test_vmq_takes_the_configuration_with_the_pod_s_environment(tmp_path: Path) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text(TOML)
    config = load(file, environ=environment("vmq-2")).config
    assert config.cluster.node_name == "vmq-2"
    assert config.broker.data_dir == "/var/lib/vmq"
    ports = {each["name"]: each["containerPort"] for each in BROKER["ports"]}
    assert config.listeners["mqtt"].endpoint.port == ports["mqtt"]
    assert config.listeners["http"].endpoint.port == ports["http"]
    assert config.listeners["http"].allow_remote
    assert not config.anonymous_allowed("mqtt")


def test_services_lead_to_ports_that_there_are() -> None:
    names = {each["name"] for each in BROKER["ports"]}
    for (kind, _), part in PARTS.items():
        if kind == "Service":
            assert {each["targetPort"] for each in part["spec"]["ports"]} <= names


def test_probes_ask_what_vmq_answers() -> None:
    from vmq.http.openapi import HEALTH

    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = BROKER[probe]["httpGet"]
        assert asked["path"] in HEALTH
        assert asked["port"] == "http"
    assert BROKER["readinessProbe"]["httpGet"]["path"] == "/health/ready"


def test_a_pod_lets_nobody_in_before_it_stops() -> None:
    (_, _, script) = BROKER["lifecycle"]["preStop"]["exec"]["command"]
    stop, wait = script.split("; ")
    program, command, verb, listener = stop.split()
    assert (program, verb) == ("vmq", "stop")
    assert command in COMMANDS
    assert listener in tomllib.loads(TOML)["listeners"]
    assert int(wait.removeprefix("sleep ")) < POD["terminationGracePeriodSeconds"] - 60


def test_its_data_outlive_it_and_it_is_nobody() -> None:
    (claim,) = SET["spec"]["volumeClaimTemplates"]
    mounts = {each["name"]: each["mountPath"] for each in BROKER["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == environment("x")["VMQ_BROKER__DATA_DIR"]
    assert POD["securityContext"]["runAsNonRoot"]
    image = (ROOT / "config" / "Dockerfile").read_text("utf-8")
    assert f"--uid {POD['securityContext']['runAsUser']} " in image
    assert BROKER["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    volumes = {each["name"] for each in POD["volumes"]} | {claim["metadata"]["name"]}
    assert set(mounts) == volumes


@pytest.mark.parametrize("secret", ("vmq-cluster-key", "vmq-users"))
def test_the_secrets_are_those_of_the_commands_above(secret: str) -> None:
    assert f"create secret generic {secret} --from-file=" in FILE.read_text("utf-8")
    assert secret in {each["secret"]["secretName"] for each in POD["volumes"] if "secret" in each}
