"""From a scenario to the plan of its nodes, and the plan as it is written down. Pure but for that.

``testbed.topology`` holds the data itself: what makes containers and links understands a plan and
knows no scenario.
"""
