"""Plots of a report as SVG text: lines, labelled points and bars, drawn without a library so that
a page is small and its words can be searched."""

import html

import numpy as np

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 30, 42
COLORS = ("#1f6f8b", "#c8553d", "#5a8f29", "#7a5195", "#b8860b", "#444444", "#2f9e8f", "#a23b72")
BAR, GAP = 15, 4
MOST_POINTS = 600  # of a line: as many as there are pixels


def ticks(low, high, wanted=5):
    """Round numbers across a range."""
    if not high > low:
        return [low]
    rough = (high - low) / wanted
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = np.ceil(low / step)
    return [float(step * (first + i)) for i in range(int((high - first * step) / step + 1e-9) + 1)]


def label(x, y, words, anchor="middle", kind="", more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}"{more}>'
            f"{html.escape(str(words))}</text>")


class Frame:
    """Axes around ranges of x and y, and where values lie in them."""

    def __init__(self, x, y, title, x_name, y_name):
        self.x, self.y = self.widened(x), self.widened(y)
        self.parts = [label(LEFT, 18, title, "start", "title"),
                      label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_name),
                      label(14, (TOP + HEIGHT - BOTTOM) / 2, y_name, "middle", "",
                            f' transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2})"')]
        for value in ticks(*self.x):
            self.parts.append(label(self.across(value), HEIGHT - BOTTOM + 16, f"{value:g}"))
        for value in ticks(*self.y):
            at = self.up(value)
            self.parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" '
                              f'y2="{at:.1f}" class="grid"/>')
            self.parts.append(label(LEFT - 6, at + 4, f"{value:g}", "end"))

    @staticmethod
    def widened(bounds):
        low, high = bounds
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def across(self, value):
        return LEFT + (value - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)

    def up(self, value):
        part = (value - self.y[0]) / (self.y[1] - self.y[0])
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    def svg(self, height=HEIGHT):
        return (f'<svg viewBox="0 0 {WIDTH} {height}" role="img">' + "\n".join(self.parts)
                + "</svg>")


def lines(series, title, x_name, y_name, from_zero=False):
    """`series`: (name, x, y). Names stand below, in the color of their line."""
    series = [(name, np.asarray(x, float), np.asarray(y, float)) for name, x, y in series if len(x)]
    if not series:
        return ""
    finite = np.concatenate([y[np.isfinite(y)] for _, _, y in series])
    if len(finite) == 0:
        return ""
    low = 0.0 if from_zero else float(finite.min())
    frame = Frame((min(x.min() for _, x, _ in series), max(x.max() for _, x, _ in series)),
                  (low, float(finite.max())), title, x_name, y_name)
    for index, (name, x, y) in enumerate(series):
        color = COLORS[index % len(COLORS)]
        every = max(1, len(x) // MOST_POINTS)
        path = " ".join(f"{frame.across(a):.1f},{frame.up(b):.1f}"
                        for a, b in zip(x[::every], y[::every]) if np.isfinite(b))
        frame.parts.append(f'<polyline points="{path}" stroke="{color}" class="line">'
                           f"<title>{html.escape(name)}</title></polyline>")
        frame.parts.append(label(LEFT + index % 2 * 300, HEIGHT + 14 + index // 2 * 16, name,
                                 "start", "", f' fill="{color}"'))
    return frame.svg(HEIGHT + 24 + (len(series) - 1) // 2 * 16)


def points(found, title, x_name, y_name):
    """`found`: (name, x, y), each named beside its point."""
    if not found:
        return ""
    x, y = ([entry[i] for entry in found] for i in (1, 2))
    room = 0.06 * (max(y) - min(y)) or 0.05 * max(y)
    frame = Frame((0, 1.15 * max(x)), (min(y) - room, max(y) + room), title, x_name, y_name)
    taken = []
    for name, across, up in sorted(found, key=lambda entry: -entry[2]):
        at = frame.across(across), frame.up(up)
        color = COLORS[("off", "scopes", "step").index(name.rpartition("/")[2])
                       if name.rpartition("/")[2] in ("off", "scopes", "step") else 5]
        place = at[1] + 4
        while any(abs(place - other[1]) < 11 and abs(at[0] - other[0]) < 110 for other in taken):
            place += 11
        taken.append((at[0], place))
        frame.parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="{color}">'
                           f"<title>{html.escape(name)}: {up:.4g}</title></circle>")
        end = at[0] > WIDTH - 130
        frame.parts.append(label(at[0] + (-7 if end else 7), place, name, "end" if end else "start",
                                 "small"))
    return frame.svg()


def bars(shares, title, x_name):
    """`shares`: (operator, shape, implementation, share), those of an operator together under its
    name; what is above 1.1 is marked."""
    if not shares:
        return ""
    names, percents = 330, 44
    full = WIDTH - names - percents
    rows, limit = [], names + full / 1.2
    top, before = TOP, None
    for operator, shape, one, share in shares:
        if operator != before:
            rows.append(label(8, top + 12, operator, "start"))
            top += BAR + GAP
        before = operator
        wide = max(0.0, min(share, 1.2)) / 1.2 * full
        color = "#b00020" if share > 1.1 else COLORS[0] if one.startswith("ours") else "#9aa5ab"
        words = f"{shape} {one}"
        shown = words if len(words) <= 52 else words[:22] + "…" + words[-29:]
        rows.append(label(names - 6, top + 12, shown, "end", "small"))
        rows.append(f'<rect x="{names}" y="{top}" width="{wide:.1f}" height="{BAR}" '
                    f'fill="{color}"><title>{html.escape(words)}</title></rect>')
        rows.append(label(WIDTH - 6, top + 12, f"{100 * share:.0f} %", "end", "small"))
        top += BAR + GAP
    parts = [label(8, 18, f"{title}: {x_name}", "start", "title"),
             f'<line x1="{limit:.1f}" x2="{limit:.1f}" y1="{TOP - 4}" y2="{top}" class="limit"/>']
    return (f'<svg viewBox="0 0 {WIDTH} {top + 8}" role="img">' + "\n".join(parts + rows)
            + "</svg>")
