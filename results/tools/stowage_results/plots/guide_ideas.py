"""Figures of the guide that show an idea by its definition: draw_guide.py lists them."""

import ast
import itertools
import pathlib
import re

from stowage_results.plots.svg import (BLUE, GOLD, GREEN, GREY, LINE, PALE, RED, SOFT, Drawing)
from stowage_results.tables.scaling import AXES

SOURCE = pathlib.Path(__file__).resolve().parents[4]
FIGURES, LINT = SOURCE / "docs" / "figures", SOURCE / "ctest" / "lint" / "lint.py"
PLANS, COLUMNS = FIGURES / "plans.txt", 96  # which a golden test holds to stowage_plan
STAGES = (  # title, what it is, how to look at it
    ("deck", ("model, batch,", "memory, layout"), "--print-config", GREY),
    ("program", ("every op of a step", "on named tensors"), "stowage_plan --tensors", BLUE),
    ("plan", ("keep, offload, rerun;", "places and queues"), "stowage_plan DECK", BLUE),
    ("proof", ("no byte is lost or", "read too early"), "refused by name", RED),
    ("run", ("the same ops with", "the same bits"), "stowage_train DECK", GREEN),
    ("result set", ("samples, metrics,", "verdict"), "validate.py SET", GREEN))


def deck_to_result():
    drawing = Drawing(960, 190, "From a deck to a result set")
    for index, (title, words, look, color) in enumerate(STAGES):
        x = 18 + 157 * index
        drawing.box(x, 40, 140, 86, color)
        drawing.text(x + 70, 64, title, 15, "middle", bold=True)
        for line, part in enumerate(words):
            drawing.text(x + 70, 88 + 17 * line, part, 12, "middle")
        drawing.text(x + 70, 150, look, 11, "middle", fill=SOFT, mono=True)
        if index + 1 < len(STAGES):
            drawing.arrow((x + 140, 83), (x + 156, 83))
    for first, last, words in ((0, 0, "you write"), (1, 3, "before step 1, once"),
                               (4, 4, "every step"), (5, 5, "you publish")):
        left, right = 18 + 157 * first, 18 + 157 * last + 140
        drawing.line([(left, 34), (left, 28), (right, 28), (right, 34)], stroke=LINE)
        drawing.text((left + right) / 2, 20, words, 12, "middle", fill=SOFT)
    drawing.text(18, 178, "below: the command or option that shows it", 11, fill=SOFT)
    return drawing.svg()


EXCHANGES = {  # axis: what its ranks share, what they exchange
    "tensor": ("every layer's weights", "rows of activations, in every layer", RED),
    "context": ("one sequence's tokens", "keys and values, or heads; Mamba's states", GOLD),
    "expert": ("the experts of MoE layers", "rows of tokens to their experts and back", GREEN),
    "pipeline": ("the layers, in stages", "a stage's output and its gradient", BLUE),
    "data": ("nothing: other sequences", "sums of gradients; ZeRO: parameters too", GREY)}
SHOWN = {"tensor": 2, "pipeline": 2, "data": 2}  # of 8 ranks


def coordinates(rank):
    """Of a rank by axis: neighbours differ in the first axis of AXES."""
    found = {}
    for axis in AXES:
        found[axis] = rank % SHOWN.get(axis, 1)
        rank //= SHOWN.get(axis, 1)
    return found


def grid():
    """Eight ranks and who exchanges with whom; what each axis shares."""
    drawing = Drawing(960, 330, "The process grid, and what each axis exchanges")
    drawing.text(24, 32, "8 ranks: tensor 2, pipeline 2, data 2", 15, bold=True)

    def corner(rank):
        at = coordinates(rank)
        return 40 + 90 * at["tensor"] + 210 * at["data"], 64 + 120 * at["pipeline"]

    for rank in range(8):
        x, y = corner(rank)
        at = coordinates(rank)
        for axis, size in SHOWN.items():
            if at[axis] + 1 < size:
                other = next(one for one in range(8)
                             if coordinates(one) == {**at, axis: at[axis] + 1})
                to_x, to_y = corner(other)
                color = EXCHANGES[axis][2]
                if axis == "data":
                    drop = 50 + 14 * at["tensor"]
                    drawing.line([(x + 35, y + 42), (x + 35, y + drop + 4),
                                  (to_x + 35, to_y + drop + 4), (to_x + 35, to_y + 42)], color, 2)
                elif axis == "pipeline":
                    drawing.line([(x + 12, y + 42), (to_x + 12, to_y)], color, 2.5)
                else:
                    drawing.line([(x + 70, y + 20), (to_x, to_y + 20)], color, 4)
    for rank in range(8):
        x, y = corner(rank)
        drawing.rect(x, y, 70, 42, fill=PALE[GREY], stroke=SOFT, radius=5)
        drawing.text(x + 35, y + 26, f"rank {rank}", 13, "middle")
    drawing.text(24, 300, "Neighbours differ in the tensor axis first: small groups share a host.",
                 12, fill=SOFT)
    drawing.text(492, 32, "axis", 12, fill=SOFT)
    drawing.text(580, 32, "its ranks share", 12, fill=SOFT)
    drawing.text(740, 32, "they exchange", 12, fill=SOFT)
    for row, axis in enumerate(AXES):
        shared, exchanged, color = EXCHANGES[axis]
        y = 44 + 50 * row
        drawing.rect(484, y, 6, 34, fill=color)
        drawing.text(498, y + 21, axis, 13, bold=True)
        drawing.text(580, y + 21, shared, 12)
        for line, part in enumerate(halves(exchanged)):
            drawing.text(740, y + 14 + 15 * line, part, 12)
    return drawing.svg()


def halves(words):
    """Words in two lines of about the same length."""
    parts = words.split()
    first = next(n for n in range(len(parts) + 1) if 2 * len(" ".join(parts[:n])) >= len(words))
    return " ".join(parts[:first]), " ".join(parts[first:])


def passes_of(rank, ranks, microbatches, zero_bubble):
    """[(letter, microbatch)] of a rank in their order, as layers/schedule/pipeline.cpp makes them:
    forward F, backward B, gradients of weights W. 1F1B does W at once; with zero bubble those of
    `rank` microbatches are put off."""
    ahead, found, weights = ranks - 1 - rank, [], 0
    for number in range(microbatches + ahead):
        if number < microbatches:
            found.append(("F", number))
        if number >= ahead:
            found.append(("B", number - ahead))
            if number - ahead - weights >= (rank if zero_bubble else 0):
                found.append(("W", weights))
                weights += 1
    return found + [("W", number) for number in range(weights, microbatches)]


def schedule(ranks, microbatches, zero_bubble):
    """[(rank, letter, microbatch, begin)] of equal stages, all of whose passes take one unit. In
    1F1B a backward is handed on with its gradients of weights."""
    waiting = [passes_of(rank, ranks, microbatches, zero_bubble) for rank in range(ranks)]
    given, found, now = {}, [], 0
    for number in range(microbatches):
        given["F", 0, number] = given["B", ranks - 1, number] = 0
    while any(waiting):
        handed = []
        for rank, passes in enumerate(waiting):
            if not passes or (passes[0][0] != "W" and
                              given.get((passes[0][0], rank, passes[0][1]), now + 1) > now):
                continue
            letter, number = passes.pop(0)
            found.append((rank, letter, number, now))
            if letter == "F":
                handed.append(("F", rank + 1, number))
            elif letter == ("B" if zero_bubble else "W"):
                handed.append(("B", rank - 1, number))
        now += 1
        given.update((one, now) for one in handed)
    return found


def pipeline():
    """A step of four stages in two schedules."""
    ranks, microbatches, unit = 4, 8, 25
    drawing = Drawing(960, 350, "A pipeline's step: 1F1B and zero bubble")
    colors = {"F": BLUE, "B": GREEN, "W": GOLD}
    for index, (name, zero_bubble) in enumerate((("1F1B", False), ("zero bubble", True))):
        passes = schedule(ranks, microbatches, zero_bubble)
        end, top = max(begin for *_, begin in passes) + 1, 56 + 158 * index
        waits = 1 - 3 * microbatches / end
        drawing.text(24, top - 12, f"{name}: a rank waits {100 * waits:.0f} % of the step", 14,
                     bold=True)
        for rank in range(ranks):
            drawing.text(24, top + 18 + 28 * rank, f"stage {rank}", 12, fill=SOFT)
            drawing.rect(86, top + 28 * rank, unit * end, 25, fill=PALE[RED])
        for rank, letter, number, begin in passes:
            x, y = 86 + unit * begin, top + 28 * rank
            drawing.rect(x, y, unit, 25, fill=PALE[colors[letter]], stroke=colors[letter])
            drawing.text(x + unit / 2, y + 17, f"{letter}{number + 1}", 10, "middle")
    drawing.text(86, 338, "F forward, B backward, W gradients of weights, each of one unit here; "
                 "the number is the microbatch; red: waiting", 12, fill=SOFT)
    return drawing.svg()


KINDS = {"#": ("saved, stays", GREY), "o": ("saved, leaves or is computed again", BLUE),
         "b": ("brought back", GREEN), "r": ("computed again", GOLD), ".": ("all else", "#e8a39b")}
PICTURE = re.compile(r"^ +(\d+\.\d+) \|(.*)$")


def pictures():
    """[(command, [(GiB, letters)] from the top)] of the plans that a test keeps."""
    found = []
    for line in PLANS.read_text(encoding="utf-8").splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif row := PICTURE.match(line):
            found[-1][1].append((float(row[1]), row[2].ljust(COLUMNS)))
    return found


def step_memory():
    """The same step planned without and with a budget, from the pictures of stowage_plan."""
    drawing = Drawing(960, 340, "Transient memory over a step, before and after a budget")
    most = max(rows[0][0] for _, rows in pictures())
    cell, high, bottom = 4.4, 230, 288
    for index, (command, rows) in enumerate(pictures()):
        left = 24 + 476 * index
        words = command.split("h200")[1].strip() or "everything stays"
        drawing.text(left, 30, "before" if index == 0 else "after", 15, bold=True)
        drawing.text(left + 62, 30, words, 10, fill=SOFT, mono=True)
        height = high * rows[0][0] / most / len(rows)
        for row, (_, letters) in enumerate(rows):
            y, x = bottom - height * (len(rows) - row), left
            for letter, run in itertools.groupby(letters):
                width = cell * len(list(run))
                if letter != " ":
                    drawing.rect(x, y, width, height, fill=KINDS[letter][1])
                x += width
        top = bottom - height * len(rows)
        drawing.line([(left, top), (left + cell * COLUMNS, top)], stroke=LINE, dashes="3 3")
        drawing.text(left + cell * COLUMNS, top - 5, f"{rows[0][0]:.1f} GiB", 12, "end", bold=True)
        drawing.line([(left, bottom), (left + cell * COLUMNS, bottom)], stroke=SOFT, width=1)
        drawing.text(left, bottom + 15, "forward", 11, fill=SOFT)
        drawing.text(left + cell * COLUMNS, bottom + 15, "backward, optimizer", 11, "end",
                     fill=SOFT)
    x = 24
    for words, color in KINDS.values():
        drawing.rect(x, 316, 12, 12, fill=color)
        drawing.text(x + 18, 326, words, 12)
        x += 60 + 6.4 * len(words)
    return drawing.svg()


FOLDERS = {  # what each is for, in a line
    "drivers": "programs", "run": "loop, checkpoints, verdict", "forecast": "plans, times, layouts",
    "layers": "model and step", "results": "sets, checkpoints", "kernels": "operators",
    "parallel": "grid, collectives", "offload": "the planner", "inputs/data": "tokens",
    "inputs/huggingface": "published models", "execution": "program, plan, proof, executor",
    "inputs/deck": "keys of a deck"}


def levels():
    """{level: [folder]} as lint.include_direction holds them."""
    tree = ast.parse(LINT.read_text(encoding="utf-8"))
    known = next(ast.literal_eval(node.value) for node in tree.body
                 if isinstance(node, ast.Assign) and node.targets[0].id == "LEVELS")
    found = {}
    for folder, level in known.items():
        if folder != "version":
            found.setdefault(level, []).append(folder)
    return found


def folders():
    """The folders by level: an include goes down."""
    rows = levels()
    drawing = Drawing(960, 24 + 60 * len(rows), "Folders by level")
    for row, level in enumerate(sorted(rows, reverse=True)):
        y, names = 14 + 60 * row, rows[level]
        drawing.text(24, y + 27, f"{level}", 13, fill=SOFT)
        width = (900 - 8 * (len(names) - 1)) / len(names)
        for index, name in enumerate(names):
            x = 44 + (width + 8) * index
            drawing.box(x, y, width, 44, (GREY, BLUE, GREEN, GOLD)[min(level, 3)])
            drawing.text(x + width / 2, y + 19, f"{name}/", 13, "middle", bold=True)
            drawing.text(x + width / 2, y + 36, FOLDERS[name], 11, "middle", fill=SOFT)
    return drawing.svg()
