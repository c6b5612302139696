"""Tables of kernels beside their peers and limits."""

from stowage_results.tables.cells import (GPU, digits, gpu_of, interval, metric, percent, set_cell,
                                          table)
from stowage_results.check.official import ABOVE_COPY, ABOVE_PRODUCTS, is_checked
from stowage_results.tables.peer_times import of_board, of_case
from stowage_results.result_files import text

YARDSTICK = "copy"  # an implementation that is a column of the others
PEERS = ("cublas", "cudnn", "cuda")  # libraries, by what implementations of theirs begin with
OF_LIBRARY = ("product", "linear_")  # operators whose own implementation is a product of cuBLASLt


FAMILIES = (  # of operators, by what their names begin with; the last takes the rest
    ("attention", ("attention",)),
    ("scan and convolution", ("ssd", "conv1d", "mixer")),
    ("gated delta rule", ("gated_delta", "channel_delta", "gated_head_norm")),
    ("experts", ("grouped", "moe", "router", "permute_index", "gather_rows", "combine_rows")),
    ("head", ("linear_cross_entropy", "softmax_gradient", "embedding")),
    ("products", ("product", "linear_")),
    ("norms, activations, optimizer", ("",)))
ABOUT = (
    "Implementations of a shape ran in turn, sample by sample, with a cold L2. Limit: the "
    "time that the binding ceiling allows / median time. Copy: median time of a plain "
    "copy kernel that reads and writes as many bytes, in turn with it / median time. "
    "Peer: median time of the fastest library's / that of ours, marked `=` where ours is "
    "the same library by another choice of its algorithms; other rows are parts or forms "
    "of ours. Error: the largest of the row's relative errors against fp64. `ERROR` in "
    "limit or copy: a rate above a ceiling, which is not this row's, or a cost that "
    "counts too much.")


def family_of(operator):
    return next(name for name, starts in FAMILIES if operator.startswith(starts))


def cases(result):
    """{operator/shape: implementations} of a set."""
    found = {}
    for path in result.datasets("samples/kernels"):
        case, _, implementation = path.rpartition("/")
        found.setdefault(case, []).append(implementation)
    return found


def times_of(result, case, implementations):
    """Median seconds of each implementation of a case."""
    return {one: metric(result, f"kernels/{case}/{one}/time")[0] for one in implementations}


def of_family(results, family):
    rows = []
    for result in results:
        for case, implementations in cases(result).items():
            if family_of(case) != family:
                continue
            times = times_of(result, case, implementations)
            for one in sorted(implementations, key=lambda i: (not i.startswith("ours"), i)):
                if one != YARDSTICK:
                    rows.append(kernel_row(result, case, one, times))
    return table((GPU, "operator", "shape", "implementation", "by", "error", "median us",
                  "95 % interval us", "TFLOP/s", "GB/s", "limit", "copy", "peer"),
                 rows) if rows else []


def by_scripts(results, family, peers):
    """Peers that scripts timed, beside the sets of the same work."""
    rows = []
    for result in results:
        for case, implementations in cases(result).items():
            operator, _, shape = case.partition("/")
            if family_of(operator) != family or "ours" not in implementations:
                continue
            ours_s = times_of(result, case, ["ours"])["ours"]
            flops = result.file[f"samples/kernels/{case}/ours"].attrs["flops"]
            for peer in of_case(of_board(peers, result), operator, shape, flops):
                rates = [digits(1e-12 * flops / time_s) if flops > 0 else ""
                         for time_s in (ours_s, peer["median_s"])]
                rows.append((gpu_of(result), operator, shape, set_cell(result),
                             digits(1e6 * ours_s), rates[0], peer["implementation"],
                             f"`{peer['file']}`", digits(1e6 * peer["median_s"]), rates[1],
                             f"{peer['median_s'] / ours_s:.2f}x"))
    if not rows:
        return []
    return ["Beside peers that scripts timed, each alone and not in turn with ours:", ""] + table(
        (GPU, "operator", "shape", "set", "ours us", "TFLOP/s", "peer", "timed in", "peer us",
         "TFLOP/s", "peer / ours"), rows)


def kernels(results, peers=()):
    """(family, lines) of each family of operators that the sets have."""
    found = [(family, of_family(results, family) + by_scripts(results, family, peers))
             for family, _ in FAMILIES]
    return [(family, lines) for family, lines in found if lines]


def library_of(result, case, one):
    """Library, version and algorithm behind an implementation; empty for kernels of ours."""
    stored = result.file[f"samples/kernels/{case}/{one}"].attrs.get("library")
    if stored is not None:
        return text(stored)
    if one.startswith("cublas") or (one == "ours" and case.startswith(OF_LIBRARY)):
        return text(result.attribute("provenance/software", "cublas"))
    cudnn = result.file["provenance/software"].attrs.get("built_with_cudnn")
    if one.startswith("cudnn") and cudnn is not None:
        return f"cuDNN, built with {text(cudnn)}"
    return f"{one.partition('_')[0]}, version not stored" if one.startswith(PEERS) else ""


def error_of(result, case, one):
    attributes = result.file[f"samples/kernels/{case}/{one}"].attrs
    return f"{float(attributes['error']):.1e}" if is_checked(attributes) else "not checked"


def first_words(library):
    """The name and the version, without the algorithm."""
    return library.partition(",")[0]


def kernel_row(result, case, one, times):
    base = f"kernels/{case}/{one}"
    operator, _, shape = case.partition("/")
    time_s, bounds = metric(result, f"{base}/time")
    share, of_copy = (metric(result, f"{base}/{one_of}")[0]
                      for one_of in ("pct_ceiling", "pct_copy"))
    peers = {other: time for other, time in times.items() if other.startswith(PEERS)}
    peer, library = "", library_of(result, case, one)
    if one.startswith("ours") and peers:
        best = min(peers, key=peers.get)
        same = library and first_words(library) == first_words(library_of(result, case, best))
        peer = f"{peers[best] / time_s:.2f}x{' =' if same else ''}"
    return (gpu_of(result), operator, shape, one, library, error_of(result, case, one),
            digits(1e6 * time_s), interval(bounds, 1e6),
            digits(1e-12 * metric(result, f"{base}/flops_per_s")[0]),
            digits(1e-9 * metric(result, f"{base}/bytes_per_s")[0]),
            percent(share, ABOVE_PRODUCTS), percent(of_copy, ABOVE_COPY), peer)
