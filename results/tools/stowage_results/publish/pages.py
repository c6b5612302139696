"""The files of a published page: README.md with the short tables, and beside it one file for each
long table and the plots. All of it is made from the sets, and can be checked against them."""

from stowage_results import outputs
from stowage_results.plots import page_plots
from stowage_results.tables.headline import short_training, training_runs
from stowage_results.outputs import require_free
from stowage_results.plain_files import Refused, read_text

BEGIN = "<!-- made by results/tools/table.py -->"
END = "<!-- end of what table.py made -->"


def with_tables(path, made):
    """The text of the file at `path` with `made` between its two marks."""
    page = read_text(path)
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise Refused(f"{path}: needs the lines '{BEGIN}' and '{END}' once, in this order")
    return page[:page.index(BEGIN) + len(BEGIN)] + "\n\n" + made + "\n" + page[page.index(END):]


def raised(lines):
    """A chapter as a file of its own: its heading, and those below it, one level up."""
    rest = [line[1:] if line.startswith("###") else line for line in lines[1:]]
    return "\n".join([lines[0][1:], "", BEGIN, *rest]).rstrip() + "\n"


def front(short, machine, chapters, figures):
    """What stands in README.md: the short tables, plots, the machine, and where the long tables
    are."""
    lines = short + [part for figure in figures
                     for part in (f"![{figure.title}]({figure.name})", "")]
    return "\n".join(lines + machine + ["## All tables", ""]
                     + [f"- [{chapter.title}]({chapter.name})" for chapter in chapters] + [""])


def texts(page, short, machine, chapters, figures):
    """{path: text} of README.md and the files of chapters beside it."""
    made = {page: with_tables(page, front(short, machine, chapters, figures))}
    for chapter in chapters:
        path = page.parent / chapter.name
        require_free(path, is_chapter)
        made[path] = raised(chapter.lines)
    return made


def is_chapter(path):
    """Whether this tool made a file: it begins as `raised` makes it begin."""
    return read_text(path).splitlines()[1:3] == ["", BEGIN]


def leftovers(page, made):
    """Files beside the page that this tool made and makes no more."""
    return [path for path in sorted(page.parent.glob("*.md"))
            if path not in made and is_chapter(path)]


def summary(path, results, peers):
    """The text of a file that shows the training table alone."""
    return with_tables(path, "\n".join(short_training(training_runs(results, peers))))


def check(page, made, figures):
    """What the files do not say as the sets do: a sentence for each."""
    problems = [f"{path}: does not say what the sets hold" for path, text in made.items()
                if not path.exists() or read_text(path) != text]
    problems += [f"{path}: no set has what it shows" for path in leftovers(page, made)]
    return problems + [f"{page.parent / figure.name}: does not show what the sets hold"
                       for figure in figures if not figure.is_at(page.parent / figure.name)]


def write(page, made, figures):
    """Writes what differs, over parts of the page that this tool made. A plot is drawn anew if what
    it shows has changed; delete it to have it drawn by another form."""
    for figure in figures:
        require_free(page.parent / figure.name, page_plots.is_plot)
    for path in leftovers(page, made):
        path.unlink()
    for path, text in made.items():
        outputs.write(path, text.encode(), lambda one: BEGIN in read_text(one), keep=False)
    for figure in figures:
        if not figure.is_at(page.parent / figure.name):
            page_plots.draw(figure, page.parent / figure.name)
