"""Some lives of a kind."""

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store.life.moving import Life

PHASES = (Phase.explicit, Phase.generate)
"""No shrinking: a life that fails takes seconds to live again, and timing plays a part in it."""


def live(machine: type[Life], *, seeds: int, lives: int = 10, steps: int = 40) -> None:
    """Run some lives from each seed, the same ones each time; more of them in a thorough run.

    Hypothesis makes most lives after the first ten of a run out of those that it has seen.
    """
    thorough = settings.get_current_profile_name() == "thorough"
    for number in range(10 * seeds if thorough else seeds):
        run_state_machine_as_test(
            seed(number)(machine),
            settings=settings(
                max_examples=lives,
                stateful_step_count=2 * steps if thorough else steps,
                database=None,
                phases=PHASES,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
