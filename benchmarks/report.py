"""Pages of large plans in a browser: their size, when they are painted, and how long a redraw takes at any zoom.

    python benchmarks/report.py [--models nmt:2x1024] [--folder /tmp/pesto-report] [--opens 5] [--json]

Graphs and plans are made once and kept in the folder (the largest takes some minutes), pages are made anew. A page is
painted when the first frame after its timeline is drawn has gone; milliseconds are counted from the beginning of its
script, by its own clock. A redraw ends when a pixel of every canvas has been read back. Beside these stands what the
page's main thread took of a processor, which a busy machine changes little: all that it did until the tables were
filled, and for each redraw. Needs chromium (apt-get install chromium).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CLUSTERS = {"nmt:2x1024": "v100x2-nvlink", "wrn:610x14": "v100x4", "pardnn-transformer:48x8192": "v100x8"}
"""The models, each with a cluster that it fits."""
BARS = {"nmt:2x1024": (0.4, 300), "wrn:610x14": (2.0, 600), "pardnn-transformer:48x8192": (4.0, 1000)}
"""MB of a page, and milliseconds until it is painted."""
ZOOMS = (1.0, 0.3, 0.1, 0.01, 0.001)
DRAWS = 9
READY = "window.pestoReport && window.pestoReport.ready"
_DRAWN = """((page, zoom) => {
  const view = page.view, span = zoom * view.longest, took = [];
  view.from = Math.min(0.4 * view.longest, view.longest - span);
  view.to = view.from + span;
  for (let k = 0; k < DRAWS; k++) {
    const begun = performance.now();
    page.draw();
    for (const line of page.timelines) line.canvas.getContext("2d").getImageData(0, 0, 1, 1);
    took.push(performance.now() - begun);
  }
  return took;
})(window.pestoReport.page, ZOOM)"""


def main() -> None:
    """Print a row a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(CLUSTERS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "pesto-report"))
    parser.add_argument("--opens", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "oracles"))
    import browser

    if browser.installed() is None:
        sys.exit("no chromium: apt-get install chromium")
    asked.folder.mkdir(exist_ok=True)
    rows = [_measured(name, page(name, asked.folder), asked.opens) for name in asked.models.split(",")]
    if asked.json:
        print(json.dumps({"load": os.getloadavg()[0], "pages": rows}, indent=1))
        return
    print("| page | ops | MB | painted, ms | of a processor | redraw, ms | of a processor | requests | errors |")
    print(f"|---|{'---:|' * 8}")
    for row in rows:
        times = [row["painted_ms"], row["cpu_ms"], *(max(row[key].values()) for key in ("redraw_ms", "redraw_cpu_ms"))]
        cells = (row["model"], row["ops"], f"{row['mb']:.2f}", *(f"{ms:.0f}" for ms in times))
        print(f"| {' | '.join(map(str, cells))} | {row['requests']} | {row['errors']} |")


def page(name: str, folder: Path) -> Path:
    """The page of a model's quick plan."""
    model, variant = name.split(":")
    graph, plan, result = (folder / f"{model}-{variant}{end}" for end in (".json.gz", ".plan.json", ".html"))
    if not graph.exists():
        _pesto("import", "--model", model, "--variant", variant, "-o", graph)
    if not plan.exists():
        quick = ("--no-search", "--time-limit", "0", "--cluster", CLUSTERS[name])
        _pesto("solve", "--graph", graph, "-q", "-o", plan, *quick)
    _pesto("report", plan, "--graph", graph, "-o", result)
    return result


def _pesto(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "pesto", *map(str, words)], check=True, stdout=sys.stderr)


def _measured(name: str, path: Path, opens: int) -> dict[str, Any]:
    """The page, opened some times in a browser of its own each; medians, and every time until it was painted."""
    runs = [_opened(path) for _ in range(opens)]
    painted = sorted(run["painted_ms"] for run in runs)
    most_mb, most_ms = BARS[name]
    mb = path.stat().st_size / 1e6
    redraw, cpu = (
        {zoom: statistics.median(run[key][zoom] for run in runs) for zoom in map(str, ZOOMS)}
        for key in ("redraw_ms", "redraw_cpu_ms")
    )
    within = mb <= most_mb and statistics.median(painted) <= most_ms and max(redraw.values()) <= 25
    return {
        "model": name,
        "ops": runs[0]["ops"],
        "mb": mb,
        "painted_ms": statistics.median(painted),
        "painted_ms_all": painted,
        "cpu_ms": statistics.median(run["cpu_ms"] for run in runs),
        "redraw_ms": redraw,
        "redraw_cpu_ms": cpu,
        "redraw_ms_worst": max(run["redraw_ms_worst"] for run in runs),
        "requests": max(run["requests"] for run in runs),
        "errors": max(run["errors"] for run in runs),
        "within": within and not any(run["requests"] or run["errors"] for run in runs),
    }


def _opened(path: Path) -> dict[str, Any]:
    import browser

    with browser.browser() as tab:
        tab.size(1440, 1000)
        tab.call("Performance.enable", timeDomain="threadTicks")
        before = _cpu_ms(tab)
        tab.open(path, READY)
        opened = _cpu_ms(tab) - before
        asked = [url for url in tab.requests if url != path.resolve().as_uri()]
        complaints = len(tab.complaints)  # reading pixels back, below, is itself warned of
        drawn, cpu = {}, {}
        for zoom in ZOOMS:
            before = _cpu_ms(tab)
            drawn[zoom] = tab.value(_DRAWN.replace("DRAWS", str(DRAWS)).replace("ZOOM", str(zoom)))
            cpu[str(zoom)] = (_cpu_ms(tab) - before) / DRAWS
        return {
            "ops": tab.value("window.pestoReport.page.graph.ops"),
            "painted_ms": tab.value("window.pestoReport.painted_ms"),
            "cpu_ms": opened,
            "redraw_cpu_ms": cpu,
            "redraw_ms": {str(zoom): statistics.median(took) for zoom, took in drawn.items()},
            "redraw_ms_worst": max(map(max, drawn.values())),
            "requests": len(asked),
            "errors": complaints,
        }


def _cpu_ms(tab: Any) -> float:
    """What the page's main thread has taken of a processor so far."""
    result = tab.call("Performance.getMetrics")["metrics"]
    return 1e3 * next(each["value"] for each in result if each["name"] == "TaskDuration")


if __name__ == "__main__":
    main()
