"""Calls with right and wrong keywords: mypy accepts the right ones, and `make lint` fails if it accepts a wrong one."""

import xagents

agent = xagents.make('ppo', 'CartPole-v1', n_envs=4, lr=1e-3, net=[8], run_dir='run', wrapper=['a:B'], stages=['a'])
agent.fit(max_steps=100, eval_frequency=10, on_nan='skip')
agent.fit(target_reward=200.0)
next(agent.train_iter(target_reward=200.0, max_time=1.0))
xagents.make('ppo', learning_rate=1e-3)  # type: ignore[call-arg]
xagents.make('ppo', n_envs='four')  # type: ignore[arg-type]
agent.fit(max_step=100)  # type: ignore[call-arg]
agent.fit(max_steps='many')  # type: ignore[arg-type]
agent.train_iter(on_nan='go')  # type: ignore[arg-type]
xagents.load('run', epsilon_end=0.1)
xagents.load('run', epsilon_ende=0.1)  # type: ignore[call-arg]
xagents.tune('ppo', 'CartPole-v1', n_trials=3, lr=[1e-5, 1e-2], n_steps=16, optimizer=['adam', 'muon'])
xagents.make('ppo', optimizer='adamw', weight_decay=0.1)
xagents.make('ppo', optimizer='adamx')  # type: ignore[arg-type]
xagents.tune('ppo', 'CartPole-v1', trials=3)  # type: ignore[call-arg]
xagents.evolve('ppo', 'CartPole-v1', population=4, lr=[1e-5, 1e-2])
xagents.evolve('ppo', 'CartPole-v1', members=4)  # type: ignore[call-arg]
xagents.record(agent, 'cartpole/expert-v0', episodes=10)
xagents.record(agent, 'cartpole/expert-v0', episode=10)  # type: ignore[call-arg]
