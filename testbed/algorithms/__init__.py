"""The algorithms a scenario can name; README.md says how to add one."""

from typing import Annotated

from pydantic import Field

from testbed.algorithms.adacomp import AdaComp
from testbed.algorithms.asgd import Asgd
from testbed.algorithms.bsp import Bsp
from testbed.algorithms.comp_asgd import CompAsgd
from testbed.algorithms.fixed_adacomm import FixedAdacomm
from testbed.algorithms.ssp import Ssp
from testbed.values.family import Named

Algorithm = Annotated[
    Annotated[Asgd | CompAsgd | AdaComp | Bsp | Ssp | FixedAdacomm, Field(discriminator="name")],
    Named(),
]

__all__ = ["AdaComp", "Algorithm", "Asgd", "Bsp", "CompAsgd", "FixedAdacomm", "Ssp"]
