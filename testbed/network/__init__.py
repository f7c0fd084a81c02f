"""The links of a star: their shaping, the switch that connects them, and their counters.

Here: the only code that speaks to tc and netlink, and the fair share of a link as a formula, which
simulations use. Not here: the fields of a link in YAML (``scenario``), who has which link
(``plan``), when it changes (``runtimes.agent``).
"""
