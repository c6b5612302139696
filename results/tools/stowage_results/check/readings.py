"""Readings that have no samples, beside what else of a training run must agree with them: memory
with the plan and the series, energy with the board's power, times with each other."""

import numpy as np

# Energy of all boards over the power of rank 0's: ranks differ, and so do moments of a step.
FAR_POWER, LONG_RUN_S = 2.0, 5.0


def reading(result, tag):
    found = result.array(f"metrics/{tag}")
    return 0.0 if found is None else float(found)


def check_memory(result):
    """The peak is that of the series, and holds all that the plan lays out."""
    peak, series = reading(result, "train/peak_device_bytes"), result.series("train/mem_device")
    problems = []
    if series is not None and peak != series[1].max():
        problems.append(f"is {peak:.9g}, /series/train/mem_device says {series[1].max():.9g}")
    parts = sum(reading(result, tag) for tag in
                ("train/persistent_bytes", "train/transient_bytes", "ckpt/copy_bytes"))
    if peak < parts:
        problems.append(f"is {peak:.9g}, persistent and transient bytes and copies for checkpoints "
                        f"are {parts:.9g}")
    return [f"/metrics/train/peak_device_bytes: {problem}" for problem in problems]


def limit_w(result):
    """What the boards of all ranks may use; 0: not known."""
    ranks = result.file["provenance/system/ranks"]
    if "gpu_power_limit_w" not in ranks.dtype.names:
        return 0.0
    return float(np.nansum(ranks["gpu_power_limit_w"]))


def check_energy(result, times):
    """Power is rank 0's board at the end of each step, the energy that of all boards from the first
    step to the last, evaluations and digests between them too. A step may end in copies that the
    board waits for, with little power; no more than the boards' limits allow is used anyway."""
    power = result.series("gpu/power")
    if (power is None or not np.all(np.isfinite(power[1])) or times.sum() < LONG_RUN_S
            or "metrics/energy/j_per_token" not in result.file):
        return []
    energy_j = reading(result, "energy/j_per_token") * len(times) * float(
        result.attribute("samples/train/step_time", "tokens"))
    watts = int(result.file["provenance/run"].attrs["ranks"]) * float(np.median(power[1]))
    least_j = watts * float(times.sum())
    from_first_s = reading(result, "train/wall_time") - reading(result, "train/setup_time")
    most_j = max(FAR_POWER * max(least_j, watts * from_first_s), limit_w(result) * from_first_s)
    if least_j / FAR_POWER <= energy_j <= most_j:
        return []
    return [f"/metrics/energy/j_per_token: makes {energy_j:.6g} J of the steps, their time at the "
            f"board's median power {least_j:.6g} J"]


def check_times(result, times):
    wall, setup = reading(result, "train/wall_time"), reading(result, "train/setup_time")
    if setup + times.sum() <= 1.01 * wall:  # by two clocks
        return []
    return [f"/metrics/train/wall_time: is {wall:.9g} s, set-up and steps take "
            f"{setup + times.sum():.9g} s"]


def check_readings(result):
    steps = result.series("train/step_time")
    if steps is None or "metrics/train/peak_device_bytes" not in result.file:
        return []
    return (check_memory(result) + check_energy(result, steps[1]) + check_times(result, steps[1]))
