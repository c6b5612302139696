"""The figure of the guide that shows optimizer states with a home on the host."""

from stowage_results.plots.guide_data import read
from stowage_results.plots.svg import BLUE, GOLD, GREEN, GREY, LINE, SOFT, Drawing
from stowage_results.tables.cells import metric

RUNS = (("moe64k_none", "hybrid-moe-2b, on the device"),
        ("moe64k_auto", "hybrid-moe-2b, auto in 40 GiB"),
        ("moe64k_all", "hybrid-moe-2b, all on the host"),
        ("nano9b", "Nemotron Nano 9B v2, auto"),
        ("nano30b", "Nemotron 3 Nano 30B, 3 bytes, auto"))
PARTS = (("persistent_bytes", GREY, "what outlives a step"), ("transient_bytes", BLUE, "transient"),
         ("pinned_bytes", GOLD, "pinned on the host"))
POINTS = (("moe16k_all", "m_bf16", "one microbatch"), ("moe64k_all", "moe64k_none", "four"),
          ("moe64k_auto", "moe64k_none", "four, 9.7 GiB of 22.9"),
          ("moe64k_one_all", "moe64k_none", "one, 85 GiB"))


def value(result, name):
    return metric(result, f"train/{name}")[0]


def states():
    """Where memory is, and what copies of states add to a step."""
    drawing = Drawing(960, 330, "Memory with homes of states, and the time that their copies add")
    draw_homes(drawing)
    draw_added(drawing)
    return drawing.svg()


def draw_homes(drawing):
    drawing.text(24, 34, "Memory of a run on one H200, GiB", 15, bold=True)
    for row, (name, words) in enumerate(RUNS):
        result, = read(f"h200_parts/{name}")
        x, y = 24, 56 + 48 * row
        drawing.text(24, y + 10, words, 12)
        for part, color, _ in PARTS:
            gib = value(result, part) / 2**30
            width = 1.9 * gib
            drawing.rect(x, y + 16, width, 18, fill=color)
            if width > 30:
                drawing.text(x + width / 2, y + 29, f"{gib:.0f}", 11, "middle")
            x += width + (6 if part == "transient_bytes" else 0)
    for x, (_, color, words) in zip((24, 180, 280), PARTS):
        drawing.rect(x, 304, 12, 12, fill=color)
        drawing.text(x + 18, 314, words, 12)


def draw_added(drawing):
    left, right, bottom, top = 560, 900, 270, 70
    drawing.text(510, 34, "hybrid-moe-2b: what states on the host add to a step", 15, bold=True)
    most = 0.5

    def place(tokens, seconds):
        return (left + (right - left) * tokens / 8e4, bottom - (bottom - top) * seconds / most)

    for tenths in range(0, 6):
        y = place(0, 0.1 * tenths)[1]
        drawing.line([(left, y), (right, y)], stroke=LINE, width=1)
        drawing.text(left - 8, y + 4, f"{100 * tenths} ms", 12, "end", fill=SOFT)
    for name, other, words in POINTS:
        away, here = (read(f"h200_parts/{which}")[0] for which in (name, other))
        tokens = int(away.key("train.global_batch_size")) * int(away.key("train.seq_length"))
        added = value(away, "step_time") - value(here, "step_time")
        x, y = place(tokens, added)
        drawing.dot(x, y, fill=GREEN if name.endswith(("auto", "one_all")) else BLUE)
        anchor, right_by, down_by = ("start", 4, 18) if tokens < 4e4 else ("end", -10, 4)
        drawing.text(x + right_by, y + down_by, f"{words}: {1e3 * added:.0f} ms", 12, anchor)
    for tokens in (16384, 65536):
        drawing.text(place(tokens, 0)[0], bottom + 18, f"{tokens:,}", 12, "middle", fill=SOFT)
    drawing.text((left + right) / 2, bottom + 42, "tokens of a step; labels: its microbatches, and "
                 "the room of windows", 12, "middle", fill=SOFT)
