"""`xagents tune`: run a search, or list the search space."""

from __future__ import annotations

from xagents.options.errors import GivenOptions, InputError, as_input_errors
from xagents.tuning.plan import plan, search_page


def tune(agent_id: str, given: GivenOptions, line: str) -> str | None:
    """Search hyperparameters, or return the page with the search space."""
    given = {name: value for name, value in given.items() if name != 'debug'}
    with as_input_errors():
        if given.pop('print_search', False):
            return search_page(agent_id, given)
        planned = plan(agent_id, given)
    from xagents.tuning import evolve
    from xagents.tuning.tune import SettingsError, run_study  # loads Optuna

    try:
        evolve.run_population(planned) if planned.tune.population else run_study(planned, line)
    except SettingsError as error:
        raise InputError(str(error)) from error
    return None
