"""Figures of the guide that show published sets: draw_guide.py lists them."""

import pathlib

import numpy as np

from stowage_results.plots.svg import (BLUE, GOLD, GREEN, GREY, LINE, PALE, RED, SOFT, Drawing)
from stowage_results.result_files import Result, text
from stowage_results.tables import peer_times
from stowage_results.tables.cells import metric, tell_apart
from stowage_results.tables.headline import training_runs
from stowage_results.tables.scaling import points

PUBLISHED = pathlib.Path(__file__).resolve().parents[3] / "published"
MACHINES = (("H200", "h200x4", BLUE), ("H100", "h100x4", GREEN))


def read(*names):
    results = [Result(PUBLISHED / f"{name}.h5") for name in names]
    tell_apart(results)
    return results


def thousands(value):
    return f"{1e-3 * value:.0f} k" if value >= 1e5 else f"{1e-3 * value:.1f} k"


def overview():
    """What a newcomer asks first: how quick beside PyTorch, and how far it carries."""
    drawing = Drawing(960, 350, "Tokens per second beside PyTorch, and on one to four GPUs")
    draw_beside_pytorch(drawing)
    draw_over_gpus(drawing)
    return drawing.svg()


def draw_beside_pytorch(drawing):
    sets = read(*(f"h200_pytorch/train_{deck}" for deck in
                  ("dense_124m", "hybrid_dense_1b", "hybrid_moe_2b")))
    runs = training_runs(sets, peer_times.read(sets))
    drawing.text(24, 34, "Training on one H200 in bf16: tokens/s", 15, bold=True)
    for index, run in enumerate(runs):
        top, theirs = 58 + 88 * index, run.peer["tokens_per_s"]
        drawing.text(24, top + 12, run.deck)
        drawing.text(440, top + 12, f"{run.tokens_per_s / theirs:.2f}x", 14, "end", bold=True)
        for row, (who, rate, color) in enumerate((("Stowage", run.tokens_per_s, BLUE),
                                                  ("PyTorch", theirs, GREY))):
            y = top + 20 + 25 * row
            drawing.rect(94, y, 220 * rate / theirs, 20, fill=color)
            drawing.text(24, y + 15, who, 12, fill=SOFT)
            drawing.text(102 + 220 * rate / theirs, y + 15, thousands(rate), 12)
    implementation = runs[-1].peer["implementation"].split(",")
    drawing.text(24, 335, f"{implementation[0]}, torch.compile, with Mamba's Triton kernels", 12,
                 fill=SOFT)


def draw_over_gpus(drawing):
    left, right, bottom, top = 560, 880, 290, 60
    drawing.text(510, 34, "hybrid-dense-1b over GPUs of one host: tokens/s", 15, bold=True)
    most = 4e5

    def place(gpus, rate):
        return left + (right - left) * (gpus - 1) / 3.5, bottom - (bottom - top) * rate / most

    for rate in (0, 1e5, 2e5, 3e5, 4e5):
        y = place(1, rate)[1]
        drawing.line([(left - 12, y), (right, y)], stroke=LINE, width=1)
        drawing.text(left - 18, y + 4, thousands(rate) if rate else "0", 12, "end", fill=SOFT)
    for gpus in (1, 2, 4):
        drawing.text(place(gpus, 0)[0], bottom + 20, f"{gpus}", 12, "middle", fill=SOFT)
    for name, folder, color in MACHINES:
        curve = {point["ranks"]: metric(result, f"scaling/{point['path']}/tokens_per_s")[0]
                 for result in read(f"{folder}/data_dense_1b") for point in points(result)
                 if point["mode"] == "off"}
        least = curve[1]
        drawing.line([place(1, least), place(4, 4 * least)], stroke=color, width=1, dashes="5 4")
        drawing.line([place(*pair) for pair in curve.items()], stroke=color, width=2.5)
        for pair in curve.items():
            drawing.dot(*place(*pair), fill=color)
        x, y = place(4, curve[4])
        y += -10 if name == MACHINES[0][0] else 18
        drawing.text(x + 10, y, f"{name}: {thousands(curve[4])}", 12, fill=color, bold=True)
        drawing.text(x + 10, y + 14, f"{100 * curve[4] / (4 * least):.1f} %", 12, fill=color)
    drawing.text((left + right) / 2, bottom + 45, "GPUs, each with the same batch; dashed: all of "
                 "one GPU's rate", 12, "middle", fill=SOFT)


PLANS = (("keep", "everything stays", GREY), ("free", "what can leave for nothing", BLUE),
         ("auto_75", "a budget of 3/4", BLUE), ("auto_55", "a budget of 55 %", BLUE),
         ("auto_recompute", "least memory", BLUE))
LENGTHS = (("longest_kept", "everything stays", GREY),
           ("longest_recompute", "computed again", GOLD),
           ("longest_auto", "offload.policy = auto", BLUE))


def memory():
    """What plans of one step need and take, and what fits into one GPU."""
    drawing = Drawing(960, 330, "Memory and time of plans of one step; longest sequences")
    draw_plans(drawing)
    draw_lengths(drawing)
    return drawing.svg()


def draw_plans(drawing):
    result, = read("h200/offload_hybrid_dense_1b")
    drawing.text(24, 34, "One step of hybrid-dense-1b, one H200: working memory", 15, bold=True)
    drawing.text(488, 56, "step", 12, "end", fill=SOFT)
    for row, (plan, words, color) in enumerate(PLANS):
        node = result.file[f"samples/offload/{plan}/off"]
        gib, y = node.attrs["transient_bytes"] / 2**30, 66 + 46 * row
        drawing.text(24, y + 12, words, 12)
        drawing.rect(24, y + 18, 22 * gib, 18, fill=color)
        drawing.text(30 + 22 * gib, y + 32, f"{gib:.1f} GiB", 12)
        time_ms = 1e3 * np.median(result.array(f"samples/offload/{plan}/off"))
        drawing.text(488, y + 32, f"{time_ms:.0f} ms", 12, "end")
    drawing.text(24, 314, "Losses and parameters have the same bits in all five.", 12, fill=SOFT)


def draw_lengths(drawing):
    drawing.text(540, 34, "The longest sequence that one H200 trains on", 15, bold=True)
    for row, (name, words, color) in enumerate(LENGTHS):
        result, = read(f"h200/{name}")
        tokens, y = int(result.key("train.seq_length")), 66 + 76 * row
        drawing.text(540, y + 12, words, 12)
        drawing.rect(540, y + 18, 270 * tokens / 1e6, 26, fill=color)
        drawing.text(548 + 270 * tokens / 1e6, y + 36, f"{tokens:,} tokens", 12)
    drawing.text(540, 314, "Parameters, gradients and AdamW's states included.", 12, fill=SOFT)


TREE = (  # of a set: what stands there, and for whom
    ("config", "the deck as given and as resolved", "run it again: --from SET", BLUE),
    ("provenance", "commit, build, ranks, GPUs, libraries", "whose machine, which software", BLUE),
    ("samples", "every timed step, op or exchange, raw", "all figures are made again of these",
     GREEN),
    ("series", "losses, rates, memory, power by step", "plot.py", GREEN),
    ("metrics", "medians with 95 % intervals, by name", "table.py, compare.py", GREEN),
    ("offload", "what each module's tensors did", "how the step fitted", GREEN),
    ("ceilings", "limits of the machine, by size", "of stowage_ceilings alone", GREEN),
    ("validation", "checks: value, bound, passed; state digest", "the verdict follows", RED),
    ("files", "files that the run read, with SHA-256", "deck, data, checkpoint", GREY))


def result_set():
    """Groups of a training run's set, in the order in which a reader asks."""
    result, = read("h200_pytorch/train_hybrid_dense_1b")
    groups = {name for name in result.file}
    if groups != {name for name, *_ in TREE}:
        raise ValueError(f"a set has {sorted(groups)}, the figure has another list")
    drawing = Drawing(960, 88 + 34 * len(TREE), "Anatomy of a result set")
    shown = [f"{key} = {text(result.file.attrs[key])}" for key in
             ("schema_version", "driver", "git_describe", "verdict")]
    drawing.box(24, 16, 912, 38, GREY)
    drawing.text(38, 40, "train_hybrid_dense_1b.h5", 14, bold=True)
    drawing.text(922, 40, "    ".join(shown), 12, "end", mono=True)
    for row, (name, words, use, color) in enumerate(TREE):
        y = 66 + 34 * row
        drawing.line([(40, 54), (40, y + 14), (62, y + 14)], stroke=LINE)
        drawing.rect(62, y, 150, 28, fill=PALE[color], stroke=color, radius=5)
        drawing.text(74, y + 19, f"/{name}", 13, mono=True)
        drawing.text(228, y + 19, words)
        drawing.text(922, y + 19, use, 12, "end", fill=SOFT)
    return drawing.svg()


def quickstart():
    """What plot.py shows of the quick start: losses in their bands, and the memory of a step."""
    result, = read("h200/quickstart_fp32_host")
    drawing = Drawing(960, 320, "The quick start: losses, and the memory of one step")
    left, right, bottom, top = 64, 470, 262, 56
    drawing.text(24, 34, "Loss by step, in nats a token", 15, bold=True)
    steps, losses = result.series("train/loss")
    most = 6.0

    def place(step, loss):
        return left + (right - left) * step / steps[-1], bottom - (bottom - top) * loss / most

    for loss in range(0, 7, 2):
        drawing.line([place(0, loss), place(steps[-1], loss)], stroke=LINE, width=1)
        drawing.text(left - 10, place(0, loss)[1] + 4, f"{loss}", 12, "end", fill=SOFT)
    for step in range(0, int(steps[-1]) + 1, 50):
        drawing.text(place(step, 0)[0], bottom + 18, f"{step}", 12, "middle", fill=SOFT)
    drawing.line([place(*pair) for pair in zip(steps, losses)], stroke=BLUE, width=1.5)
    for step, loss in zip(*result.series("train/val_loss")):
        drawing.dot(*place(step, loss), fill=RED)
    for name, (low, high) in result.expectations().items():
        x, y = place(int(name.rpartition("_")[2]), high)
        drawing.rect(x - 4, y - 5, 8, 10 + (bottom - top) * (high - low) / most, fill="none",
                     stroke=GREEN)
    for x, color, words in ((80, BLUE, "training"), (180, RED, "held out"),
                            (280, GREEN, "bands that the deck expects")):
        drawing.rect(x, 296, 12, 12, fill=color)
        drawing.text(x + 18, 306, words, 12)
    draw_live_bytes(drawing, result)
    return drawing.svg()


def draw_live_bytes(drawing, result):
    left, right, bottom, top = 570, 930, 262, 56
    drawing.text(530, 34, "Live memory at each operation of a step", 15, bold=True)
    ops, values = result.series("memory/transient")
    most = max(values)
    shape = [(left + (right - left) * index / len(ops), bottom - (bottom - top) * value / most)
             for index, value in enumerate(values)]
    drawing.line(shape, stroke=BLUE)
    drawing.line([(left, bottom), (right, bottom)], stroke=SOFT, width=1)
    drawing.text(left - 8, top + 4, f"{most / 2**20:.1f} MiB", 12, "end", fill=SOFT)
    drawing.text(left - 8, bottom + 4, "0", 12, "end", fill=SOFT)
    for share, words in ((0, "first microbatch"), (0.5, "those between"),
                         (1, "last, optimizer")):
        anchor = ("start", "middle", "end")[int(2 * share)]
        drawing.text(left + (right - left) * share, bottom + 18, words, 12, anchor, fill=SOFT)
