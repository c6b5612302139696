"""Digests of all that a training run keeps from step to step: who must have the same ones, who has.

The same keys that decide what a step computes, the same grid of ranks, code, machine and choices of
libraries make the same bits, whatever was planned; so two such runs whose digests differ contradict
each other.
"""

import re

from stowage_results.result_files import text

STATES_SINCE = 3  # minor version of the schema
DIGEST = re.compile(r"[0-9a-f]{32}")
WHERE = "validation/state_digest"
MACHINE = ("cpu_model", "threads", "gpu_name")


def digests(result):
    """The digests of a set by step; empty: it has none."""
    table = result.array(WHERE)
    return {} if table is None else {int(step): text(digest) for step, digest in table}


def numerics(result):
    """SHA-256 of the keys that decide what a step computes, or None."""
    found = result.array("config/numerics_sha256")
    return None if found is None else text(found)


def grid(result):
    """How ranks cut the model and the batch; how they share out states changes no bit."""
    attributes = result.file["provenance/grid"].attrs if "provenance/grid" in result.file else {}
    return tuple((name, int(value)) for name, value in sorted(attributes.items())
                 if name not in ("shape", "zero"))


def origin(result):
    """What two runs must have in common to have the same bits; None: nobody knows."""
    described = text(result.file.attrs["git_describe"])
    if numerics(result) is None or described == "unknown" or described.endswith("-dirty"):
        return None
    ranks = result.array("provenance/system/ranks")
    machine = tuple(tuple(str(value) for value in ranks[name]) for name in MACHINE)
    choices = result.array("provenance/choices")
    chosen = () if choices is None else tuple(
        (text(one["what"]), text(one["chosen"])) for one in choices)
    return numerics(result), described, grid(result), machine, tuple(sorted(chosen))


def first_difference(a, b):
    """(last common step, first step that differs or None) of two sets; None: no common step."""
    one, other = digests(a), digests(b)
    common = sorted(one.keys() & other.keys())
    if not common:
        return None
    return common[-1], next((step for step in common if one[step] != other[step]), None)


def contradictions(results):
    """A line for each set whose state differs from that of one before it which did the same."""
    lines, seen = [], {}
    for result in results:
        if not digests(result) or origin(result) is None:
            continue
        for earlier in seen.setdefault(origin(result), []):
            found = first_difference(earlier, result)
            if found and found[1] is not None:
                lines.append(f"{result.path}: after step {found[1]} its state is not that of "
                             f"{earlier.path}, with the same deck, seed, source and machine")
                break
        seen[origin(result)].append(result)
    return lines
