"""The table of the machine on a page: its boards and software, as the sets have them."""

import collections

from stowage_results.tables.cells import code, gpu_of, table
from stowage_results.result_files import text

NAMES = {"built_with_cudnn": "cuDNN", "compiler": "host compiler", "cublas": "cuBLAS",
         "cuda_compiler": "device compiler", "mpi": "MPI", "nccl": "NCCL"}


def facts_of(result):
    """[(what, value)] of a set; what nobody knows is left out."""
    found = []
    for rank in result.array("provenance/system/ranks"):
        has = {name: text(rank[name]) if isinstance(rank[name], bytes) else rank[name]
               for name in rank.dtype.names}
        found += [("GPU", has["gpu_name"]), ("driver", has["gpu_driver"]),
                  ("power limit", has["gpu_power_limit_w"] and f"{has['gpu_power_limit_w']:.0f} W"),
                  ("highest clock",
                   has["gpu_clock_hz"] and f"{1e-6 * has['gpu_clock_hz']:.0f} MHz"),
                  ("modes", has["gpu_mode"]),
                  ("NVLinks of a GPU", str(has.get("gpu_nvlinks") or "")),
                  ("CPU", has["cpu_model"]), ("CPUs of a rank", str(has["cpus"])),
                  ("kernel", has["kernel"])]
    software = result.file["provenance/software"].attrs
    found += [(name, text(software[key]).split(", ")[0]) for key, name in NAMES.items()
              if key in software]
    return [(what, value) for what, value in found if value]


def machine(results):
    """One column for each kind of GPU; of several values the most frequent first. Commits stand
    with the number of their sets."""
    kinds = sorted({gpu_of(one) for one in results} - {"none"}) or ["none"]
    columns = []
    for kind in kinds:
        sets = [one for one in results if gpu_of(one) == kind]
        counts = collections.defaultdict(collections.Counter)
        for what, value in (fact for one in sets for fact in facts_of(one)):
            counts[what][value] += 1
        commits = collections.Counter(code(text(one.file.attrs["git_describe"])) for one in sets)
        columns.append({what: ", ".join(value for value, _ in ordered(found))
                        for what, found in counts.items()})
        columns[-1]["commit (sets)"] = ", ".join(f"{commit} ({sets})"
                                                 for commit, sets in ordered(commits))
    whats = list(dict.fromkeys(what for column in columns for what in column))
    return ["## Machine", ""] + table(("", *(kind or "all sets" for kind in kinds)), [
        (what, *(column.get(what, "") for column in columns)) for what in whats])


def ordered(counts):
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
