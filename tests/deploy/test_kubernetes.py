"""The manifests: what Kubernetes' own schemas take, and what we promise of them. No cluster, no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import kubernetes_validate
import pytest
import yaml

from tenure._core.base.limits import TTL_DEFAULT
from tests.deploy.kustomize import Document, NotUnderstood, build, containers

HERE = Path(__file__).parent.parent.parent / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (HERE / "overlays").iterdir())
VERSIONS = ("1.29", kubernetes_validate.latest_version())
"""The oldest with sidecars that are on by default, and the newest there are schemas of."""
BUILT = {name: build(HERE / "overlays" / name) for name in OVERLAYS}
CUSTOM = ("ServiceMonitor",)
"""Kinds that are not Kubernetes' own: no schema of theirs can be had offline, so they are checked by hand below."""


def everything() -> list[Any]:
    """Each resource of each overlay."""
    return [
        pytest.param(overlay, one, id=f"{overlay}-{one['kind']}-{one['metadata']['name']}")
        for overlay, found in BUILT.items()
        for one in found
    ]


def one_of(overlay: str, kind: str, name: str = "tenure") -> Document:
    """The one resource of that kind and name."""
    (found,) = [one for one in BUILT[overlay] if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(overlay: str, kind: str, name: str = "tenure") -> Document:
    """Its pods' specification."""
    pod: Document = one_of(overlay, kind, name)["spec"]["template"]["spec"]
    return pod


def tenures() -> list[Any]:
    """Every container that runs tenure, with its overlay."""
    return [
        pytest.param(overlay, one, id=overlay)
        for overlay, found in BUILT.items()
        for one in containers(found)
        if one["name"] == "tenure"
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("overlay", "resource"), everything())
def test_resource_is_what_kubernetes_takes(overlay: str, resource: Document, version: str) -> None:
    """Every field is known, every value of its type: a misspelt field would be dropped in silence by the cluster."""
    if resource["kind"] not in CUSTOM:
        kubernetes_validate.validate(resource, version, strict=True)


def test_misspelt_field_is_noticed() -> None:
    """The schemas are strict: what the test above says means something."""
    broken = yaml.safe_load(yaml.safe_dump(one_of("service", "Deployment")))
    broken["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


def test_service_monitor_finds_the_port_of_the_service() -> None:
    """By hand, for want of a schema: only fields that the operator knows, a selector and a port of the Service."""
    for overlay in ("service", "trying"):
        monitor, service = one_of(overlay, "ServiceMonitor"), one_of(overlay, "Service")
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        assert set(monitor) == {"apiVersion", "kind", "metadata", "spec"}
        assert set(monitor["spec"]) == {"selector", "endpoints"}
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint == {"port": "health", "path": "/metrics", "interval": "15s"}
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        wanted = monitor["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= service["metadata"]["labels"].items()
        assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]


@pytest.mark.parametrize("overlay", ["service", "trying"])
def test_what_selects_pods_selects_those_there_are(overlay: str) -> None:
    """Service, PodDisruptionBudget, NetworkPolicy and Deployment mean the same pods, and name ports that they have."""
    deployment = one_of(overlay, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels
    assert one_of(overlay, "Service")["spec"]["selector"].items() <= labels
    assert one_of(overlay, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels
    policy = one_of(overlay, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels
    ports = {port["name"] for port in pod_of(overlay, "Deployment")["containers"][0]["ports"]}
    assert {port["targetPort"] for port in one_of(overlay, "Service")["spec"]["ports"]} <= ports
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} <= ports


@pytest.mark.parametrize(("overlay", "resource"), everything())
def test_pods_are_allowed_nothing_that_they_do_not_need(overlay: str, resource: Document) -> None:
    """Pod security level "restricted", and beyond: nothing to write to, no token of the API server."""
    pod = resource.get("spec", {}).get("template", {}).get("spec")
    if pod is None:
        return
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] >= 10_000
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    for one in containers([resource]):
        allowed = one["securityContext"]
        if one["name"] == "tenure":  # a patch for a pod of somebody else's must not depend on that pod's own
            assert allowed["runAsNonRoot"] is True
            assert allowed["seccompProfile"] == {"type": "RuntimeDefault"}
        assert allowed["allowPrivilegeEscalation"] is False
        assert allowed["readOnlyRootFilesystem"] is True
        assert allowed["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in one["resources"]["limits"]
        assert set(one["resources"]["requests"]) == {"cpu", "memory"}


@pytest.mark.parametrize(("overlay", "container"), tenures())
def test_tenure_is_never_throttled(overlay: str, container: Document) -> None:
    """A limit of the CPU can cost holds."""
    assert "cpu" not in container["resources"]["limits"]


@pytest.mark.parametrize(("overlay", "container"), tenures())
def test_probes_ask_the_health_port(overlay: str, container: Document) -> None:
    """Liveness never asks the store: a store that is away would restart every replica at once."""
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
    assert {"startupProbe", "livenessProbe"} <= set(probes)
    for probe in probes.values():
        assert probe["httpGet"]["path"] in ("/healthz", "/readyz")
        assert f"--health-port=0.0.0.0:{ports[probe['httpGet']['port']]}" in container["args"]
    assert probes["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize("overlay", ["service", "trying"])
def test_end_of_a_pod_leaves_time_to_resign(overlay: str) -> None:
    """preStop, drain and a TTL fit into the grace period: SIGKILL before the end leaves leaderships to their TTL."""
    pod = pod_of(overlay, "Deployment")
    (container,) = pod["containers"]
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command[0] == "sleep"
    assert pod["terminationGracePeriodSeconds"] >= int(command[1]) + _shutdown(container) + TTL_DEFAULT


def _shutdown(container: Document) -> float:
    drains = [one for one in container["args"] if one.startswith("--drain=")]
    return float(drains[0].partition("=")[2]) if drains else 20.0


def test_service_stays_up_when_nodes_are_drained() -> None:
    """Replicas on several nodes, one at a time."""
    deployment = one_of("service", "Deployment")["spec"]
    assert deployment["replicas"] == 3
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert one_of("service", "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert pod_of("service", "Deployment")["topologySpreadConstraints"]


def test_service_is_protected_and_only_the_trial_is_not() -> None:
    """TLS and tokens come from Secrets, for the store, too; --insecure stands nowhere else than in overlays/trying."""
    (container,) = pod_of("service", "Deployment")["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod_of("service", "Deployment")["volumes"]}
    for option in ("--tokens", "--tls-cert", "--tls-key"):
        (given,) = [one for one in container["args"] if one.startswith(f"{option}=")]
        assert secrets[mounts[str(Path(given.partition("=")[2]).parent)]].startswith("tenure-")
    (url,) = re.findall(r"etcd://\S+", (HERE / "overlays" / "service" / "kustomization.yaml").read_text())
    files = dict(parse_qsl(urlsplit(url).query))
    assert set(files) == {"ca", "cert", "key"}
    assert {secrets[mounts[str(Path(path).parent)]] for path in files.values()} == {"tenure-store-tls"}
    assert [
        name for name in OVERLAYS if any("--insecure" in one.get("args", []) for one in containers(BUILT[name]))
    ] == ["trying"]


def test_sidecar_is_native_and_out_of_reach() -> None:
    """Started before the app and ended after it; it listens on the pod's loopback only, but for probes."""
    pod = pod_of("sidecar", "Deployment", "app")
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert not [one for one in sidecar["args"] if one.startswith("--listen")]
    assert pod["terminationGracePeriodSeconds"] >= 30 + _shutdown(sidecar) + TTL_DEFAULT
    assert [one["name"] for one in pod["containers"]] == ["app"]


def test_etcd_of_the_trial_knows_its_members_and_the_service_knows_them_too() -> None:
    """Three members by the names of the StatefulSet, and the URL of the Secret has the same."""
    etcd = one_of("trying", "StatefulSet", "etcd")["spec"]
    (container,) = pod_of("trying", "StatefulSet", "etcd")["containers"]
    members = [f"etcd-{n}.{etcd['serviceName']}" for n in range(etcd["replicas"])]
    assert one_of("trying", "Service", "etcd")["spec"]["clusterIP"] == "None"
    (initial,) = [one for one in container["command"] if one.startswith("--initial-cluster=")]
    assert initial.partition("=")[2] == ",".join(f"{name.split('.')[0]}=http://{name}:2380" for name in members)
    url = one_of("trying", "Secret", "tenure-store")["stringData"]["url"]
    assert url == f"etcd://{','.join(f'{name}:2379' for name in members)}/trying"


@pytest.mark.parametrize(
    "told",
    [
        {"components": ["x"]},
        {"images": [{"name": "nobody", "newTag": "1"}]},
        {"patches": [{"patch": "[]"}]},
        {"patches": [{"path": "app.yaml", "target": {"kind": "Deployment", "name": "other"}}]},
    ],
    ids=["unknown-field", "image-of-nobody", "unknown-patch", "patch-of-nobody"],
)
def test_reader_refuses_what_it_does_not_know(told: Document, tmp_path: Path) -> None:
    """What resolves the overlays here must not be kinder than kustomize."""
    (tmp_path / "app.yaml").write_text((HERE / "overlays" / "sidecar" / "app.yaml").read_text())
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["app.yaml"]} | told))
    with pytest.raises(NotUnderstood):
        build(tmp_path)
