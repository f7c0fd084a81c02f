"""From a scenario to a finished run: plan, deploy, watch, collect, and always tear down."""
