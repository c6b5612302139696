"""acceptance.md: the report as a page of tables."""
import pathlib

LIMITS = {  # of stowage_ceilings: what a device's own rate is called, and its metric
    "product FLOP/s": "ceilings/gemm_bf16/cube_8192/flops_per_s",
    "copy B/s": "ceilings/copy_kernel/bandwidth",
    "from host B/s": "ceilings/h2d/bandwidth",
    "to host B/s": "ceilings/d2h/bandwidth",
}
COLUMNS = {"device", "rank", "step_s", "compute_s", "samples", "slower", "drift", "less", *LIMITS}


def told(facts):
    """Facts of a device in a sentence."""
    return ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                     for key, value in facts.items())


def facts_of(row):
    return told({key: value for key, value in row.items() if key not in COLUMNS})


def slower(row):
    return f"**+{100 * row['slower']:.1f} %**" if row["slower"] else "in band"


def table(head, rows):
    """Empty without rows."""
    if not rows:
        return []
    return ["", *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))]


def of_devices(title, rows):
    return table([title, "step", "beside the median", "facts"], [
        [row["device"], f"{1e3 * row['step_s']:.2f} ms", slower(row), facts_of(row)]
        for row in rows])


def limits(row):
    return [f"**{row[what]:.4g}**" if what in row.get("less", []) else f"{row[what]:.4g}"
            for what in LIMITS]


def deck(row):
    low, high = (1e3 * end for end in row["measured_ci95"])
    predicted = row["step_s"]
    joules = row.get("measured_j_per_token")
    return [row["deck"], row["layout"], f"{1e3 * predicted:.1f} ms" if predicted else "-",
            f"{1e3 * row['measured_step_s']:.1f} ms", f"{low:.1f} .. {high:.1f} ms",
            f"{100 * row['beside']:+.1f} %" if predicted else "-",
            "-" if joules is None else f"{joules:.3g}"]


def soak(rows):
    return table(["device, all at once", "step", "beside the median", "last round beside the first",
                  "facts"], [
        [row["device"], f"{1e3 * row['step_s']:.2f} ms", slower(row),
         f"{100 * row['drift']:+.1f} %", facts_of(row)] for row in rows])


def page(report):
    lines = [f"# Acceptance of {pathlib.Path(report['machine']).stem}: {report['verdict']}", "",
             f"{report['ranks']} ranks, {report['rounds']} rounds of each device alone; "
             f"predictions are held to {report['band_percent']:g} % either way; "
             f"digest `{report['digest']}`, "
             f"of its files `{report['files_digest']}`.", ""]
    lines += [f"- {fault}" for fault in report["faults"]] or ["Nothing is out of band."]
    lines += [f"- told: {what}" for what in report["remarks"]]
    lines += [f"- not looked at: {what}" for what in report["left_out"]]
    lines += table(["GPU", *LIMITS, "facts"], [
        [row["device"], *limits(row), facts_of(row)] for row in report.get("ceilings", [])])
    lines += of_devices("device alone", report["alone"])
    lines += soak(report["soak"]["devices"] if "soak" in report else [])
    lines += table(["exchange of", "which", "largest exchange", "beside the median"], [
        [row["what"], row["pair"], f"{1e6 * row['time_s']:.1f} us", slower(row)]
        for row in report["pairs"]])
    lines += table(["all at once", "computes", "beside the median", "facts"], [
        [row["rank"], f"{1e3 * row['compute_s']:.2f} ms", slower(row), facts_of(row)]
        for row in report.get("of_ranks", [])])
    lines += table(["deck", "layout", "predicted", "measured", "95 % interval", "beside",
                    "J/token"], [deck(row) for row in report["decks"]])
    return "\n".join(lines) + "\n"
