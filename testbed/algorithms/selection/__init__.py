"""Selections: which workers take part in a round.

    uniform        every worker with the same chance
    loss           workers with a high loss (Power-of-Choice)
    oort           useful and fast workers, and some not tried yet
    availability   workers that were connected and delivered, or rather the others
    custom         a class in the user's file

Here: one selection per file, a function of what the server has seen (``base.History``), never of
what only the emulation knows. Not here: when a round ends, and what becomes of late updates
(``parts``). A new selection is a file here and an entry in ``AnySelection``.
"""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypeAliasType

from testbed.algorithms.selection.availability import ByAvailability as ByAvailability
from testbed.algorithms.selection.base import History as History
from testbed.algorithms.selection.base import SelectionConfig as SelectionConfig
from testbed.algorithms.selection.base import SelectionState as SelectionState
from testbed.algorithms.selection.custom import CustomSelection as CustomSelection
from testbed.algorithms.selection.loss import ByLoss as ByLoss
from testbed.algorithms.selection.oort import Oort as Oort
from testbed.algorithms.selection.uniform import Uniform as Uniform
from testbed.values.family import Named

AnySelection = Uniform | ByLoss | Oort | ByAvailability | CustomSelection
Selection = TypeAliasType("Selection", Annotated[AnySelection, Named()])
