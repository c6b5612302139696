"""Drawings as SVG text: the same bytes wherever they are made, and no package for it."""

from xml.sax.saxutils import escape

from stowage_results.outputs import MADE

INK, SOFT, LINE, PAPER = "#1f2933", "#616e7c", "#cbd2d9", "#ffffff"
BLUE, GREY, RED, GREEN, GOLD = "#2b6cb0", "#b8c0cc", "#c0392b", "#2f855a", "#d69e2e"
PALE = {BLUE: "#dbe9f7", GREY: "#eef1f4", RED: "#f9e0dd", GREEN: "#dcf0e5", GOLD: "#fbf0d5"}


def number(value):
    """At most two digits behind the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Drawing:
    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
            f"<title>{escape(title)}</title>", f"<desc>{MADE}</desc>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{SOFT}"/></marker>'
            "</defs>"]
        self.rect(0, 0, width, height, fill=PAPER, radius=6)

    def add(self, name, words="", **attributes):
        def shown(value):
            return value if isinstance(value, str) else number(value)

        given = "".join(f' {key.replace("_", "-")}="{shown(value)}"'
                        for key, value in attributes.items())
        self.parts.append(f"<{name}{given}>{escape(words)}</{name}>" if words
                          else f"<{name}{given}/>")

    def rect(self, x, y, width, height, fill=PAPER, stroke="none", radius=0):
        self.add("rect", x=x, y=y, width=width, height=height, rx=radius, fill=fill, stroke=stroke)

    def box(self, x, y, width, height, color):
        self.rect(x, y, width, height, fill=PALE[color], stroke=color, radius=5)

    def text(self, x, y, words, size=13, anchor="start", fill=INK, bold=False, mono=False):
        style = {"font_weight": "bold"} if bold else {}
        style |= {"font_family": "monospace"} if mono else {}
        self.add("text", words, x=x, y=y, font_size=size, text_anchor=anchor, fill=fill, **style)

    def line(self, points, stroke=INK, width=1.5, dashes=None, arrow=False):
        style = {"stroke_dasharray": dashes} if dashes else {}
        style |= {"marker_end": "url(#tip)"} if arrow else {}
        self.add("polyline", points=" ".join(f"{number(x)},{number(y)}" for x, y in points),
                 fill="none", stroke=stroke, stroke_width=width, **style)

    def arrow(self, *points):
        self.line(points, stroke=SOFT, arrow=True)

    def dot(self, x, y, fill=INK, radius=4):
        self.add("circle", cx=x, cy=y, r=radius, fill=fill)

    def svg(self):
        return "\n".join([*self.parts, "</svg>"]) + "\n"
