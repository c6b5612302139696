"""Draws the figures of the guide, docs/figures/*.svg, from published sets and definitions.

  draw_guide.py              draws them
  draw_guide.py --check      says whether that would change any

Exit codes: 0, 1 if --check finds another figure.
"""

import argparse
from stowage_results.outputs import made_by_tools, write
from stowage_results.plots import guide_data, guide_ideas, guide_states

FOLDER = guide_ideas.FIGURES
FIGURES = {"overview": guide_data.overview, "memory": guide_data.memory,
           "result_set": guide_data.result_set, "quickstart": guide_data.quickstart,
           "deck_to_result": guide_ideas.deck_to_result,
           "states": guide_states.states,
           "grid": guide_ideas.grid, "pipeline": guide_ideas.pipeline,
           "step_memory": guide_ideas.step_memory, "folders": guide_ideas.folders}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = {path.stem for path in FOLDER.glob("*.svg")} - FIGURES.keys()
    for name, draw in FIGURES.items():
        path, drawn = FOLDER / f"{name}.svg", draw()
        if not check:
            write(path, drawn.encode(), made_by_tools, keep=False)
        elif not path.exists() or path.read_text(encoding="utf-8") != drawn:
            stale.add(name)
    for name in sorted(stale):
        print(f"{FOLDER / name}.svg is not what draw_guide.py draws")
    return 1 if stale else 0
