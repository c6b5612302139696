#!/usr/bin/env python3
"""Makes what JUBE and Ramble read of benchmarks.json: make.py [--check]. With --check it writes
nothing and ends with 1 if a file is not what it would write.

A run is good if its own verdict is VALID; its figure is tokens per second, of the verdict's line.
"""
import argparse
import json
import pathlib
import sys
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
MADE = "Made by scripts/sites/make.py of benchmarks.json: change these."
FIGURE = "STOWAGE RESULT VALID +train/tokens_per_s="


def keys_of(one, source):
    """Overrides of the deck. @param source what stands for the checkout"""
    keys = [f"execution.backend={'cuda' if one['gpus'] else 'host'}"]
    keys += [f"run.steps={one['steps']}"] if one["steps"] else []
    keys += [f"data.path={source}/{one['data']}"] if "data" in one else []
    return " ".join(keys)


def add(parent, kind, text=None, /, **attributes):
    made = xml.SubElement(parent, kind, attributes)
    made.text = text
    return made


def jube(table):
    """stowage.xml, for JUBE 2."""
    held = table["benchmarks"]
    root = xml.Element("jube")
    root.append(xml.Comment(f" {MADE} "))
    top = add(root, "benchmark", name="stowage", outpath="stowage_runs")
    add(top, "comment", "Stowage trains: the quick start on CPU ranks; --tag gpu: the decks of one "
                        "GPU, too; --tag gpu h200: beside what is published of that GPU")
    site = add(top, "parameterset", name="site")
    add(site, "parameter", "${jube_benchmark_home}/../..", name="source")
    add(site, "parameter", "${source}/build/host/bin", name="bin", tag="!gpu")
    add(site, "parameter", "${source}/build/cuda/bin", name="bin", tag="gpu")
    add(site, "parameter", "mpirun -np ${ranks}", name="launch")
    what = add(top, "parameterset", name="what")
    for tag, names in (("!gpu", [name for name in held if not held[name]["gpus"]]),
                       ("gpu", list(held))):
        add(what, "parameter", ",".join(names), name="deck", tag=tag)
    for name, kind, of in (("ranks", "int", lambda one: one["ranks"]),
                           ("keys", "string", lambda one: keys_of(one, "${source}"))):
        values = {deck: of(one) for deck, one in held.items()}
        add(what, "parameter", f"{values}['$deck']", name=name, type=kind, mode="python")
    gpus = sorted({gpu for one in held.values() for gpu in one["published"]})
    add(what, "parameter", "0", name="published", type="int", tag=f"!({'|'.join(gpus)})")
    for gpu in gpus:
        values = {deck: one["published"].get(gpu, 0) for deck, one in held.items()}
        add(what, "parameter", f"{values}['$deck']", name="published", type="int", mode="python",
            tag=gpu)
    step = add(top, "step", name="train")
    add(step, "use", "site,what")
    add(step, "do", "${launch} ${bin}/stowage_train ${source}/inputs/${deck}.toml ${keys} "
                    "run.output=result.h5")
    figures = add(top, "patternset", name="figures")
    add(figures, "pattern", "^STOWAGE RESULT (\\w+)", name="verdict")
    add(figures, "pattern", f"^{FIGURE}$jube_pat_fp", name="tokens_per_s", type="float",
        unit="tokens/s", default="nan")
    add(figures, "pattern", "$tokens_per_s / $published if $published else float('nan')",
        name="beside_published", type="float", mode="python")
    analyser = add(top, "analyser", name="read")
    add(analyser, "use", "figures")
    add(add(analyser, "analyse", step="train"), "file", "stdout")
    result = add(top, "result")
    add(result, "use", "read")
    rows = add(result, "table", name="stowage", style="pretty", sort="deck")
    for column in ("deck", "ranks", "verdict", "tokens_per_s", "beside_published"):
        add(rows, "column", column)
    xml.indent(root)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return head + xml.tostring(root, encoding="unicode") + "\n"


RAMBLE = '''# {made}
from ramble.appkit import *


class Stowage(ExecutableApplication):
    """Trains hybrid language models over MPI and CUDA, and checks what it trains."""

    name = "stowage"
    tags("benchmark-app", "machine-learning")

    executable(
        "train",
        "{{stowage_bin}}/stowage_train {{stowage_source}}/inputs/{{deck}}.toml {{keys}} "
        "run.output={{experiment_run_dir}}/result.h5",
        use_mpi=True,
    )

    figure_of_merit(
        "tokens per second",
        fom_regex=r"^{figure}(?P<rate>\\S+)",
        group_name="rate",
        units="tokens/s",
    )
    success_criteria("valid", mode="string", match=r"^STOWAGE RESULT VALID ")
    success_criteria(
        "in_band",
        mode="fom_comparison",
        fom_name="tokens per second",
        formula="{{published}} == 0 or "
        "({low} * {{published}} <= {{value}} and {{value}} <= {high} * {{published}})",
    )
{workloads}'''

WORKLOAD = '''
    # {about}
    workload("{name}", executables=["train"])
{variables}'''

VARIABLE = '''    workload_variable(
        "{name}",
        default="{value}",
        description="{about}",
        workloads=["{workload}"],
    )
'''


def ramble_application(table):
    """application.py of a repository of Ramble's."""
    low, high = (1 + part for part in table["band"])
    workloads = ""
    for name, one in table["benchmarks"].items():
        values = (("deck", name, "Deck of inputs/"),
                  ("keys", keys_of(one, "{stowage_source}"), "Overrides of the deck"),
                  ("published", 0, "tokens/s to hold it against; 0: none"))
        variables = "".join(VARIABLE.format(name=key, value=value, about=about, workload=name)
                            for key, value, about in values)
        workloads += WORKLOAD.format(name=name, about=one["about"], variables=variables)
    return RAMBLE.format(made=MADE, figure=FIGURE, low=f"{low:g}", high=f"{high:g}",
                         workloads=workloads)


def ramble_workspace(table):
    """ramble.yaml of a workspace: JSON is YAML, but for its comments."""
    def experiment(one):
        variables = {"n_ranks": str(one["ranks"]), "n_nodes": "1"}
        return {"experiments": {"one_node": {"variables": variables}}}
    made = {"ramble": {
        "variables": {"mpi_command": "mpirun -np {n_ranks}", "processes_per_node": "-1",
                      "batch_submit": "{execute_experiment}",
                      "stowage_source": "$HOME/stowage",
                      "stowage_bin": "{stowage_source}/build/host/bin"},
        "applications": {"stowage": {"workloads": {
            name: experiment(one) for name, one in table["benchmarks"].items()}}},
        "software": {"packages": {}, "environments": {}}}}
    return f"# {MADE}\n{yaml(made)}"


def yaml(value, indent=0):
    """Dictionaries of texts as YAML."""
    lines = []
    for key, held in value.items():
        start = " " * indent + f"{key}:"
        if not isinstance(held, dict):
            lines.append(f"{start} '{held}'\n")
        elif held:
            lines.append(f"{start}\n{yaml(held, indent + 2)}")
        else:
            lines.append(f"{start} {{}}\n")
    return "".join(lines)


def made(table):
    """Texts by path."""
    return {"stowage.xml": jube(table),
            "ramble/repo.yaml": f"# {MADE}\nrepo:\n  namespace: stowage\n",
            "ramble/applications/stowage/application.py": ramble_application(table),
            "ramble/ramble.yaml": ramble_workspace(table)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    table = json.loads((HERE / "benchmarks.json").read_text(encoding="utf-8"))
    other = [path for path, text in made(table).items()
             if not (HERE / path).exists() or (HERE / path).read_text(encoding="utf-8") != text]
    if given.check:
        for path in other:
            print(f"{path}: is not made of benchmarks.json: run scripts/sites/make.py")
        return 1 if other else 0
    for path in other:
        (HERE / path).parent.mkdir(parents=True, exist_ok=True)
        (HERE / path).write_text(made(table)[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
