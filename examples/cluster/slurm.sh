#!/usr/bin/env bash
# A learner on one machine of Slurm, explorers on the others. Run from a folder that all machines share:
#
#   sbatch slurm.sh
#   RUN=runs/other ENV_ID=BipedalWalker-v3 sbatch --nodes=9 slurm.sh
#
# Each machine runs one task: 5 machines with 16 processors run 4 x 16 explorers. The same command resumes the run, with
# any number of machines. Slurm also resumes it if it requeues the job.
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
N_ENVS=${N_ENVS:-128} # at least as many as explorers; fixed for the whole run
MAX_STEPS=${MAX_STEPS:-5000000}
KEY=${KEY:-cluster.pem}

# The learner is on the first machine. Each job has its own port, because two jobs may share a machine.
LEARNER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT=$((20000 + SLURM_JOB_ID % 10000))
EXPLORERS=$(((SLURM_JOB_NUM_NODES - 1) * SLURM_CPUS_PER_TASK))

# Any machine that has the key can connect, so only the owner may read the file.
if [ ! -e "$KEY" ]; then
    (umask 077 && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=xagents \
        -addext subjectAltName=DNS:xagents -keyout - -out - >"$KEY.$SLURM_JOB_ID")
    mv -n "$KEY.$SLURM_JOB_ID" "$KEY"
fi

# Each machine is a separate step, so that a failure does not end the others. Explorers wait for the learner and end
# with the run.
machines=()
for ((i = 1; i < SLURM_JOB_NUM_NODES; i++)); do
    srun --relative="$i" --nodes=1 --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
        xagents explore "$LEARNER:$PORT" --explorers "$SLURM_CPUS_PER_TASK" --cluster-key "$KEY" --wait 600 &
    machines+=($!)
done

# An existing run is resumed. At the time limit Slurm sends SIGTERM, and the learner saves.
if [ -e "$RUN/config.yaml" ]; then
    what=(--resume "$RUN")
else
    what=(ppo --env "$ENV_ID" --n-envs "$N_ENVS" --max-steps "$MAX_STEPS" --seed 1 --run-dir "$RUN")
fi
status=0
srun --relative=0 --nodes=1 --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    xagents train "${what[@]}" --explorers "$EXPLORERS" --cluster "0.0.0.0:$PORT" --cluster-key "$KEY" || status=$?

# The job ends with the learner. If the learner never started, explorers are still waiting for it: end them.
for _ in {1..20}; do
    [ -n "$(jobs -pr)" ] || break
    sleep 1
done
kill "${machines[@]}" 2>/dev/null || true
exit "$status"
