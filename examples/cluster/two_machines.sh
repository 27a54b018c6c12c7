#!/usr/bin/env bash
# Test explorers on "another machine" with two Linux network namespaces. Each has its own address, and a virtual cable
# connects them. The learner runs in one, `xagents explore` in the other. Then the script compares the weights with
# those of the same run without explorers: they must be equal to the bit.
#
#   sudo env "PATH=$PATH" ./two_machines.sh
#
# Needs root for the namespaces, and xagents on PATH with its python3. Takes half a minute.
set -euo pipefail

[ "$(id -u)" = 0 ] || { echo 'Namespaces need root' && exit 1; }
for program in ip openssl python3 xagents; do
    command -v $program >/dev/null || { echo "$program is not on PATH" && exit 1; }
done

LEARNER=10.77.0.1 EXPLORERS=10.77.0.2 PORT=5555
A=xagents-a-$$ B=xagents-b-$$
RUNS=$(mktemp -d)
was_there=$(ls -d /run/netns 2>/dev/null || true) # where ip stores the names of namespaces
OPTIONS=(--env CartPole-v1 --vector sync --n-envs 8 --n-steps 128 --max-steps 20000 --seed 1 --final-episodes 0 --quiet)

# On any exit, end the processes of both namespaces and remove the namespaces, the cable and the folder.
clean_up() {
    for name in "$A" "$B"; do
        ip netns pids "$name" 2>/dev/null | xargs --no-run-if-empty kill -9 2>/dev/null || true
        ip netns delete "$name" 2>/dev/null || true
    done
    [ "$was_there" ] || { umount /run/netns && rmdir /run/netns; } 2>/dev/null || true
    rm -rf "$RUNS"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Create two machines and the cable.
ip netns add "$A"
ip netns add "$B"
ip -n "$A" link add wire type veth peer name wire netns "$B"
ip -n "$A" address add $LEARNER/24 dev wire
ip -n "$B" address add $EXPLORERS/24 dev wire
for name in "$A" "$B"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set wire up
done

# The key, which both sides need to connect.
umask 077
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=xagents \
    -addext subjectAltName=DNS:xagents -keyout - -out - >"$RUNS/cluster.pem" 2>/dev/null

# On the second machine, explorers wait for the learner, collect, and end with the run.
ip netns exec "$B" xagents explore $LEARNER:$PORT --explorers 2 --cluster-key "$RUNS/cluster.pem" --wait 60 &
explorers=$!

# On the first machine, the learner runs.
ip netns exec "$A" xagents train ppo "${OPTIONS[@]}" --run-dir "$RUNS/cluster" \
    --explorers 2 --cluster $LEARNER:$PORT --cluster-key "$RUNS/cluster.pem"
wait $explorers # fails if their exit code is not 0
sent=$(ip netns exec "$B" cat /sys/class/net/wire/statistics/tx_bytes)
echo "The explorers ended with 0 and sent $sent bytes over the wire"

# The same run without explorers.
xagents train ppo "${OPTIONS[@]}" --run-dir "$RUNS/local"

python3 - "$RUNS"/{local,cluster}/checkpoints/last/policy.npz <<'PYTHON'
import sys

import numpy as np

local, cluster = (np.load(path)['weights'] for path in sys.argv[1:])
if local.tobytes() != cluster.tobytes():
    sys.exit('The weights differ')
print(f'All {len(local)} weights equal those of the run without explorers, to the bit')
PYTHON
