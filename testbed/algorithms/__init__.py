"""The algorithms a scenario can name; README.md says how to add one."""

from typing import Annotated

from pydantic import Field

from testbed.algorithms.adacomp import AdaComp
from testbed.algorithms.asgd import Asgd
from testbed.algorithms.comp_asgd import CompAsgd
from testbed.family import Named

Algorithm = Annotated[
    Annotated[Asgd | CompAsgd | AdaComp, Field(discriminator="name")],
    Named(),
]

__all__ = ["AdaComp", "Algorithm", "Asgd", "CompAsgd"]
