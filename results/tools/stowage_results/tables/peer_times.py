"""Peers that scripts timed, one after the other: JSON lines beside the sets."""

import math
import pathlib
import re

from stowage_results.tables.cells import gpu_name
from stowage_results.plain_files import Refused, parse_json, read_text

KEYS = ("operator", "implementation", "median_s")


def read(results):
    """All timings of scripts in the folders of the sets, with `file` naming where each stands. JSON
    lines of another kind, such as logs of runs, are left out."""
    found = []
    folders = sorted({pathlib.Path(result.path).parent for result in results})
    for path in (path for folder in folders for path in sorted(folder.glob("*.jsonl"))):
        try:
            lines = read_text(path).splitlines()
            if lines and all(key in parse_json(path, lines[0]) for key in KEYS):
                found += [timing(parse_json(path, line), path.name) for line in lines]
        except (OSError, TypeError, ValueError, RecursionError) as error:
            raise Refused(f"{path}: cannot be read: {error}") from None
    return found


def timing(line, file):
    """A line as it is used, or ValueError."""
    if not isinstance(line, dict) or not all(key in line for key in KEYS):
        raise ValueError(f"a line without {', '.join(KEYS)}")
    seconds = line["median_s"]
    if not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ValueError(f"median_s is {seconds}, no time")
    return {**line, "file": file}


def of_board(peers, result):
    """Timings on the same kind of GPU, as far as they say on which they were made."""
    name = gpu_name(result)
    return [peer for peer in peers if peer.get("device", name) == name]


def numbers(shape):
    """{"B": 2, "T": 8192} of B2_T8192."""
    return {name: int(value) for name, value in re.findall(r"([A-Za-z]+)(\d+)(?:_|$)", shape)}


def of_case(peers, operator, shape, flops):
    """Timings of the same work: every size that both name agrees, and what one of them leaves open
    is settled by the FLOP. Peers write their results: none stands beside sums into old values."""
    ours = numbers(shape)
    found = []
    for peer in peers:
        theirs = peer.get("shape", {})
        same = all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())
        whole = theirs.keys() <= ours.keys() or peer.get("flops") == flops
        if peer["operator"] == operator and same and whole and not ours.get("accumulate"):
            found.append(peer)
    return found


def of_step(peers, deck, tokens, parameters):
    """Timings of a whole training step of a deck on one rank, of as many tokens and parameters."""
    return [peer for peer in peers if peer["operator"] == "train_step"
            and peer.get("ranks", 1) == 1
            and pathlib.Path(peer["deck"]).stem == deck and peer["tokens"] == tokens
            and peer["parameters"] == parameters]
