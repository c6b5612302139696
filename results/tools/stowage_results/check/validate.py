"""Checks result sets against results/schema.md, and says whether a result is official.

Every metric is computed again from the samples and series of its file, every check from its numbers
and from what was measured. Sets that computed the same must have ended with the same bits: those
whose digests differ are named. The ceilings that a set of kernels refers to, and the runs with
other seeds behind a loss, are looked for among the files given.

Exit codes: 0 all files conform, 1 one does not, or two contradict each other, 2 a file is not ours,
truncated or damaged.
"""

import argparse
import pathlib
import re

from stowage_results.beside import beside
from stowage_results.check.checks import check_validation
from stowage_results.check.complete import check_complete
from stowage_results.check.official import SEEDS, by_uuid, losses_by_seed, not_official
from stowage_results.check.readings import check_readings
from stowage_results.check.recompute import check_figures
from stowage_results.result_files import LACKS, Refused, Result, text
from stowage_results.check.schema import check_series, check_structure, read_schema
from stowage_results.states import contradictions
from stowage_results.check.units import check_units

SCHEMA_FILE = beside("schema.md")
ALLOWED_ENVIRONMENT = re.compile(r"(NCCL|UCX|OMPI|PMIX|SLURM|CUDA|OMP|STOWAGE)_")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def check_facts(result):
    problems = []
    root, started = result.file.attrs, result.file["provenance/run"].attrs
    if not UUID.fullmatch(text(root["uuid"])) or text(started["uuid"]) != text(root["uuid"]):
        problems.append("/: uuid is not a uuid, or differs from that of /provenance/run")
    for name in ("start", "stop"):
        if not TIME.fullmatch(text(started[name])):
            problems.append(f"/provenance/run: {name} is not a time in UTC")
    if started["ranks"] != len(result.file["provenance/system/ranks"]):
        problems.append("/provenance/system/ranks: has not one row per rank")
    times = [text(started["start"]), text(root["created"]), text(started["stop"])]
    if times != sorted(times):
        problems.append(f"/provenance/run: start, created and stop are {', '.join(times)}")
    if text(result.file["provenance/software"].attrs["git_describe"]) != text(root["git_describe"]):
        problems.append("/provenance/software: git_describe is not that of /")
    if int(result.config().get("run.seed", started["seed"])) != started["seed"]:
        problems.append(f"/provenance/run: seed is {started['seed']}, run.seed of the deck is "
                        f"{result.config()['run.seed']}")
    for name in result.file["provenance/env"].attrs:
        if not ALLOWED_ENVIRONMENT.match(name):
            problems.append(f"/provenance/env: {name} is not on the allow-list")
    return problems


def check(result, rows):
    """All problems of a set: of form first, since the others are asked of what has it, and of
    what it lacks before what follows from it."""
    problems = check_structure(result, rows)
    for kind in (lambda one: check_series(one) + check_facts(one) + check_units(one) +
                 check_complete(one),
                 lambda one: check_validation(one) + check_readings(one) + check_figures(one)):
        try:
            problems = problems or kind(result)
        except (Refused, OSError, *LACKS) as lack:
            return [f"/: holds less than its checks need: {lack}"]
    return problems


def print_status(result, others):
    reasons = not_official(result, others)
    status = "official" if not reasons else "not official: " + "; ".join(reasons)
    version = text(result.file.attrs["schema_version"])
    print(f"{result.path}: conforms to schema {version}, {result.verdict} ({status})")


def print_seeds(results):
    for sets, seeds in losses_by_seed(results):
        if seeds < SEEDS:
            more = f" and {len(sets) - 1} more" if len(sets) > 1 else ""
            print(f"{sets[0].path}{more}: the loss is of {seeds} of {SEEDS} seeds: not official")


def schema_rows(path=SCHEMA_FILE):
    try:
        return read_schema(path)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", nargs="+", metavar="result.h5")
    parser.add_argument("--schema", type=pathlib.Path, default=SCHEMA_FILE)
    options = parser.parse_args()
    rows = schema_rows(options.schema)
    checked, refused = {}, []
    for path in options.results:
        try:
            result = Result(path)
            checked[result] = check(result, rows)
        except Refused as problem:
            refused.append(str(problem))
    conforming = [result for result, found in checked.items() if not found]
    others = by_uuid(conforming)
    for result, found in checked.items():
        for problem in found:
            print(f"{result.path}: {problem}")
        if not found:
            print_status(result, others)
    print_seeds(conforming)
    contradicting = contradictions(conforming)
    print("\n".join(contradicting), end="\n" if contradicting else "")
    if refused:
        raise Refused("\nerror: ".join(refused))
    return 0 if len(conforming) == len(checked) and not contradicting else 1
