#!/usr/bin/env bash
# A daemon that is driven without end by `radixd replay`, and a Prometheus that scrapes it, until ^C.
# Usage: scripts/observe.sh BIN, where BIN holds radixd.
set -euo pipefail
cd "$(dirname "$0")/.."

radixd=$1/radixd
folder=$(mktemp -d)
socket=$folder/radixd.sock

stop() {
    trap - EXIT INT TERM
    kill $(jobs -p) 2> /dev/null || true
    wait
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 0' INT TERM

wait_for() {
    until grep -q "$1" "$2"; do
        kill -0 "$3" 2> /dev/null || { cat "$2" >&2; exit 1; }
        sleep 0.2
    done
}

echo "==> starting a daemon: 100,000 tokens on the device, 150,000 on the host"
"$radixd" serve --socket "$socket" --geometry tiny --tokens 100000 --host-tokens 150000 --log-format json \
    2> "$folder/daemon.log" &
wait_for '"serving ' "$folder/daemon.log" $!
page=$(grep -o 'status page on http://[^,]*' "$folder/daemon.log" | cut -d' ' -f4)

# Its schedulers outlive a replay that is merely killed.
replay() {
    trap 'kill "$run" 2> /dev/null; wait; exit' TERM
    for ((seed = 0; ; seed++)); do
        "$radixd" replay --target "$socket" --seed "$seed" > "$folder/replay.log" 2>&1 &
        run=$!
        wait "$run" || echo "==> replay with seed $seed was not satisfied: $folder/replay.log" >&2
    done
}
replay &

if programs=$(scripts/prometheus.sh 2> "$folder/reason"); then
    cat > "$folder/prometheus.yml" <<END
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: ["$PWD/deploy/prometheus/*.rules.yaml"]
scrape_configs: [{job_name: radixd, static_configs: [{targets: ["${page#http://}"]}]}]
END
    "$programs/prometheus" --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/tsdb" \
        --web.listen-address=127.0.0.1:9090 2> "$folder/prometheus.log" &
    wait_for 'Server is ready' "$folder/prometheus.log" $!
    prometheus=http://127.0.0.1:9090
else
    prometheus="none: $(cat "$folder/reason")"
fi

cat <<END
==> status page   $page
    metrics       $page/metrics
    Prometheus    $prometheus
    terminal      $radixd top --target $socket
    log           $folder/daemon.log
^C ends all of them.
END
wait
