#!/usr/bin/env bash
# A learner on one machine of Slurm, explorers on the others. From a folder that all machines see:
#
#   sbatch slurm.sh
#   RUN=runs/other ENV_ID=BipedalWalker-v3 sbatch --nodes=9 slurm.sh
#
# It is one task a machine: with 5 of 16 processors, 4 x 16 explorers. The same line typed again goes on with the run,
# with as many machines as there are then, and so does Slurm itself where it puts the job back into the queue.
#SBATCH --job-name=xagents
#SBATCH --nodes=5
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
set -euo pipefail
: "${SLURM_CPUS_PER_TASK:?is not set: submit this by sbatch, with --cpus-per-task}"

RUN=${RUN:-runs/lander}
ENV_ID=${ENV_ID:-LunarLander-v3}
N_ENVS=${N_ENVS:-128} # at least as many as explorers, and the same for as long as the run lasts
MAX_STEPS=${MAX_STEPS:-5000000}
KEY=${KEY:-cluster.pem}

# The learner is on the first machine. The port differs from job to job, for two may be on one machine.
LEARNER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT=$((20000 + SLURM_JOB_ID % 10000))
EXPLORERS=$(((SLURM_JOB_NUM_NODES - 1) * SLURM_CPUS_PER_TASK))

# Whoever has the key is let in, so nobody else may read it.
if [ ! -e "$KEY" ]; then
    (umask 077 && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=xagents \
        -addext subjectAltName=DNS:xagents -keyout - -out - >"$KEY.$SLURM_JOB_ID")
    mv -n "$KEY.$SLURM_JOB_ID" "$KEY"
fi

# Each machine is a step of its own, so that one that fails takes no other along. It looks for the learner until that
# is there, and ends by itself with the run.
machines=()
for ((i = 1; i < SLURM_JOB_NUM_NODES; i++)); do
    srun --relative="$i" --nodes=1 --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
        xagents explore "$LEARNER:$PORT" --explorers "$SLURM_CPUS_PER_TASK" --cluster-key "$KEY" --wait 600 &
    machines+=($!)
done

# A folder with a run in it is gone on with. At the end of its time Slurm sends SIGTERM, at which the learner saves.
if [ -e "$RUN/config.yaml" ]; then
    what=(--resume "$RUN")
else
    what=(ppo --env "$ENV_ID" --n-envs "$N_ENVS" --max-steps "$MAX_STEPS" --seed 1 --run-dir "$RUN")
fi
status=0
srun --relative=0 --nodes=1 --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    xagents train "${what[@]}" --explorers "$EXPLORERS" --cluster "0.0.0.0:$PORT" --cluster-key "$KEY" || status=$?

# The job ends with the learner. Machines that have not heard of its end, for it never began, are not waited for.
for _ in {1..20}; do
    [ -n "$(jobs -pr)" ] || break
    sleep 1
done
kill "${machines[@]}" 2>/dev/null || true
exit "$status"
