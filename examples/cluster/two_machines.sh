#!/usr/bin/env bash
# Tries explorers on "another machine" without one: two network namespaces of Linux, each with an address of its own,
# joined by a virtual cable. The learner is in the one, `xagents explore` in the other. Then the weights are compared
# with those of the same run without explorers: they have to be equal to the bit.
#
#   sudo env "PATH=$PATH" ./two_machines.sh
#
# Needs root, for the namespaces, and xagents on PATH with the python3 that it belongs to. Takes half a minute.
set -euo pipefail

[ "$(id -u)" = 0 ] || { echo 'Namespaces need root' && exit 1; }
for program in ip openssl python3 xagents; do
    command -v $program >/dev/null || { echo "$program is not on PATH" && exit 1; }
done

LEARNER=10.77.0.1 EXPLORERS=10.77.0.2 PORT=5555
A=xagents-a-$$ B=xagents-b-$$
RUNS=$(mktemp -d)
was_there=$(ls -d /run/netns 2>/dev/null || true) # where ip keeps the names of namespaces
OPTIONS=(--env CartPole-v1 --vector sync --n-envs 8 --n-steps 128 --max-steps 20000 --seed 1 --final-episodes 0 --quiet)

# Whatever happens: end the processes of both namespaces, which lets go of these, of the cable and of the folder.
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

# Two machines and the cable.
ip netns add "$A"
ip netns add "$B"
ip -n "$A" link add wire type veth peer name wire netns "$B"
ip -n "$A" address add $LEARNER/24 dev wire
ip -n "$B" address add $EXPLORERS/24 dev wire
for name in "$A" "$B"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set wire up
done

# The key, which both sides have to have: no one without it is let in.
umask 077
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=xagents \
    -addext subjectAltName=DNS:xagents -keyout - -out - >"$RUNS/cluster.pem" 2>/dev/null

# On the second machine: looks for the learner until that is there, collects, and ends by itself with the run.
ip netns exec "$B" xagents explore $LEARNER:$PORT --explorers 2 --cluster-key "$RUNS/cluster.pem" --wait 60 &
explorers=$!

# On the first one: the learner.
ip netns exec "$A" xagents train ppo "${OPTIONS[@]}" --run-dir "$RUNS/cluster" \
    --explorers 2 --cluster $LEARNER:$PORT --cluster-key "$RUNS/cluster.pem"
wait $explorers # fails where they did not end with 0
sent=$(ip netns exec "$B" cat /sys/class/net/wire/statistics/tx_bytes)
echo "The explorers ended with 0, and have sent $sent bytes over the wire"

# The same run without explorers.
xagents train ppo "${OPTIONS[@]}" --run-dir "$RUNS/alone"

python3 - "$RUNS"/{alone,cluster}/checkpoints/last/policy.npz <<'PYTHON'
import sys

import numpy as np

alone, cluster = (np.load(path)['weights'] for path in sys.argv[1:])
if alone.tobytes() != cluster.tobytes():
    sys.exit('The weights differ')
print(f'All {len(alone)} weights equal those of the run without explorers, to the bit')
PYTHON
