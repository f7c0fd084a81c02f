"""The algorithms that a scenario can name, and the frame that drives them.

Here: one file per algorithm, the parts they share (``parts``), and the frame around them without
I/O (``frame``): the server's order of pushes and the worker's loop, driven by roles or by a
simulation. Not here: models and data (``models``, ``datasets``), the formats of updates
(``payloads``), clocks and sockets (``roles``, ``rpc``, ``simulation``). README.md says how to add
an algorithm.
"""

from pathlib import Path
from typing import Annotated

from testbed.algorithms.adacomm import Adacomm as Adacomm
from testbed.algorithms.adacomp import AdaComp as AdaComp
from testbed.algorithms.adsp import Adsp as Adsp
from testbed.algorithms.asgd import Asgd as Asgd
from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.bsp import Bsp as Bsp
from testbed.algorithms.comp_asgd import CompAsgd as CompAsgd
from testbed.algorithms.custom import CustomAlgorithm as CustomAlgorithm
from testbed.algorithms.ddl import Ddl as Ddl
from testbed.algorithms.diloco import DiLoCo as DiLoCo
from testbed.algorithms.fedasync import FedAsync as FedAsync
from testbed.algorithms.fedavg import FedAvg as FedAvg
from testbed.algorithms.fedbuff import FedBuff as FedBuff
from testbed.algorithms.fednova import FedNova as FedNova
from testbed.algorithms.fedopt import FedOpt as FedOpt
from testbed.algorithms.fedprox import FedProx as FedProx
from testbed.algorithms.fixed_adacomm import FixedAdacomm as FixedAdacomm
from testbed.algorithms.mem_sgd import MemSgd as MemSgd
from testbed.algorithms.plump_dp import PlumpDp as PlumpDp
from testbed.algorithms.powersgd import PowerSgd as PowerSgd
from testbed.algorithms.qfedavg import QFedAvg as QFedAvg
from testbed.algorithms.quant_dp import QuantDp as QuantDp
from testbed.algorithms.scadles import ScaDles as ScaDles
from testbed.algorithms.scaffold import Scaffold as Scaffold
from testbed.algorithms.signsgd import SignSgd as SignSgd
from testbed.algorithms.slim_dp import SlimDp as SlimDp
from testbed.algorithms.ssp import Ssp as Ssp
from testbed.algorithms.tap import Tap as Tap
from testbed.algorithms.term import Term as Term
from testbed.values.family import Named

Algorithm = Annotated[
    Asgd
    | CompAsgd
    | AdaComp
    | Bsp
    | Ssp
    | Tap
    | FixedAdacomm
    | Adacomm
    | Adsp
    | FedAvg
    | FedProx
    | FedOpt
    | FedNova
    | Scaffold
    | QFedAvg
    | FedBuff
    | FedAsync
    | DiLoCo
    | Ddl
    | ScaDles
    | PlumpDp
    | QuantDp
    | SlimDp
    | SignSgd
    | MemSgd
    | Term
    | PowerSgd
    | CustomAlgorithm,
    Named(),
]


def configured(algorithm: Algorithm, folder: Path) -> AlgorithmConfig:
    """Return the config that creates the halves: a built-in one, or the one in the user's file.

    Args:
        algorithm: the scenario's algorithm.
        folder: the run folder; copies of the user's own files are in its ``custom``.

    Raises:
        ScenarioError: the user's file is wrong.
    """
    config = algorithm.load(folder) if isinstance(algorithm, CustomAlgorithm) else algorithm
    return config.loaded(folder)
