"""Compares result sets with the first of them: same, faster or slower by their raw samples, and the
first step at which their losses differ.

Two sets of times are compared by the ratio of their medians, B / A, with a 95 % interval from a
moving-block bootstrap (Kunsch 1989; blocks of n^(1/3) repetitions, since neighbours are not
independent). B is slower if the whole interval lies above 1 + tolerance, faster if it lies below
1 - tolerance, and the same otherwise; the interval says how much "same" can hide.

Only what did the same work is compared: one driver, one model, sequence length and global batch,
and samples that say of themselves the same tokens, bytes and FLOP to 1 %: documents are cut
elsewhere by another seed or number of steps. What differs within that is told. A key that one set
lacks has the default of the deck's reference. Times of an INVALID run are of nothing, and are not
compared; its losses and states are, to find where it went wrong.

The state that both ended with is compared by its digests, at every step that both digested.
--equal-loss and --equal-state ask for nothing else: times are shown where they can be, and decide
nothing.

Exit codes: 0 same or faster, 1 slower (with --equal-loss or --equal-state: another loss or state),
2 the files cannot be compared: not ours, truncated, other work, an INVALID run, a time or loss that
is not a number, nothing in common. Of several sets the largest code counts.
"""

import argparse
import sys

from stowage_results import needs  # noqa: F401
import numpy as np

from stowage_results import deck_defaults
from stowage_results.tables.cells import printable
from stowage_results.medians import LEAST_FOR_INTERVAL
from stowage_results.result_files import Refused, Result, largest_of_ranks, text
from stowage_results.states import first_difference, numerics

RESAMPLES = 4000
SEED = 20  # a comparison of the same two files gives the same interval again


def resampled(count, generator):
    """Places of RESAMPLES series put together from random blocks of `count` repetitions."""
    block = max(1, round(count ** (1 / 3)))
    blocks = -(-count // block)
    starts = generator.integers(0, count - block + 1, size=(RESAMPLES, blocks))
    return (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, :count]


def block_medians(times, generator):
    return np.median(times[resampled(len(times), generator)], axis=1)


def ratio_interval(times_a, times_b):
    """Ratio of the medians, B / A, and its 95 % interval."""
    generator = np.random.default_rng(SEED)
    ratios = block_medians(times_b, generator) / block_medians(times_a, generator)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return np.median(times_b) / np.median(times_a), low, high


def judge(low, high, tolerance):
    if low > 1 + tolerance:
        return "slower"
    return "faster" if high < 1 - tolerance else "same"


WORK = ("model.", "train.seq_length", "train.global_batch_size")
FEWER = ("run.seed", "run.steps")  # keys that may differ, and say why losses and amounts do
AMOUNTS = ("tokens", "bytes", "flops", "model_flops")  # of work, as samples say it
CLOSE = 0.01  # amounts of the same work: documents are cut elsewhere by other seeds and lengths
SHOWN = 60  # characters of a value
MACHINE = ("host", "cpu_model", "gpu_name", "gpu_driver", "kernel")


def decks(a, b):
    """The keys of both, each completed by what the other has beside them."""
    one, other = a.config(), b.config()
    return deck_defaults.completed(one, other), deck_defaults.completed(other, one)


def differing(a, b):
    """{key: its two values} of keys that both have, or that nobody knows a default of."""
    one, other = decks(a, b)
    return {key: (one.get(key, "(none)"), other.get(key, "(none)"))
            for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)}


def refuse_other_work(a, b):
    """Times and losses of other models or batches say nothing about each other."""
    drivers = [text(one.file.attrs["driver"]) for one in (a, b)]
    if drivers[0] != drivers[1]:
        raise Refused(f"{a.path} is of {drivers[0]}, {b.path} of {drivers[1]}")
    for key, (one, other) in differing(a, b).items():
        if key.startswith(WORK) and "(none)" not in (one, other):
            raise Refused(f"{a.path} and {b.path} did not do the same work: {key} is {one} and "
                          f"{other}")


def numbers(result, name, values):
    """The values, refused if one is not a number."""
    if not np.all(np.isfinite(values)):
        raise Refused(f"{result.path}: {name} holds a value that is not finite")
    return values


def times(result, name):
    """One time per repetition, that of the slowest rank."""
    path = f"samples/{name}"
    found = numbers(result, path, largest_of_ranks(result.array(path)))
    if np.any(found <= 0) and not name.startswith("ops/"):
        raise Refused(f"{result.path}: {path} holds a time that is not positive")
    return found


def refuse_other_amounts(a, b, name):
    """Tells what differs a little. Ops may cost less than before, and steps of a capacity hold what
    documents fall to them."""
    if name.startswith(("ops/", "packing/")):
        return
    one, other = (result.file[f"samples/{name}"].attrs for result in (a, b))
    for amount in AMOUNTS:
        if amount not in one or amount not in other:
            continue
        pair = float(one[amount]), float(other[amount])
        if pair[0] == pair[1] or all(map(np.isnan, pair)):
            continue
        apart = abs(pair[0] - pair[1]) / max(map(abs, pair))
        if not apart <= CLOSE:
            raise Refused(f"{a.path} and {b.path} did not do the same work: {amount} of "
                          f"samples/{name} is {pair[0]:.9g} and {pair[1]:.9g}")
        print(f"{name:<32} {amount} differ by {100 * apart:.2g} %: {pair[0]:.9g}, {pair[1]:.9g}")


def compare_samples(a, b, skip, tolerance):
    """Prints one line per set of samples in both files; the words it judged by."""
    words = []
    for name in a.datasets("samples"):
        if f"samples/{name}" not in b.file:
            continue
        refuse_other_amounts(a, b, name)
        both = [times(one, name)[skip:] for one in (a, b)]
        if min(len(one) for one in both) < LEAST_FOR_INTERVAL:
            print(f"{name:<32} too few samples for an interval: {len(both[0])}, {len(both[1])}")
            continue
        ratio, low, high = ratio_interval(*both)
        word = judge(low, high, tolerance)
        words.append(word)
        print(f"{name:<32} {word:<6} B/A = {ratio:.4f}  [{low:.4f}, {high:.4f}]  "
              f"medians {np.median(both[0]):.6g} s ({len(both[0])}), "
              f"{np.median(both[1]):.6g} s ({len(both[1])})")
    return words


def compare_loss(a, b, name):
    """Prints whether a loss series is the same in both, to the bit; None if not in both."""
    series = [file.series(name) for file in (a, b)]
    if None in series:
        return None
    (steps_a, loss_a), (steps_b, loss_b) = series
    steps, in_a, in_b = np.intersect1d(steps_a, steps_b, return_indices=True)
    if len(steps) == 0:
        return None
    one, other = loss_a[in_a], loss_b[in_b]
    for of, losses in ((a, one), (b, other)):
        numbers(of, f"series/{name}", losses[~np.isin(steps, of.skipped_steps())])
    differs = np.flatnonzero(one.view(np.int64) != other.view(np.int64))
    if len(differs) == 0:
        print(f"{name:<32} equal to the bit at all {len(steps)} common steps")
        return True
    first = differs[0]
    print(f"{name:<32} differs first at step {steps[first]}: {one[first]:.9g} and "
          f"{other[first]:.9g}; largest difference {np.nanmax(np.abs(one - other)):.3g}")
    return False


def compare_states(a, b):
    """Prints whether all that is kept from step to step is the same; None if nobody can say."""
    found = first_difference(a, b)
    if found is None:
        return None
    last, differs = found
    if differs is None:
        print(f"{'state':<32} equal to the bit after step {last}")
    else:
        same = numerics(a) is not None and numerics(a) == numerics(b)
        why = ", though the decks compute the same" if same else ""
        print(f"{'state':<32} differs first after step {differs} of those digested{why}")
    return differs is None


def shortened(value):
    value = printable(value)
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}... ({len(value)} characters)"


def print_differing_keys(a, b, of_machine):
    for key, pair in differing(a, b).items():
        if key.startswith("machine.") == of_machine:
            print(f"  {key}: {' -> '.join(map(shortened, pair))}")


def print_differing_machines(a, b):
    """What tells the machines apart, at last."""
    found = [result.array("provenance/system/ranks") for result in (a, b)]
    if not any(ranks is None or len(ranks) == 0 for ranks in found):
        for name in MACHINE:
            values = [text(ranks[0][name]) if name in ranks.dtype.names else "" for ranks in found]
            if values[0] != values[1]:
                print(f"  {name}: {' -> '.join(map(shortened, values))}")
    print_differing_keys(a, b, of_machine=True)


def judge_times(a, b, options):
    """The words of times, none if the question is of losses or states alone and no times are
    comparable."""
    asked_otherwise = options.equal_loss or options.equal_state
    invalid = [one.path for one in (a, b) if one.verdict == "INVALID"]
    if invalid and asked_otherwise:
        return []
    if invalid:
        raise Refused(f"{invalid[0]}: is INVALID; --equal-loss or --equal-state look for where it "
                      "differs")
    try:
        return compare_samples(a, b, options.skip, options.tolerance)
    except Refused as reason:
        if not asked_otherwise:
            raise
        print(f"times are not compared: {reason}")
        return []


def compare(a, b, options):
    """Prints all of one comparison; its exit code."""
    refuse_other_work(a, b)
    for letter, one in (("A", a), ("B", b)):
        commit = printable(text(one.file.attrs.get("git_describe", "an unknown commit")))
        print(f"# {letter} {one.path}  {one.verdict}  at {commit}")
    print_differing_keys(a, b, of_machine=False)
    other = [key for key in FEWER if key in differing(a, b)]
    if other:
        print(f"# {' and '.join(other)} differ, and so may losses, states and amounts of work")
    words = judge_times(a, b, options)
    equal = [compare_loss(a, b, name) for name in ("train/loss", "train/val_loss")]
    same_state = compare_states(a, b)
    print_differing_machines(a, b)
    if not words and equal == [None, None] and same_state is None:
        raise Refused(f"{a.path} and {b.path} have no samples, losses or states in common")
    if options.equal_loss or options.equal_state:
        missing = [what for what, asked, there in
                   (("losses", options.equal_loss, equal != [None, None]),
                    ("states", options.equal_state, same_state is not None)) if asked and not there]
        if missing:
            print(f"no {' and no '.join(missing)} of a step in common")
        unequal = options.equal_loss and False in equal or options.equal_state and not same_state
        return 1 if missing or unequal else 0
    return 1 if "slower" in words else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("a", metavar="A.h5", help="the reference")
    parser.add_argument("b", metavar="B.h5", nargs="+", help="what is judged, one after the other")
    parser.add_argument("--tolerance", type=float, default=0.01, metavar="F",
                        help="a difference that matters, as a fraction (default 0.01)")
    parser.add_argument("--skip", type=int, default=0, metavar="N",
                        help="leave out the first N repetitions: warm-up")
    parser.add_argument("--equal-loss", action="store_true",
                        help="exit with 1 unless all losses are equal to the bit")
    parser.add_argument("--equal-state", action="store_true",
                        help="exit with 1 unless all digests of the state are equal")
    options = parser.parse_args()
    if options.skip < 0 or not 0 <= options.tolerance < 1:
        parser.error("--skip must be >= 0, --tolerance in [0, 1)")
    a, codes = Result(options.a), []
    for path in options.b:
        try:
            codes.append(compare(a, Result(path), options))
        except Refused as error:  # the others are compared all the same
            print(f"error: {printable(error)}", file=sys.stderr)
            codes.append(2)
    return max(codes)
