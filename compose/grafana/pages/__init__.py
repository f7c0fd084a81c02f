"""The dashboards: what matters first is on the first screen of each."""

from __future__ import annotations

from pages.compare import COMPARE_PAGE
from pages.devices import DEVICES_PAGE
from pages.faults import FAULTS_PAGE
from pages.network import NETWORK_PAGE
from pages.run import RUN_PAGE

PAGES = (RUN_PAGE, DEVICES_PAGE, NETWORK_PAGE, FAULTS_PAGE, COMPARE_PAGE)
