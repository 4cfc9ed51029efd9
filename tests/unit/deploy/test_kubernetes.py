"""The manifests are valid, and agree with radixd and with one another."""

import re
from pathlib import Path

import kubernetes_validate
import pytest

from radixd.gpu_pool.layout import Layout
from radixd.server.cli.parser import build_parser
from radixd.server.config.file import read_config
from radixd.server.grpc_server import SERVICES
from tests.unit.deploy.manifests import (
    BASE,
    KUBERNETES,
    ROOT,
    Manifest,
    base_config,
    containers,
    loaded,
    nbytes,
    of_kind,
    pods,
    rendered,
)

SLEEP_VERSION, CLAIMS_VERSION = "1.30", "1.34"
"""The oldest for the manifests, by the engine's `preStop` (docs/deploy.md), and for the GPUs' resource claims."""
DAEMONSET = "overlays/daemonset"
KUSTOMIZATIONS = ("base", "overlays/gpu", DAEMONSET)
WHOLE = (
    "base/namespace.yaml",
    "base/engine.yaml",
    "base/metrics.yaml",
    "overlays/gpu/gpus.yaml",
    "overlays/daemonset/engine-on-node.yaml",
)
"""Files that are manifests before anything is rendered."""
DAEMON_BYTES = 2 * 2**30
"""What the daemon's own process may take, beside pools and tiers."""


def check_schema(manifest: Manifest, version: str) -> None:
    if manifest["kind"] == "ServiceMonitor":
        check_service_monitor(manifest)
    else:
        kubernetes_validate.validate(manifest, version, strict=True)


def oldest(path: str) -> str:
    """The Kubernetes that a file or a folder asks for."""
    return CLAIMS_VERSION if path.startswith("overlays/gpu") else SLEEP_VERSION


def check_service_monitor(monitor: Manifest) -> None:
    """By hand: a custom resource's schema comes with its operator."""
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["spec"].keys() == {"jobLabel", "selector", "endpoints"}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint.keys() == {"port", "path", "scheme", "interval", "bearerTokenFile", "tlsConfig"}
    assert endpoint["scheme"] == "https"


@pytest.mark.parametrize("path", WHOLE)
def test_files_follow_the_schema(path: str) -> None:
    for manifest in loaded(KUBERNETES / path):
        check_schema(manifest, oldest(path))


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_what_is_rendered_follows_the_schema(folder: str) -> None:
    manifests = rendered(KUBERNETES / folder)
    for manifest in manifests:
        check_schema(manifest, oldest(folder))
    of_none = ("Namespace", "ClusterRole", "ClusterRoleBinding")
    namespaces = {it["metadata"].get("namespace") for it in manifests if it["kind"] not in of_none}
    assert namespaces == {of_kind(manifests, "Namespace")["metadata"]["name"]} == {"inference"}


def test_a_wrong_field_is_noticed() -> None:
    engine = of_kind(loaded(BASE / "engine.yaml"), "Deployment")
    engine["spec"]["template"]["spec"]["shareProcessNamespaces"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        check_schema(engine, SLEEP_VERSION)


def test_the_document_asks_for_the_same_versions() -> None:
    text = (ROOT / "docs/deploy.md").read_text()
    assert set(re.findall(r"Kubernetes (1\.\d+) or later", text)) == {SLEEP_VERSION, CLAIMS_VERSION}


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_the_namespace_lets_in_what_the_pods_ask_of_the_node(folder: str) -> None:
    manifests = rendered(KUBERNETES / folder)
    (pod,) = pods(manifests)
    asks = pod.get("hostPID", False) or any("hostPath" in volume for volume in pod["volumes"])
    labels = of_kind(manifests, "Namespace")["metadata"].get("labels", {})
    assert (labels.get("pod-security.kubernetes.io/enforce") == "privileged") == asks == (folder == DAEMONSET)


def test_the_base_fits_a_small_node() -> None:
    (pod,) = pods(rendered(BASE))
    requests = [container["resources"]["requests"] for container in containers(pod).values()]
    assert sum(nbytes(it["memory"]) for it in requests) <= 9 * 2**30
    assert sum(float(it["cpu"].removesuffix("m")) / (1000 if it["cpu"].endswith("m") else 1) for it in requests) < 3


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_the_daemon_is_told_what_it_understands(folder: str) -> None:
    (pod,) = pods(rendered(KUBERNETES / folder))
    daemon = containers(pod)["radixd"]
    assert build_parser().parse_args(daemon["args"]).command == "serve"
    for probe, seconds in (("startupProbe", 2.0), ("readinessProbe", 2.0), ("livenessProbe", 5.0)):
        program, *arguments = daemon[probe]["exec"]["command"]
        asked = build_parser().parse_args(arguments)
        assert (program, asked.command, asked.timeout) == ("radixd", "health", seconds)
        assert asked.service in ("", *SERVICES)
        assert daemon[probe]["timeoutSeconds"] > asked.timeout, "else Kubernetes' word replaces the command's"


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_a_broken_pool_ends_no_other(folder: str) -> None:
    (pod,) = pods(rendered(KUBERNETES / folder))
    daemon = containers(pod)["radixd"]
    assert daemon["livenessProbe"]["exec"]["command"][2] == "radixd.v1.Cache", "served while one pool is"
    assert daemon["readinessProbe"]["exec"]["command"] == ["radixd", "health"], "everything is well"


@pytest.mark.parametrize("folder", ["base", "overlays/gpu"])
def test_the_daemon_starts_before_the_engine_and_stops_after_it(folder: str) -> None:
    (pod,) = pods(rendered(KUBERNETES / folder))
    daemon = pod["initContainers"][0]
    assert (daemon["name"], daemon["restartPolicy"]) == ("radixd", "Always")
    assert "startupProbe" in daemon, "what comes after it waits for this"
    engine = containers(pod)["engine"]
    ending = engine["lifecycle"]["preStop"]["sleep"]["seconds"] + base_config().drain_seconds
    assert pod["terminationGracePeriodSeconds"] >= 2 * ending, "the engine's own end takes its part"


@pytest.mark.parametrize("folder", ["base", "overlays/gpu"])
def test_engine_and_daemon_share_what_they_must(folder: str) -> None:
    (pod,) = pods(rendered(KUBERNETES / folder))
    assert pod["shareProcessNamespace"]
    check_shared(containers(pod)["radixd"], containers(pod)["engine"])
    claims = [containers(pod)[name]["resources"].get("claims") for name in ("radixd", "engine")]
    assert claims[0] == claims[1]
    assert bool(claims[0]) == ("resourceClaims" in pod) == (folder == "overlays/gpu")


def test_across_pods_they_share_the_nodes_pids_and_a_folder() -> None:
    (daemon_pod,) = pods(rendered(KUBERNETES / "overlays/daemonset"))
    (engine_pod,) = pods(loaded(KUBERNETES / "overlays/daemonset/engine-on-node.yaml"))
    for pod in (daemon_pod, engine_pod):
        assert pod["hostPID"]
        assert "shareProcessNamespace" not in pod, "no pod may ask for both"
    assert daemon_pod["nodeSelector"] == engine_pod["nodeSelector"]
    check_shared(containers(daemon_pod)["radixd"], containers(engine_pod)["engine"])
    runs = [volume for pod in (daemon_pod, engine_pod) for volume in pod["volumes"] if volume["name"] == "run"]
    assert runs[0] == runs[1]
    users = {pod["securityContext"]["runAsUser"] for pod in (daemon_pod, engine_pod)}
    assert len(users) == 1


def check_shared(daemon: Manifest, engine: Manifest) -> None:
    """The folder of the sockets, where both look for them, and the user that may open them."""
    socket_mount = {"name": "run", "mountPath": str(base_config().socket.parent)}
    assert socket_mount in daemon["volumeMounts"]
    assert socket_mount in engine["volumeMounts"]
    assert "runAsUser" not in {**daemon["securityContext"], **engine["securityContext"]}, "it is the pod's, for both"


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_memory_is_as_large_as_the_configuration_takes(folder: str) -> None:
    manifests = rendered(KUBERNETES / folder)
    (pod,) = pods(manifests)
    own = KUBERNETES / folder / "radixd.toml"
    file = own if own.exists() else BASE / "radixd.toml"
    (pool,) = read_config(file).pools
    in_memory = 0 if pool.device_kind == "cuda" else pool.layout.nbytes * pool.devices
    tier = Layout(pool.layout.geometry, "page_first", pool.host.pages).nbytes
    state = next(volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "state")
    assert state["medium"] == "Memory"
    assert nbytes(state["sizeLimit"]) > tier
    limit = containers(pod)["radixd"]["resources"]["limits"]["memory"]
    assert nbytes(limit) >= in_memory + tier + DAEMON_BYTES
    assert of_kind(manifests, "ConfigMap")["data"]["radixd.toml"] == file.read_text()


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_nothing_of_it_is_root_or_writes_its_image(folder: str) -> None:
    (pod,) = pods(rendered(KUBERNETES / folder))
    assert pod["securityContext"]["runAsNonRoot"]
    for name, container in containers(pod).items():
        context = container["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        assert context.get("readOnlyRootFilesystem") or name == "engine"


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_prometheus_finds_the_daemon(folder: str) -> None:
    manifests = rendered(KUBERNETES / folder)
    (pod,) = pods(manifests)
    workload = next(manifest for manifest in manifests if "template" in manifest.get("spec", {}))
    service, monitor = of_kind(manifests, "Service"), of_kind(manifests, "ServiceMonitor")
    assert service["metadata"]["labels"] == monitor["spec"]["selector"]["matchLabels"]
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "radixd", "the job of the alerts"
    assert service["spec"]["selector"] == workload["spec"]["template"]["metadata"]["labels"]
    (port,) = service["spec"]["ports"]
    assert monitor["spec"]["endpoints"][0]["port"] == port["name"]
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "radixd", "what the rules call the job"
    proxy = containers(pod)["metrics"]
    assert [it["containerPort"] for it in proxy["ports"]] == [port["targetPort"]], "no name: the proxy is a sidecar"
    assert f"--secure-listen-address=0.0.0.0:{port['targetPort']}" in proxy["args"]
    assert f"--upstream=http://{base_config().metrics}/" in proxy["args"]


def test_every_file_belongs_to_a_kustomization_or_is_an_example() -> None:
    files = {str(path.relative_to(KUBERNETES)) for path in KUBERNETES.rglob("*.yaml")}
    named = {"overlays/daemonset/engine-on-node.yaml"}
    for folder in KUSTOMIZATIONS:
        (kustomization,) = loaded(KUBERNETES / folder / "kustomization.yaml")
        entries = [*kustomization["resources"], *(patch["path"] for patch in kustomization.get("patches", ()))]
        named |= {f"{folder}/{entry}" for entry in entries if Path(entry).suffix == ".yaml"}
        named.add(f"{folder}/kustomization.yaml")
    assert files == named


def test_the_pool_of_the_gpu_overlay_is_on_all_gpus_of_its_claim() -> None:
    folder = KUBERNETES / "overlays/gpu"
    (pool,) = read_config(folder / "radixd.toml").pools
    (claim,) = loaded(folder / "gpus.yaml")
    (request,) = claim["spec"]["spec"]["devices"]["requests"]
    assert (pool.device_kind, pool.devices) == ("cuda", request["exactly"]["count"])
    assert pool.usable_tokens >= pool.max_context == 1_048_576
