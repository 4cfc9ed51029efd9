"""The compose file, and what it mounts."""

from pathlib import Path

import yaml

from radixd.server.cli.parser import build_parser
from radixd.server.config.file import read_config
from tests.unit.deploy.manifests import ROOT, Manifest

FOLDER = ROOT / "deploy/compose"
COMPOSE: Manifest = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: Manifest = COMPOSE["services"]


def test_what_is_mounted_is_there() -> None:
    for service in SERVICES.values():
        for mount in service["volumes"]:
            source, target, *_ = mount.split(":")
            assert target.startswith("/")
            if source.startswith("."):
                assert (FOLDER / source).exists(), source
            else:
                assert source in COMPOSE["volumes"]


def test_the_commands_are_radixds() -> None:
    for name, command in (("radixd", "serve"), ("load", "replay")):
        assert build_parser().parse_args(SERVICES[name]["command"]).command == command


def test_what_serves_is_restarted_and_a_load_is_not() -> None:
    restarts = {name: service.get("restart") for name, service in SERVICES.items()}
    serving = dict.fromkeys(("radixd", "prometheus", "grafana"), "unless-stopped")
    assert restarts == {**serving, "load": None}, "a load ends when its requests do"


def test_what_lives_in_the_daemons_network_is_restarted_with_it() -> None:
    guests = [it for it in SERVICES.values() if it.get("network_mode") == "service:radixd"]
    assert guests
    for guest in guests:
        assert guest["depends_on"] == {"radixd": {"condition": "service_started", "restart": True}}


def test_the_load_shares_what_an_engine_must() -> None:
    daemon, load = SERVICES["radixd"], SERVICES["load"]
    assert load["pid"] == "service:radixd"
    assert "run:/run/radixd" in daemon["volumes"]
    assert "run:/run/radixd" in load["volumes"]
    assert not {"user"} & (daemon.keys() | load.keys()), "both are the image's user"
    assert "uid=10001,gid=10001,mode=0700" in COMPOSE["volumes"]["run"]["driver_opts"]["o"]


def test_memory_is_as_large_as_the_configuration_takes() -> None:
    (pool,) = read_config(FOLDER / "radixd.toml").pools
    tier = pool.host.pages * pool.layout.geometry.bytes_per_page
    assert SERVICES["radixd"]["mem_limit"] == "4g"
    assert pool.layout.nbytes * pool.devices + tier + 2**30 <= 4 * 2**30


def test_prometheus_scrapes_the_daemon_and_grafana_asks_prometheus() -> None:
    config = read_config(FOLDER / "radixd.toml")
    assert SERVICES["prometheus"]["network_mode"] == "service:radixd"
    prometheus = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    (job,) = prometheus["scrape_configs"]
    assert job["job_name"] == "radixd", "the job of the alerts"
    rules = [Path(path).name for path in prometheus["rule_files"]]
    assert all(list((FOLDER / "../prometheus").glob(name)) for name in rules)
    assert job["static_configs"] == [{"targets": [str(config.metrics)]}]
    (source,) = yaml.safe_load((FOLDER / "grafana/datasource.yaml").read_text())["datasources"]
    assert source["url"] == "http://radixd:9090"
    assert "127.0.0.1:9090:9090" in SERVICES["radixd"]["ports"]


def test_nothing_is_published_beyond_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_drain_fits_the_grace() -> None:
    assert (
        int(SERVICES["radixd"]["stop_grace_period"].removesuffix("s"))
        > read_config(FOLDER / "radixd.toml").drain_seconds
    )
