"""Every rule about combinations of options: each has a case here that breaks it, and the message is as expected."""

import contextlib

import gymnasium
import pytest

import xagents
from tests.team_problems import Walks
from xagents.base import BaseAgent
from xagents.factory.make import AgentPlan, plan_agent
from xagents.factory.rules import SETTINGS_RULES, Proposal
from xagents.options.agents import AgentOptions
from xagents.options.commands import CompareOptions, DoctorOptions, ReportOptions, TuneOptions
from xagents.options.declaration import Options
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.registry.agents import BUILTIN_AGENTS
from xagents.runs.rules import RUN_RULES
from xagents.runs.run import Run

# agent or group, given options: the name and the start of the message
OF_GROUPS = [
    ('dqn', {'weight_decay': 0.1}, 'weight_decay: got 0.1, which requires --optimizer adamw or muon'),
    ('ppo', {'sde_sample_frequency': 0}, 'sde_sample_frequency: got 0, expected -1 (once a rollout) or'),
    ('ppo', {'sde_sample_frequency': 4}, 'sde_sample_frequency: got 4, which requires --sde'),
    ('ppo', {'sde_expln': True}, 'sde_expln: requires --sde'),
    (
        'dqn',
        {'buffer_max_size': 10, 'buffer_initial_size': 20},
        'buffer_initial_size: got 20, expected at most the 10 of',
    ),
    ('dqn', {'buffer_max_size': 10, 'buffer_batch_size': 20}, 'buffer_batch_size: got 20, expected at most the 10 of'),
    ('dqn', {'her': True, 'n_step': 3}, 'n_step: got 3 with --her, expected 1'),
    ('dqn', {'her': True, 'prioritized': True}, 'prioritized: cannot be used with --her, which samples'),
    ('dqn', {'her_strategy': 'final'}, 'her_strategy: got final, which requires --her'),
    ('dqn', {'her_ratio': 0.5}, 'her_ratio: got 0.5, which requires --her'),
    ('dqn', {'gradient_steps': 0}, 'gradient_steps: got 0, expected -1 (as many as steps taken)'),
    (
        'ppo',
        {'n_steps': 64, 'sequence_length': 24},
        'sequence_length: got 24, expected a divisor of the 64 of --n-steps',
    ),
    ('dqn', {'n_quantiles': 5}, 'n_quantiles: got 5, which requires --distribution quantile'),
    ('dqn', {'n_atoms': 5}, 'n_atoms: got 5, which requires --distribution categorical'),
    ('dqn', {'value_min': -5.0}, 'value_min: got -5.0, which requires --distribution categorical'),
    ('dqn', {'value_max': 5.0}, 'value_max: got 5.0, which requires --distribution categorical'),
    (
        'dqn',
        {'distribution': 'categorical', 'value_min': 3.0, 'value_max': 2.0},
        'value_min: got 3, expected less than the 2 of --value-max',
    ),
    ('dqn', {'distribution': 'quantile', 'huber': True}, 'huber: cannot be used with --distribution quantile'),
    (
        'dqn',
        {'distribution': 'quantile', 'munchausen': True},
        'munchausen: cannot be used with --distribution quantile',
    ),
    (
        'dqn',
        {'noisy': True, 'epsilon_decay_steps': 5},
        'epsilon_decay_steps: got 5, which requires --no-noisy or --epsilon-start',
    ),
    ('rainbow', {'epsilon_ladder': True}, 'epsilon_ladder: requires --no-noisy or --epsilon-end'),
    ('dqn', {'munchausen_alpha': 0.5}, 'munchausen_alpha: got 0.5, which requires --munchausen'),
    ('dqn', {'munchausen_temperature': 0.5}, 'munchausen_temperature: got 0.5, which requires --munchausen'),
    (
        'rainbow',
        {'her': True, 'n_step': 1},
        'prioritized: cannot be used with --her, which samples uniformly, expected --no-prioritized',
    ),
    ('dqn', {'munchausen': True, 'double': True}, 'munchausen: cannot be used with --double, expected one of the two'),
    ('dqn', {'munchausen': True, 'n_step': 2}, 'n_step: got 2 with --munchausen, expected 1'),
    ('sac', {'log_std_init': -1.0}, 'log_std_init: got -1.0, which requires --sde'),
    ('sac', {'entropy_coef': 0.1, 'target_entropy': -1.0}, 'target_entropy: got -1 with a fixed temperature, expected'),
    ('tqc', {'dropped_quantiles': 25}, 'dropped_quantiles: got 25, expected less than the 25 of --n-quantiles'),
    ('acer', {'buffer_batch_size': 5}, 'buffer_batch_size: got 5, but a replay of ACER draws one stored rollout'),
    (RunOptions, {'checkpoint_frequency': 5}, 'checkpoint_frequency: got 5, which requires --run-dir'),
    (RunOptions, {'keep': 5}, 'keep: got 5, which requires --run-dir'),
    (RunOptions, {'video_frequency': 5}, 'video_frequency: got 5, which requires --run-dir'),
    (RunOptions, {'keep': 5, 'run_dir': 'r'}, 'keep: got 5, which requires --checkpoint-frequency'),
    (RunOptions, {'eval_async': True}, 'eval_async: requires --eval-frequency'),
    (RunOptions, {'eval_delay': 5}, 'eval_delay: got 5, which requires --eval-async'),
    (RunOptions, {'download': True}, 'download: requires --dataset or --fill-from'),
    (RunOptions, {'dataset': 'd', 'fill_from': 'x'}, 'fill_from: got x with --dataset, which replaces collecting'),
    (RunOptions, {'dataset': 'd', 'record_dataset': 'x'}, 'record_dataset: got x with --dataset, which replaces'),
    (
        RunOptions,
        {'dataset': 'd', 'overlap': True},
        'overlap: cannot be used with --dataset, which replaces collecting',
    ),
    (RunOptions, {'dataset': 'd', 'explorers': 2}, 'explorers: got 2 with --dataset, which replaces collecting'),
    (RunOptions, {'dataset': 'd', 'max_lag': 2}, 'max_lag: got 2 with --dataset, which replaces collecting'),
    (RunOptions, {'dataset': 'd', 'cluster': 'ray'}, 'cluster: got ray with --dataset, which replaces collecting'),
    (RunOptions, {'snapshot_frequency': 9}, 'snapshot_frequency: got 9, which requires --self-play'),
    (RunOptions, {'pool': 9}, 'pool: got 9, which requires --self-play'),
    (RunOptions, {'latest': 0.1}, 'latest: got 0.1, which requires --self-play'),
    (RunOptions, {'max_lag': 2}, 'max_lag: got 2, which requires --explorers'),
    (RunOptions, {'max_lag': 2, 'explorers': 2, 'overlap': True}, 'max_lag: got 2 with --overlap, expected one of the'),
    (RunOptions, {'cluster_key': 'k'}, 'cluster_key: got k, which requires --cluster'),
    (RunOptions, {'cluster': 'ray'}, 'cluster: got ray, which requires --explorers, or several runs'),
    (
        RunOptions,
        {'record_dataset': 'd', 'explorers': 2},
        'record_dataset: got d with --explorers, expected environments',
    ),
    (RunOptions, {'monitor': 'trackio'}, 'monitor: got trackio, which requires --monitor-session'),
    (RunOptions, {'dataset': 'd', 'log_info': ['a']}, 'log_info: got a with --dataset, which replaces collecting'),
    (RunOptions, {'log_info': ['a', 'a/episode']}, 'log_info: got a with a/episode, which share the metric info/a'),
    (RunOptions, {'log_info': ['a', 'b', 'a']}, 'log_info: got a twice, expected each name once'),
    (RunOptions, {'dataset': 'd', 'curriculum': {'g': '1..2'}}, 'curriculum: got '),
    (RunOptions, {'curriculum_when': 'mean_reward>1'}, 'curriculum_when: got mean_reward>1, which requires --curric'),
    (
        RunOptions,
        {'curriculum': {'g': '1..2'}, 'curriculum_when': 'evaluate/mean>5'},
        'curriculum_when: got evaluate/mean, which requires --eval-frequency',
    ),
    (
        RunOptions,
        {'curriculum': {'g': '1..2'}, 'eval_async': True, 'eval_frequency': 5},
        'curriculum: ',
    ),
    (DoctorOptions, {'run_dir': ['r'], 'episodes': 3}, 'episodes: got 3 with --run-dir, whose runs are only read'),
    (DoctorOptions, {'run_dir': ['r'], 'max_time': 3.0}, 'max_time: got 3.0 with --run-dir, whose runs are only read'),
    (DoctorOptions, {'run_dir': ['r'], 'seed': 3}, 'seed: got 3 with --run-dir, whose runs are only read'),
    (ReportOptions, {'study': 's'}, 'study: got s, which requires --storage'),
    (CompareOptions, {'raw': True, 'random': ['A=1']}, 'random: got A=1 with --raw, which does not normalise scores'),
    (CompareOptions, {'raw': True, 'reference': ['A=1']}, 'reference: got A=1 with --raw, which does not normalise'),
    (TuneOptions, {'exploit_steps': 5}, 'exploit_steps: got 5, which requires --population'),
    (TuneOptions, {'final_episodes': 5}, 'final_episodes: got 5, which requires --population'),
    (TuneOptions, {'exploit': 0.5}, 'exploit: got 0.5, which requires --population'),
    (TuneOptions, {'perturb': [0.5]}, 'perturb: got [0.5], which requires --population'),
    (TuneOptions, {'resample': 0.5}, 'resample: got 0.5, which requires --population'),
    *(
        (
            TuneOptions,
            {'population': 2, name: value},
            f'{name}: applies to trials, and cannot be used with --population',
        )
        for name, value in {
            **{'n_trials': 2, 'timeout': 2.0, 'study': 's', 'storage': 'x', 'trial_seeds': 2},
            **{'sampler': 'tpe', 'pruner': 'none', 'warmup_trials': 1, 'weights': ['w']},
        }.items()
    ),
    (TuneOptions, {'population': 2}, 'out: got nothing with --population, expected the directory of the population'),
    (
        TuneOptions,
        {'population': 2, 'out': 'o', 'trial_steps': 10, 'exploit_steps': 20},
        'exploit_steps: got 20, expected at most --trial-steps, 10',
    ),
]
FILE = {'model': 'own.cfg'}
OF_SETTINGS = [
    ('ppo', {'vector': 'compiled', 'explorers': 2}, 'vector: got compiled with --explorers, expected auto or sync'),
    ('ppo', {'env_kwargs': {'render_mode': 'human'}}, 'env_kwargs: got render_mode, expected --render or --video-dir'),
    ('bare', {'net': [8]}, 'net: got [8], but bare has no network'),
    ('ppo', {'net': [8], **FILE}, 'net: got [8] with --model own.cfg, expected one of the two'),
    ('ppo', {'critic_only': ['a'], 'shared_network': True}, 'critic_only: cannot be used with --shared-network: actor'),
    (
        'dqn',
        {'critic_only': ['a', 'b']},
        'critic_only: got a b, but dqn has no actor with a critic, expected one of a2c',
    ),
    ('dqn', {'shared_network': True}, 'shared_network: dqn has no network with two outputs that could share layers'),
    ('ppo', {'shared_network': True, **FILE}, 'shared_network: cannot be used with own.cfg: the file sets the shared'),
    (
        'crossq',
        {'net': [8], 'block': 'simba'},
        'block: got simba, which has its own normalisation: cannot be used with crossq',
    ),
    (
        'ppo',
        {'net': [8], 'block': 'simba', 'normalize_layers': 'layer'},
        'block: got simba, which has its own normalisation: cannot be used with --normalize-layers layer',
    ),
    ('ppo', {'activation': 'relu'}, 'activation: got relu, which requires --net'),
    ('ppo', {'initializer': 'orthogonal'}, 'initializer: got orthogonal, which requires --net'),
    ('ppo', {'normalize_layers': 'layer'}, 'normalize_layers: got layer, which requires --net'),
    ('ppo', {'block': 'simba'}, 'block: got simba, which requires --net'),
    ('ppo', {'explorers': 3, 'n_envs': 2}, 'explorers: got 3, expected at most the 2 of --n-envs'),
    ('sac', {'memory': 4}, 'memory: got 4, but sac has no memory, expected one of a2c, dqn, ppo, pqn'),
    ('ppo', {'memory': 4, **FILE}, 'memory: cannot be used with own.cfg: the file sets the recurrent layers'),
    ('ppo', {'memory_kind': 'lstm'}, 'memory_kind: got lstm, which requires --memory'),
    ('dqn', {'memory': 4, 'dataset': 'd'}, 'dataset: got d with memory, which data sets do not contain'),
    ('dqn', {'memory': 4, 'fill_from': 'd'}, 'fill_from: got d with memory, which data sets do not contain'),
]
# with networks with and without memory: options of the agent
OF_MEMORY = [
    ('ppo', False, {'sequence_length': 8}, 'sequence_length: got 8, which requires --memory'),
    ('dqn', False, {'sequence_length': 8}, 'sequence_length: got 8, which requires --memory'),
    ('dqn', False, {'burn_in': 8}, 'burn_in: got 8, which requires --memory'),
    ('pqn', False, {'sequence_length': 8}, 'sequence_length: got 8, which requires --memory'),
    ('ppo', True, {'precision': 'bfloat16'}, 'precision: got bfloat16 with memory, expected float32'),
    ('dqn', True, {'n_step': 3}, 'n_step: got 3 with memory, expected 1'),
    ('dqn', True, {'prioritized': True}, 'prioritized: cannot be used with memory'),
    ('dqn', True, {'her': True}, 'her: cannot be used with memory'),
    ('dqn', True, {'noisy': True}, 'noisy: cannot be used with memory'),
    ('rainbow', True, {'n_step': 1, 'noisy': False}, 'prioritized: cannot be used with memory, expected --no-prior'),
    ('rainbow', True, {'n_step': 1, 'prioritized': False}, 'noisy: cannot be used with memory, expected --no-noisy'),
    ('dqn', True, {'conservative': 1.0}, 'conservative: got 1.0 with memory'),
]
OF_RUNS = [
    ('bc', {}, 'dataset: got nothing: bc learns only from a data set'),
    (
        'ppo',
        {'dataset': 'd'},
        'dataset: got d, but ppo learns only from rollouts of its present policy; expected one of',
    ),
    ('ppo', {'fill_from': 'd'}, 'fill_from: got d, but ppo has no replay buffer; expected one of'),
    ('team', {'overlap': True}, 'overlap: got true, but several policies learn here; expected runs of one policy'),
    ('team', {'record_dataset': 'd'}, 'record_dataset: got d, but several policies learn here'),
    ('team', {'checkpoints': ['a', 'b']}, 'checkpoints: got a b, but several policies learn here'),
    ('team', {'eval_async': True, 'eval_frequency': 5}, 'eval_async: got true, but several policies learn here'),
    (
        'ppo',
        {'self_play': True},
        'self_play: got true, but CartPole-v1 is no game; expected an environment of PettingZoo',
    ),
    (
        'game',
        {'overlap': True},
        'overlap: cannot be used with pettingzoo:tests.game_problems:Nim, a game: its opponents',
    ),
    ('game', {'explorers': 1, 'max_lag': 1}, 'max_lag: cannot be used with pettingzoo:tests.game_problems:Nim, a game'),
    ('ppo', {'explorers': 3}, 'explorers: got 3, expected at most the 2 of --n-envs'),
    (
        'vector',
        {'explorers': 2},
        "explorers: CartPole-v1 is one vector of environments, expected an environment's name",
    ),
    ('a2c', {'explorers': 2, 'max_lag': 1}, 'max_lag: A2C learns from the rollouts of its present policy'),
    ('three', {'explorers': 2, 'max_lag': 1}, 'max_lag: got 2 explorers, expected 1, 3 for 3 environments'),
    (
        'ppo',
        {'curriculum': {'length': '0.5..1'}},
        'curriculum: got nothing that begins levels, expected --max-steps or',
    ),
    ('object', {'eval_frequency': 5}, 'eval_frequency: CartPoleEnv cannot be created again, expected create_envs with'),
]


def options_of(group):
    return BUILTIN_AGENTS[group].options if isinstance(group, str) else group


def refused(call, *arguments, **options):
    with pytest.raises(OptionError) as refusal:
        call(*arguments, **options)
    return str(refusal.value)


@pytest.mark.parametrize(('group', 'given', 'message'), OF_GROUPS)
def test_a_group_of_options_refuses_by_its_rule(group, given, message):
    assert refused(options_of(group).resolve, given).startswith(message)


@pytest.mark.parametrize(('agent_id', 'has_memory', 'given', 'message'), OF_MEMORY)
def test_options_are_refused_with_or_without_memory(agent_id, has_memory, given, message, tmp_path):
    options = options_of(agent_id).resolve(given)
    assert refused(options.check_memory, has_memory).startswith(message)
    file = tmp_path / 'own.cfg'
    file.write_text('[gru-0]\nunits=4\n[dense-actor]\noutput=1\n[dense-critic]\noutput=1\nfrom=gru-0\n')
    network = ({'memory': 4}, {'model': str(file)}) if has_memory else ({},)
    for one in network:
        assert refused(plan_agent, agent_id, {'env': 'CartPole-v1', **one, **given}).startswith(message)


def test_every_rule_of_memory_has_a_case():
    expected = {(entry.options, rule.name) for entry in BUILTIN_AGENTS.values() for rule in entry.options.memory_rules}
    tested = {(options_of(agent_id), next(iter(given))) for agent_id, has, given, _ in OF_MEMORY if has}
    assert {name for _, name in expected} <= {name for _, name in tested}


def broken(rules, break_one):
    """Return the rules of which `break_one` is the first that is broken."""
    return next((i for i, rule in enumerate(rules) if break_one(rule)), None)


def test_every_rule_of_a_group_of_options_has_a_case():
    groups = {options_of(group) for group, _, _ in OF_GROUPS}
    groups |= {entry.options for entry in BUILTIN_AGENTS.values()} | {AgentOptions}
    declared = {id(rule): (cls.__name__, rule.name) for cls in groups for rule in cls.all_rules()}
    for group, given, _ in OF_GROUPS:
        kept, cls = [], options_of(group)
        rules = cls.all_rules()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Options, 'all_rules', classmethod(lambda _: ()))
            options = cls.resolve(given)
        kept = [rule for rule in rules if rule.broken(options)]
        declared.pop(id(kept[0]), None)
    assert not declared, 'add a case to OF_GROUPS'


@pytest.mark.usefixtures('small_agents')
def test_settings_are_refused_by_their_rules_and_each_has_a_case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'own.cfg').write_text('')

    @xagents.register('bare', networks=[])
    class Bare(BaseAgent):
        pass

    missing, check, plans = dict(enumerate(SETTINGS_RULES)), AgentPlan.__post_init__, []
    monkeypatch.setattr(AgentPlan, '__post_init__', lambda plan: (plans.append(plan), check(plan)))
    for agent_id, given, message in OF_SETTINGS:
        options = {'env': 'CartPole-v1', **given}
        assert refused(lambda id=agent_id, options=options: plan_agent(id, options)).startswith(message)
        missing.pop(broken(SETTINGS_RULES, lambda rule: rule.broken(_proposal(plans[-1]))), None)
    assert not missing, 'add a case to OF_SETTINGS'


def _proposal(plan):
    return Proposal(plan.entry, plan.settings)


def agents():
    """Return agents by the names in OF_RUNS."""

    def make(agent_id, env='CartPole-v1', **options):
        return xagents.make(agent_id, env, **{'n_envs': 2, 'net': [4], 'seed': 1, 'vector': 'sync', **options})

    policies = {'p': {'agent': 'ppo', 'agents': 'a'}, 'q': {'agent': 'ppo', 'agents': 'b'}}
    return {
        **{agent_id: lambda agent_id=agent_id: make(agent_id) for agent_id in ('bc', 'ppo', 'a2c')},
        'team': lambda: xagents.team(Walks, n_envs=2, net=[4], **policies),
        'vector': lambda: make('ppo', n_envs=8, vector='auto'),
        'game': lambda: make('ppo', 'pettingzoo:tests.game_problems:Nim'),
        'three': lambda: make('ppo', n_envs=3),
        'object': lambda: xagents.make('ppo', _unknown(gymnasium.make('CartPole-v1')), net=[4]),
    }


def _unknown(env):
    """Return an environment of which Gymnasium does not know how it was made."""
    env = env.unwrapped
    env.spec = None
    return env


def test_runs_are_refused_by_their_rules_and_each_has_a_case():
    missing = dict(enumerate(RUN_RULES))
    for name, given, message in OF_RUNS:
        with contextlib.closing(agents()[name]()) as agent:
            assert refused(agent.begin, **given).startswith(message), name
            run = Run(agent, RunOptions.resolve(given))
            missing.pop(broken(RUN_RULES, lambda rule, run=run: rule.broken(run)), None)
    assert not missing, 'add a case to OF_RUNS'


def test_options_do_not_change():
    options = RunOptions.resolve({'max_steps': 5})
    with pytest.raises(AttributeError, match=r'max_steps: options cannot change, use changed\(max_steps=…\)'):
        options.max_steps = 6
    other = options.changed(max_steps=6)
    assert (options.max_steps, other.max_steps, other.given_names) == (5, 6, {'max_steps'})
    with pytest.raises(AttributeError, match='cannot change'):
        other.max_steps = 7
