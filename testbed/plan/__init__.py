"""From a scenario to the plan of its nodes, and the plan's file. Pure except for the file.

``testbed.topology`` holds the data itself: the code that creates containers and links uses a plan
and knows no scenario.
"""
