"""The short table of runs that differ in some keys: each beside the one that is nearest to the
defaults, of one deck, batch and number of ranks."""

import numpy as np

from stowage_results.deck_defaults import defaults, equal
from stowage_results.result_files import text
from stowage_results.tables.cells import (GPU, digits, gpu_of, mark, metric, name_of, ranks_of,
                                          set_cell, table)
from stowage_results.tables.train_tables import of_one_run, timed_steps

SHOWN_KEYS = 2  # that a row names; others are counted
# What such a key says trains nothing else: names, how long, what is kept and checked.
ASIDE = ("run.name", "run.output", "run.log", "run.seed", "run.steps", "validate.", "checkpoint.",
         "machine.")


def keys_of(result):
    """Keys of the deck that decide what a step does, without those at their defaults."""
    known = defaults()
    return {key: str(value) for key, value in result.config().items()
            if not key.startswith(ASIDE) and not (key in known and equal(value, known[key]))}


class Variant:
    """Runs of the same keys: one, or several, as of other seeds."""

    def __init__(self, sets):
        self.sets, self.first = sets, sets[0]
        self.keys = keys_of(self.first)

    def name(self):
        more = len(self.sets) - 1
        return set_cell(self.first) + (f" and {more} more" if more else "")

    def rate(self):
        """Tokens/s of a single run: of several it is not one figure."""
        return metric(self.first, "train/tokens_per_s")[0] if len(self.sets) == 1 else np.nan

    def loss(self):
        values = [metric(one, "train/loss")[0] for one in self.sets]
        if len(values) == 1:
            return f"{values[0]:.4f}" if np.isfinite(values[0]) else ""
        return f"{np.mean(values):.4f} ({min(values):.4f} .. {max(values):.4f})"


def groups(results):
    """Variants of each deck, batch and number of ranks, the one nearest to the defaults first."""
    found = {}
    for one in sorted(results, key=name_of):
        tokens = int(one.key("train.global_batch_size")) * int(one.key("train.seq_length"))
        same = found.setdefault((text(one.key("run.name")), tokens, ranks_of(one), gpu_of(one)), {})
        same.setdefault(tuple(sorted(keys_of(one).items())), []).append(one)
    for work, sets in sorted(found.items()):
        yield work, sorted(map(Variant, sets.values()), key=lambda one: (len(one.keys),
                                                                         name_of(one.first)))


def differing(base, other):
    """The keys in which a variant differs from the first, with their values there."""
    known = defaults()
    keys = sorted(key for key in base.keys.keys() | other.keys.keys()
                  if base.keys.get(key) != other.keys.get(key))
    words = [f"`{key}` {other.keys.get(key, known.get(key, 'left out'))}" for key in keys]
    more = len(words) - SHOWN_KEYS
    return ", ".join(words[:SHOWN_KEYS]) + (f" and {more} more" if more > 0 else "")


def beside(base, other):
    """How many times as fast, if both are of one run."""
    if other is base or not of_one_run(base.first, other.first):
        return ""
    ratio = other.rate() / base.rate()
    return f"{ratio:.2f}x" if np.isfinite(ratio) else ""


def variants(results):
    """The short table of training runs; nothing without any."""
    rows = []
    for (deck, tokens, ranks, gpu), found in groups(results):
        base = found[0]
        for one in found:
            rate, memory = one.rate(), metric(one.first, "train/peak_device_bytes")[0]
            same_steps = len(timed_steps(one.first)) == len(timed_steps(base.first))
            rows.append((gpu, deck, f"{tokens}, {ranks}", one.name(),
                         "" if one is base else differing(base, one),
                         f"{digits(1e-3 * rate)} k" if np.isfinite(rate) else "",
                         beside(base, one), f"{memory / 2**30:.1f}",
                         one.loss() if same_steps else ""))
    if not rows:
        return []
    return ["Training runs, each beside the first of its deck, batch and ranks.", "",
            "- differs in: keys and their values, which the first has otherwise;",
            "- as fast: tokens/s beside the first's, of sets of one run alone;",
            "- loss: mean of the last tenth of the steps, of several runs of the same keys, as of "
            "other seeds, their mean and range; left out after another number of steps.",
            ""] + table(
        (GPU, "deck", "tokens, ranks", "set", "differs in", "tokens/s", "as fast", "memory GiB",
         "loss"), rows)
