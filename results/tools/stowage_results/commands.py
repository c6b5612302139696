"""The commands that `pip install results/tools` makes: stowage_validate and so on."""

import importlib


def command(module):
    def start():
        from stowage_results.result_files import run
        run(importlib.import_module(f"stowage_results.{module}").main)
    return start


compare = command("check.compare")
openmetrics = command("publish.openmetrics")
plot = command("plots.plot")
publish = command("publish.publish")
report = command("publish.report")
submissions = command("publish.submissions")
table = command("tables.table")
trackers = command("publish.trackers")
validate = command("check.validate")
