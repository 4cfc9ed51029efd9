"""python deploy/grafana/build.py > deploy/grafana/radixd.json: the dashboard. docs/runbook.md describes its panels."""

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.builders.heatmap import Panel as Heatmap
from grafana_foundation_sdk.builders.stat import Panel as Figure
from grafana_foundation_sdk.builders.timeseries import Panel as Lines
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import VariableRefresh
from panels import SOURCE, WINDOW, by, figure, layers, lengths, lines, of_pools, of_process, rate

FIRING = 'count(ALERTS{alertname=~"Radixd.*", alertstate="firing"}) or vector(0)'


def now() -> list[Figure]:
    """What to look at first."""
    room = of_pools("radixd_pages", 'tier="device"', 'state=~"free|evictable"')
    size = of_pools("radixd_pool_pages", 'tier="device"')
    share = f"{by('pool', room)} / {by('pool', size)}"
    active = of_pools("radixd_leases", 'state="active"')
    age = f"time() - {of_process('radixd_epoch_timestamp_seconds')}"
    return [
        figure("Alerts", "Firing ones. Each has its paragraph in the runbook.", "none", (FIRING, "firing")),
        figure("Hit rate", "Hit tokens of 10 minutes.", "percentunit", (of_pools("radixd:hit:ratio10m"), "{{pool}}")),
        figure("Room", "Device pages that are free or evictable.", "percentunit", (share, "{{pool}}")),
        figure("Active leases", "Requests that hold pages.", "none", (active, "{{pool}}")),
        figure(
            "A step's wait, p99", "For a Batch's reply.", "s", (of_pools("radixd:batch_seconds:p99_5m"), "{{pool}}")
        ),
        figure("Up for", "Since the epoch began.", "s", (age, "{{instance}}")),
    ]


def pages() -> list[Lines]:
    """The ledgers."""
    ledgers = [
        layers(
            f"{tier.capitalize()} pages",
            "Every page by its one owner; they add up to the tier's size.",
            "none",
            (by("state", of_pools("radixd_pages", f'tier="{tier}"')), "{{state}}"),
        )
        for tier in ("device", "host")
    ]
    return [
        *ledgers,
        lines(
            "Promised, and to be had",
            "Reserved pages are free or evictable, and somebody's; max fit is what is left for an Acquire.",
            "none",
            (of_pools("radixd_reserved_pages"), "reserved {{pool}}"),
            (of_pools("radixd_max_fit_pages"), "max fit {{pool}}"),
            (of_pools("radixd_in_copy_pages"), "in copy {{pool}}"),
        ),
        lines(
            "Capacity",
            "Tokens that the device tier can hold. Only a restart changes it.",
            "none",
            (of_pools("radixd:capacity_tokens"), "{{pool}}"),
        ),
        lines(
            "Unaccounted pages",
            "Not 0: the ledger does not add up.",
            "none",
            (of_pools("radixd:pages:unaccounted"), "{{pool}} {{tier}}"),
        ),
    ]


def reuse() -> list[Lines | Heatmap]:
    """What the cache spares."""
    return [
        lengths("Hit length", "Tokens found by each Acquire; the lowest row are misses.", "radixd_hit_length_tokens"),
        lengths("Lease length", "Tokens of each request at its end.", "radixd_lease_length_tokens"),
        lines(
            "Tokens",
            "Requested, and found by tier; a second.",
            "none",
            (rate(of_pools("radixd_requested_tokens_total")), "requested {{pool}}"),
            (rate(of_pools("radixd_hit_tokens_total")), "hit {{pool}} {{tier}}"),
        ),
        lines(
            "Shares",
            "Of the tokens, those hit; of the Acquires, those whose hit was 1,024 tokens at most.",
            "percentunit",
            (of_pools("radixd:hit:ratio10m"), "hit {{pool}}"),
            (of_pools("radixd:short_hits:ratio10m"), "short hits {{pool}}"),
        ),
        lines(
            "Indexer pairs",
            "Spared by hits (P²/2), and left to compute against them (P·S); a second.",
            "none",
            (rate(of_pools("radixd_indexer_pairs_saved_total")), "saved {{pool}}"),
            (rate(of_pools("radixd_indexer_pairs_left_total")), "left {{pool}}"),
        ),
    ]


def pressure() -> list[Lines]:
    """What ran short."""
    return [
        lines(
            "Evicted pages",
            "Cached pages dropped a second.",
            "none",
            (rate(of_pools("radixd_evicted_pages_total")), "{{tier}} {{reason}} {{pool}}"),
        ),
        lines(
            "Refused for want of pages",
            "Operations a second, by what was in the way; retries count.",
            "none",
            (f"{rate(of_pools('radixd_allocation_failures_total'))} > 0", "{{reason}} {{pool}}"),
        ),
        lines(
            "Refused and granted sizes",
            "Mean pages. Refused ones far larger: long requests starve.",
            "none",
            (of_pools("radixd:refused_pages:mean10m"), "refused {{pool}}"),
            (of_pools("radixd:granted_pages:mean10m"), "granted {{pool}}"),
        ),
    ]


def verbs() -> list[Lines]:
    """What schedulers ask, and how long it takes."""
    asked, refused = of_pools("radixd_operations_total"), of_pools("radixd_operations_total", 'status!="OK"')
    median = f"histogram_quantile(0.5, {by('le', rate(of_pools('radixd_batch_seconds_bucket')))})"
    sizes = rate(of_pools("radixd_batch_operations_sum")), rate(of_pools("radixd_batch_operations_count"))
    return [
        lines("Operations", "A second, by verb.", "ops", (by("verb", rate(asked)) + " > 0", "{{verb}}")),
        lines(
            "Refused",
            "A second, by verb and reason.",
            "ops",
            (by("verb, status", rate(refused)) + " > 0", "{{verb}} {{status}}"),
        ),
        lines(
            "Time of an operation, p99",
            "In the daemon, gRPC aside.",
            "s",
            (of_pools("radixd:operation_seconds:p99_5m"), "{{verb}} {{pool}}"),
        ),
        lines(
            "Time of a Batch",
            "From its arrival to its reply: what a step waits for.",
            "s",
            (median, "p50"),
            (of_pools("radixd:batch_seconds:p99_5m"), "p99 {{pool}}"),
        ),
        lines("Operations of a Batch", "Mean.", "none", (" / ".join(sizes), "{{pool}}")),
    ]


def sessions() -> list[Lines]:
    """Who holds what."""
    return [
        lines(
            "Sessions",
            "Ended ones have processes that may still write.",
            "none",
            (of_pools("radixd_sessions"), "{{state}} {{pool}}"),
            (of_pools("radixd_holders"), "processes {{pool}}"),
        ),
        lines("Leases", "By state.", "none", (by("state", of_pools("radixd_leases")), "{{state}}")),
        lines(
            "Oldest lock, longest silence",
            "A session at work speaks every step.",
            "s",
            (of_pools("radixd_oldest_lock_seconds"), "lock {{pool}}"),
            (of_pools("radixd_longest_silence_seconds"), "silence {{pool}}"),
        ),
        lines(
            "Locks",
            "Held, and held by sessions silent for 30 s.",
            "none",
            (of_pools("radixd_locks_held"), "held {{pool}}"),
            (of_pools("radixd_idle_locks_held"), "idle {{pool}}"),
        ),
        lines(
            "Index read by a decode step",
            "For all active contexts, on one device.",
            "bytes",
            (of_pools("radixd:decode_index_bytes"), "{{pool}}"),
        ),
        lines(
            "Tail waste",
            "Slots without a token in the last pages of active leases.",
            "bytes",
            (of_pools("radixd_tail_waste_bytes"), "{{pool}}"),
        ),
    ]


def host_tier() -> list[Lines]:
    """Copies."""
    failed = f"increase({of_pools('radixd_copies_failed_total')}[{WINDOW}]) > 0"
    return [
        lines(
            "Pages between the tiers",
            "A second, by kind.",
            "none",
            (rate(of_pools("radixd_tier_pages_total")), "{{kind}} {{pool}}"),
        ),
        lines(
            "Bytes copied",
            "A second, by kind.",
            "Bps",
            (rate(of_pools("radixd_copy_bytes_total")), "{{kind}} {{pool}}"),
        ),
        lines(
            "Speed of a copy",
            "From its plan on. It falls when the copier is behind.",
            "Bps",
            (of_pools("radixd:copy:bytes_per_second5m"), "{{kind}} {{pool}}"),
        ),
        lines(
            "Copies",
            "Under way, beyond their deadline, and failed.",
            "none",
            (of_pools("radixd_copies_in_flight"), "in flight {{pool}}"),
            (of_pools("radixd_copies_overdue"), "overdue {{pool}}"),
            (failed, "failed {{kind}} {{pool}}"),
        ),
        lines(
            "Left without a copy",
            "Pages a second, by reason.",
            "none",
            (rate(of_pools("radixd_demote_skipped_pages_total")), "{{reason}} {{pool}}"),
        ),
        lines(
            "The host tier's turnover",
            "Pages a second. Evicted close to in, and promoted far below: it thrashes.",
            "none",
            (of_pools("radixd:host_pages_in:rate10m"), "in {{pool}}"),
            (of_pools("radixd:host_pages_evicted:rate10m"), "evicted {{pool}}"),
            (of_pools("radixd:host_pages_promoted:rate10m"), "promoted {{pool}}"),
        ),
        lines("Journal", "Pages that a restart would find.", "none", (of_pools("radixd_journal_pages"), "{{pool}}")),
    ]


def process() -> list[Lines]:
    """The daemon itself."""
    lag = by("instance, le", rate(of_process("radixd_event_loop_lag_seconds_bucket")))
    pauses = by("instance", rate(of_process("radixd_gc_pause_seconds_sum")))
    return [
        lines(
            "Event loop",
            "Lag, and the longest stall of the last one to two minutes.",
            "s",
            (f"histogram_quantile(0.99, {lag})", "lag p99 {{instance}}"),
            (of_process("radixd_event_loop_longest_stall_seconds"), "longest {{instance}}"),
        ),
        lines("Garbage collection", "Share of the time in pauses.", "percentunit", (pauses, "{{instance}}")),
        lines(
            "CPU and memory",
            "A CPU pool's memory is in it.",
            "none",
            (rate(of_process("process_cpu_seconds_total")), "cores {{instance}}"),
            (of_process("process_resident_memory_bytes") + " / 2^30", "GiB {{instance}}"),
        ),
    ]


def dashboard() -> Dashboard:
    """All of it."""
    built = Dashboard("radixd").uid("radixd").tags(["radixd"]).timezone("browser").refresh("10s").time("now-1h", "now")
    built.with_variable(DatasourceVariable("datasource").type("prometheus").label("data source"))
    for name, query in (
        ("instance", "label_values(radixd_build_info, instance)"),
        ("pool", f"label_values({of_process('radixd_pool_pages')}, pool)"),
    ):
        variable = QueryVariable(name).datasource(SOURCE).query(query).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        built.with_variable(variable.multi(True).include_all(True).all_value(".*"))
    rows: dict[str, list[Figure] | list[Lines] | list[Lines | Heatmap]] = {
        "Now": now(),
        "Pages": pages(),
        "Reuse": reuse(),
        "What ran short": pressure(),
        "Verbs": verbs(),
        "Sessions and leases": sessions(),
        "Copies and the host tier": host_tier(),
        "The process": process(),
    }
    for title, panels in rows.items():
        built.with_row(Row(title))
        for panel in panels:
            built.with_panel(panel)
    return built


if __name__ == "__main__":
    print(JSONEncoder(sort_keys=True, indent=2).encode(dashboard().build()))
