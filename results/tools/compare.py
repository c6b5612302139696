#!/usr/bin/python3
"""Compares two result sets: same, faster or slower by their raw samples, and the first step at
which their losses differ.

Two sets of times are compared by the ratio of their medians, B / A, with a 95 % interval from a
moving-block bootstrap (Kunsch 1989; blocks of n^(1/3) repetitions, since neighbours are not
independent). B is slower if the whole interval lies above 1 + tolerance, faster if it lies below
1 - tolerance, and the same otherwise; the interval says how much "same" can hide.

Only what did the same work is compared: one driver, one model, sequence length and global batch,
and samples that say of themselves the same tokens, bytes and FLOP. Times of an INVALID run are of
nothing, and are not compared; its losses and states are, to find where it went wrong.

The state that both ended with is compared by its digests, at every step that both digested.

Exit codes: 0 same or faster, 1 slower (or, with --equal-loss or --equal-state, another loss or
state), 2 the files cannot be compared: not ours, truncated, other work, an INVALID run, a time or
loss that is not a number, nothing in common.
"""

import argparse

import numpy as np

from medians import LEAST_FOR_INTERVAL
from recompute import same
from result_files import Refused, Result, largest_of_ranks, run, text
from states import first_difference, numerics

RESAMPLES = 4000
SEED = 20  # a comparison of the same two files gives the same interval again


def block_medians(times, generator):
    """Medians of RESAMPLES series put together from random blocks of `times`."""
    count = len(times)
    block = max(1, round(count ** (1 / 3)))
    blocks = -(-count // block)
    starts = generator.integers(0, count - block + 1, size=(RESAMPLES, blocks))
    index = (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, :count]
    return np.median(times[index], axis=1)


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


def refuse_other_work(a, b):
    """Times and losses of other models or batches say nothing about each other."""
    drivers = [text(one.file.attrs["driver"]) for one in (a, b)]
    if drivers[0] != drivers[1]:
        raise Refused(f"{a.path} is of {drivers[0]}, {b.path} of {drivers[1]}")
    keys = [{key: value for key, value in one.config().items() if key.startswith(WORK)}
            for one in (a, b)]
    for key in sorted(keys[0].keys() | keys[1].keys()):
        one, other = (values.get(key, "(none)") for values in keys)
        if one != other:
            raise Refused(f"{a.path} and {b.path} did not do the same work: {key} is {one} and "
                          f"{other}")


def numbers(result, name, values):
    """The values, refused if one is not a number."""
    if not np.all(np.isfinite(values)):
        raise Refused(f"{result.path}: {name} holds a value that is not finite")
    return values


AMOUNTS = ("tokens", "bytes", "flops", "model_flops")  # of work, as samples say it


def times(result, name):
    """One time per repetition, that of the slowest rank."""
    path = f"samples/{name}"
    found = numbers(result, path, largest_of_ranks(result.array(path)))
    if np.any(found <= 0) and not name.startswith("ops/"):
        raise Refused(f"{result.path}: {path} holds a time that is not positive")
    return found


def refuse_other_amounts(a, b, name):
    """Ops may cost less than before, and steps of a capacity hold what documents fall to them."""
    if name.startswith(("ops/", "packing/")):
        return
    one, other = (result.file[f"samples/{name}"].attrs for result in (a, b))
    for amount in AMOUNTS:
        if amount in one and amount in other and not same(one[amount], other[amount]):
            raise Refused(f"{a.path} and {b.path} did not do the same work: {amount} of "
                          f"samples/{name} is {one[amount]:.9g} and {other[amount]:.9g}")


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


def print_differing_keys(a, b):
    keys_a, keys_b = a.config(), b.config()
    for key in sorted(keys_a.keys() | keys_b.keys()):
        one, other = (keys.get(key, "(none)") for keys in (keys_a, keys_b))
        if one != other:
            print(f"  {key}: {one} -> {other}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("a", metavar="A.h5", help="the reference")
    parser.add_argument("b", metavar="B.h5", help="what is judged")
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
    a, b = Result(options.a), Result(options.b)
    refuse_other_work(a, b)
    print(f"# A {options.a}  {a.verdict}\n# B {options.b}  {b.verdict}")
    print_differing_keys(a, b)
    invalid = [one.path for one in (a, b) if one.verdict == "INVALID"]
    if invalid and not (options.equal_loss or options.equal_state):
        raise Refused(f"{invalid[0]}: is INVALID; --equal-loss or --equal-state look for where it "
                      "differs")
    words = [] if invalid else compare_samples(a, b, options.skip, options.tolerance)
    equal = [compare_loss(a, b, name) for name in ("train/loss", "train/val_loss")]
    same_state = compare_states(a, b)
    if not words and equal == [None, None]:
        raise Refused(f"{options.a} and {options.b} have no samples and no losses in common")
    if options.equal_loss and (False in equal or equal == [None, None]):
        return 1
    if options.equal_state and not same_state:
        return 1
    return 1 if "slower" in words else 0


if __name__ == "__main__":
    run(main)
