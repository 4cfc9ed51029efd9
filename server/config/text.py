"""A Config as TOML, with what was worked out from it as comments."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from radixd.server.byte_text import byte_text
from radixd.server.config import Config, PoolConfig


def config_text(config: Config) -> str:
    """The resolved configuration, for people; `json.dumps` writes strings as TOML does."""
    return "\n".join(_lines(config)) + "\n"


def _lines(config: Config) -> Iterator[str]:
    yield f"socket = {json.dumps(str(config.socket))}"
    yield f"# attach socket: {config.attach_socket}"
    yield f'tcp = "{config.tcp or "off"}"'
    yield f'metrics = "{config.metrics or "off"}"'
    yield f'log_format = "{config.log_format}"'
    yield f'tracing = "{config.tracing}"'
    yield f"drain_seconds = {config.drain_seconds}"
    yield f"memory_wait_seconds = {config.memory_wait_seconds}"
    yield f"state_dir = {json.dumps(str(config.state_dir or 'off'))}"
    for name, section in (("limits", config.limits), ("liveness", config.liveness)):
        yield from ("", f"[{name}]")
        for key, value in asdict(section).items():
            yield f"{key} = {value}"
    for pool in config.pools:
        yield ""
        yield from _pool_lines(pool)


def _pool_lines(pool: PoolConfig) -> Iterator[str]:
    layout, geometry = pool.layout, pool.layout.geometry
    yield "[[pools]]"
    yield f"name = {json.dumps(pool.name)}"
    yield f"geometry = {json.dumps(geometry.name)}  # {geometry.source}; fingerprint {geometry.fingerprint.hex()}"
    yield f'layout = "{layout.kind}"'
    yield f"stride_multiple = {layout.stride_multiple}"
    yield f'device = "{pool.device_kind}"'
    yield f"devices = {pool.devices}"
    if pool.gpus:
        yield f"gpus = {json.dumps(pool.gpus)}"
    if pool.unsized:
        yield f"# cannot be served here: {pool.unsized}"
    else:
        yield from _size_lines(pool)
    yield f'policy = "{pool.policy}"'
    yield f'speculative = "{pool.speculative}"'
    yield f"max_context = {pool.max_context}"
    yield f"copy_deadline_seconds = {pool.copy_deadline_seconds}"
    yield f"import_min_pages = {pool.import_min_pages}"
    yield from _host_lines(pool)


def _size_lines(pool: PoolConfig) -> Iterator[str]:
    layout, geometry = pool.layout, pool.layout.geometry
    yield f"tokens = {pool.usable_tokens}  # {layout.num_pages} pages of {geometry.page_size}, and page 0"
    yield f"# {layout.nbytes} bytes a device ({byte_text(layout.nbytes)}), {layout.page_stride} a page"
    yield from (f"# {line}" for line in pool.crowded)


def _host_lines(pool: PoolConfig) -> Iterator[str]:
    host, geometry = pool.host, pool.layout.geometry
    yield f"host_tokens = {host.pages * geometry.page_size}  # {host.pages} pages in the host tier"
    nbytes = host.pages * geometry.bytes_per_page
    yield f"# {nbytes} bytes ({byte_text(nbytes)})"
    if host.state_dir:
        yield f"# kept in {host.state_dir}"
    yield f'write_policy = "{host.write_policy}"'
    yield f"promote_min_pages = {host.promote_min_pages}"
    yield f"free_target_pages = {host.free_target_pages}"
    yield f"max_copy_pages = {host.max_copy_pages}"
