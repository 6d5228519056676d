"""The test kit: processes in virtual time, handlers without a database, databases for tests."""

from typing import TYPE_CHECKING

from progressor.exports import exports

if TYPE_CHECKING:
    from progressor.testing.failures import (
        BrokenInWorld as BrokenInWorld,
        RunawayWorld as RunawayWorld,
        UnreadableStates as UnreadableStates,
        WorldError as WorldError,
    )
    from progressor.testing.steps import (
        Done as Done,
        DoneTimer as DoneTimer,
        UnitProcess as UnitProcess,
        process as process,
        step as step,
    )
    from progressor.testing.world import MakeWorld as MakeWorld, World as World
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "failures": "BrokenInWorld RunawayWorld UnreadableStates WorldError",
            "steps": "Done DoneTimer UnitProcess process step",
            "world": "MakeWorld World",
        },
    )
