"""The bound of each check: what a deck, a type or the check's own sense makes of it. A bound that
was widened by hand says nothing, however well the value keeps it."""

import math
import sys

NONE = -math.inf
LARGEST_ERROR = 1 / 32  # of an operator: the widest bound is six roundings of bf16, 2^-8 each
ALWAYS = {  # in every driver that has them
    "copies_that_differ": (0, 0), "other_states": (0, 0), "other_bits": (0, 0),
    "replayed_step": (0, 0), "link_round_trip": (0, 0), "gradients": (NONE, 1),
    "finite_loss": (NONE, sys.float_info.max), "finite_val_loss": (NONE, sys.float_info.max),
    "plans": (1, math.inf), "free_moves": (0.9, math.inf), "val_loss_falling": (0, math.inf)}
OF_KEYS = {"skipped_steps": "validate.most_skipped_steps", "grad_norm": "validate.grad_norm_below",
           "loss": "validate.loss_below", "val_loss": "validate.val_loss_below"}
RATIOS = {"ratio": 1.2, "error_of_ours": 1.5}  # of an error to a peer's, of a peer's to ours
MAY_BE_NEGATIVE = ("val_loss_falling",)


def bound_due(result, name, driver):
    """(low, high) that a check must have; None: it depends on what this does not know."""
    if name in ALWAYS:
        return ALWAYS[name]
    if name in OF_KEYS:
        high = result.config().get(OF_KEYS[name])
        return None if high is None else (NONE, float(high))
    if name in result.expectations():
        return result.expectations()[name]
    last = name.rpartition(".")[2]
    if driver == "bench_comm" and last == "wrong":
        return 0, 0
    if driver == "bench_kernels" and last in RATIOS:
        return NONE, RATIOS[last]
    if name == "points" and result.verdict != "INVALID":  # which a stopped curve can be, too
        return (0 if result.verdict == "STOPPED" else 1), math.inf
    return None


def check_bounds(result, checks, driver):
    """@param checks the attributes of each check, by its name"""
    problems = []
    for name, check in checks.items():
        where, bound = f"/validation/{name}", (float(check["low"]), float(check["high"]))
        due = bound_due(result, name, driver)
        if due is not None and bound != tuple(map(float, due)):
            problems.append(f"{where}: its bound is {bound[0]:.9g} .. {bound[1]:.9g}, that of this "
                            f"check is {float(due[0]):.9g} .. {float(due[1]):.9g}")
        if due is None and driver == "bench_kernels" and bound[1] > LARGEST_ERROR:
            problems.append(f"{where}: {bound[1]:.9g} is no bound of an operator's error; none is "
                            f"above {LARGEST_ERROR:g}")
        if float(check["value"]) < 0 and name not in MAY_BE_NEGATIVE:
            problems.append(f"{where}: value is negative: {float(check['value']):.9g}")
    return problems
