"""Opens reports in Chromium and checks them: `python3 tests/report/check.py ATTNC [--times] [--screens FOLDER]`.

A report makes no request, raises no error, and marks exactly the lines that its record relates; the keyboard alone
reaches everything and selects values; axe (from npm, where there is one) finds nothing serious. Screenshots are compared
with golden/, where Chromium and its fonts are those of golden/made_with; --accept makes them again. With --times, pages
open in a second and a click takes at most 50 ms. Exits with 3 where there is no Chromium."""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import Browser, chromium  # noqa: E402
from records import valid  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"%[A-Za-z0-9_.]+")
CASES = [("02_self_attention", []), ("08_gpt2", ["--cpu", "avx512"]), ("06_encoder_layer", ["--target", "cuda"]),
         ("01_linear", ["-O0"])]


def texts(record, level):
    """The lines of the last step of a level: text, locations, part, origin, offset in the part."""
    text = record["texts"][level["steps"][-1]["text"]]
    ids = [i for k in range(0, len(text["runs"]), 2) for i in range(text["runs"][k], sum(text["runs"][k:k + 2]))]
    starts = {start: name for name, start in text["parts"]}
    lines, part, first = [], "", 0
    for n, i in enumerate(ids):
        if n in starts:
            part, first = starts[n], n
        line = record["lines"][i]
        at = line[1] if len(line) > 1 else []
        lines.append((line[0], at, part, line[2] if len(line) > 2 else None, n - first))
    return lines


def expected(record, name):
    """The lines of each level that belong to a value of the first function of graph IR."""
    levels = {level["name"]: texts(record, level) for level in record["levels"]}
    part = next(part for _, _, part, _, _ in levels["graph"] if part.startswith("func"))
    places = next(at for text, at, own, _, _ in levels["graph"]
                  if own == part and text.strip().startswith(name + " = "))
    out = {"graph": [t for t, _, own, _, _ in levels["graph"] if own == part and name in NAME.findall(t)]}
    here = {(own, offset): at for _, at, own, _, offset in levels.get("scheduled", [])}
    for level, lines in levels.items():
        if level == "graph":
            continue
        known = record["kernels"].get("tile" if level == "tile" else "scheduled", {})
        kernels = {f"kernel {kernel}" for kernel, operations in known.items() if [part, name] in operations}
        out[level] = [t for t, at, own, of, _ in lines
                      if ((at or here.get((own, of), [])) if own in kernels else
                          (not kernels or not own.startswith("kernel "))
                          and any(p in places for p in (at or here.get((own, of), []))))]
    rows = sorted({(f, line) for f, line, _ in places})
    out["source"] = [record["files"][f]["text"].split("\n")[line - 1] for f, line in rows]
    return out


def steps(browser, record, name):
    """The steps of the schedule: a diff shows the lines of both steps, and a name is marked in its own text only."""
    level = next((level for level in record["levels"] if level["name"] == "scheduled"), {"steps": []})
    changed = [n for n, step in enumerate(level["steps"]) if step["changed"]]
    assert len(changed) > 2, (name, level["steps"])
    plain = lambda rows: [re.sub(NAME, "%", re.sub(r"\s+", " ", row)) for row in rows]
    for before, now in zip(changed, changed[1:]):
        own, old = ([line[0] for line in texts(record, {"steps": level["steps"][:n + 1]})] for n in (now, before))
        rows = browser.value(f"""(() => {{ const c = columns.find((c) => c.key === 'scheduled'); c.show({now}, true);
            return c.rows.map((r) => [r.kind, r.text]); }})()""")
        assert [t for kind, t in rows if kind != "del"] == own, (name, level["steps"][now]["name"])
        kept = plain(t for kind, t in rows if kind != "add")
        assert sorted(kept) == sorted(plain(old)), (name, level["steps"][now]["name"])
        assert any(kind in ("add", "del") for kind, _ in rows), (name, level["steps"][now]["name"])
    # A value of the step before the last: in its own text its name, after the last step its location.
    lines = texts(record, {"steps": level["steps"][:changed[-2] + 1]})
    value, places, part = next((m.group(1), at, own) for t, at, own, _, _ in lines[::-1]
                               if own.startswith("kernel") and at and (m := re.match(r" +(%\d+) = ", t)))
    browser.value(f"columns.find((c) => c.key === 'scheduled').show({changed[-2]}, false)")
    browser.click(*resting(browser, "scheduled", value, part))
    marked = [[row["text"] for row in browser.value("report.marked()")["scheduled"]]]
    browser.value(f"columns.find((c) => c.key === 'scheduled').show({changed[-1]}, false)")
    marked.append([row["text"] for row in browser.value("report.marked()")["scheduled"]])
    assert marked[0] == [t for t, _, own, _, _ in lines if own == part and value in NAME.findall(t)], (name, value)
    assert marked[1] == [t for t, at, _, _, _ in texts(record, level) if any(p in places for p in at)], (name, value)
    browser.key("Escape")


def exact(record, name):
    """Each kernel is launched for operations that graph IR has, or for a plan's own work."""
    graph = texts(record, record["levels"][0])
    defined = {(own, m.group(1)) for t, _, own, _, _ in graph if (m := re.match(r" +(%\d+) = ", t))}
    for level in ("tile", "scheduled"):
        lines = texts(record, next(one for one in record["levels"] if one["name"] == level))
        kernels = {own[7:] for _, _, own, _, _ in lines if own.startswith("kernel ")}
        known = record["kernels"][level]
        assert kernels == set(known), (name, level, kernels ^ set(known))
        assert {tuple(o) for operations in known.values() for o in operations} <= defined, (name, level)


def last_value(record):
    """A value of the first function that has a location: the last one."""
    graph = texts(record, next(level for level in record["levels"] if level["name"] == "graph"))
    part = next(part for _, _, part, _, _ in graph if part.startswith("func"))
    found = [m.group(1) for t, at, own, _, _ in graph if own == part and at and (m := re.match(r" +(%\d+) = ", t))]
    return found[-1]


def centre(browser, column, name, part=""):
    """Where a value is on the screen, after scrolling its definition into view."""
    return browser.value(f"""(() => {{
        const c = columns.find((c) => c.key === '{column}');
        const i = c.rows.findIndex((r) => r.part.startsWith('{part}') && r.text.trimStart().startsWith('{name} = '));
        c.box.scrollTop = Math.max(0, i * 20 - 60); c.draw();
        const v = [...c.sheet.querySelectorAll(`[data-i="${{i}}"] .v`)].find((e) => e.textContent === '{name}');
        const r = v.getBoundingClientRect();
        return [r.left + r.width / 2, r.top + r.height / 2];
    }})()""")


def resting(browser, column, name, part=""):
    """The same, once the page has its final layout: a loaded machine takes a while."""
    place = None
    for _ in range(100):
        now = centre(browser, column, name, part)
        if now == place:
            break
        place = now
        browser.value("new Promise((done) => setTimeout(done, 200))")
    return place


def check(browser, attnc, folder, name, options):
    html, record = folder / "report.html", folder / "record.json"
    subprocess.run([attnc, ROOT / f"examples/{name}.attn", *options, f"--emit=html={html}",
                    f"--emit=record={record}"], check=True)
    data = json.loads(record.read_text())
    browser.open(html)
    opened = browser.value("performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart")
    assert browser.requests == [f"file://{html}"], browser.requests
    value = last_value(data)
    browser.click(*resting(browser, "graph", value))
    marked = browser.value("report.marked()")
    for level, lines in expected(data, value).items():
        own = [row["text"] for row in marked[level]]
        assert own == lines, f"{name}: {value} in {level}: {len(own)} lines are marked, {len(lines)} expected"
    steps(browser, data, name)
    # The longest of several clicks, until the page is laid out again.
    took = browser.value("""Math.max(...[...columns[1].sheet.querySelectorAll('.v')].slice(0, 12).map((v) => {
        const start = performance.now();
        if (v.isConnected) v.click();
        else columns[1].sheet.querySelector('.v').click();
        document.body.getBoundingClientRect();
        bridges();
        return performance.now() - start;
    }))""")
    exact(data, name)
    assert not browser.errors, browser.errors
    size = (html.stat().st_size, record.stat().st_size)
    print(f"{name} {' '.join(options)}: html {size[0]} bytes, record {size[1]} bytes, "
          f"opens in {opened:.0f} ms, a click takes {took:.1f} ms, {sum(map(len, marked.values()))} lines marked")
    assert size[0] <= 3_000_000, size
    if "--times" in sys.argv:
        assert opened <= 1000 and took <= 50, (opened, took)


def keyboard(browser, page):
    """Tab to the graph IR, down to a line, to a value, Enter: it is selected; Escape clears it."""
    browser.open(page)
    for _ in range(80):
        if browser.value("document.activeElement === columns[1].box"):
            break
        browser.key("Tab")
    else:
        raise AssertionError("Tab does not reach the graph IR")
    while not browser.value("/^ +%\\d+ = /.test(columns[1].rows[columns[1].cursor].text)"):
        browser.key("ArrowDown")
    browser.key("ArrowRight")
    browser.key("Enter")
    chosen = browser.value("selections.length && selections[0].name")
    assert chosen and chosen.startswith("%"), chosen
    browser.key("Escape")
    assert browser.value("selections.length") == 0
    browser.key("/")
    assert browser.value("document.activeElement.id") == "search"


def reachable(browser, page):
    """Tab reaches whatever can be clicked, in each panel; arrows choose the panel, the line and the value."""
    wanted = """[...document.querySelectorAll('button, input, summary, [tabindex="0"]')].filter((e) =>
        e.checkVisibility() && !e.disabled && e.tabIndex >= 0)"""
    browser.open(page)
    for panel in browser.value("Object.keys(PANELS)"):
        assert browser.value("panel") == panel
        browser.value(f"window.reached = new Set(); window.wanted = {wanted}; document.body.focus()")
        count = browser.value("wanted.length")
        for _ in range(count + 2):
            browser.key("Tab")
            browser.value("reached.add(document.activeElement), 0")
        lost = browser.value("wanted.filter((e) => !reached.has(e)).map((e) => e.outerHTML.slice(0, 90))")
        assert not lost, f"{panel}: Tab does not reach {lost}"
        browser.value(f"document.getElementById('panel-{panel}').focus()")
        browser.key("ArrowRight")
    assert browser.value("panel") == "value", "the arrow after the last panel returns to the first"


def accessible(browser, page):
    """axe finds nothing serious or critical on any panel, narrow and wide, light and dark, with six selections."""
    axe = ROOT / "build/npm/node_modules/axe-core/axe.min.js"
    if not axe.exists() and shutil.which("npm"):
        axe.parents[2].mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", "axe-core@4.10"], cwd=axe.parents[2],
                       check=False)
    if not axe.exists():
        print("tests/report/check.py: axe could not be fetched; the page's accessibility is not judged")
        return
    for width, dark in [(1280, False), (1280, True), (390, False), (390, True)]:
        browser.open(page, width, 800, dark)
        browser.value(axe.read_text() + ";0")
        browser.value("""(() => { const c = columns[1];
            c.rows.filter((r) => /^ +%\\d+ = /.test(r.text)).slice(-6).forEach((r, i) => {
                c.cursor = c.rows.indexOf(r); c.choose(names(r.text)[0], i > 0); }); })()""")
        for panel in browser.value("Object.keys(PANELS)"):
            found = browser.value(f"""(showPanel('{panel}'), axe.run()).then((r) => r.violations
                .filter((v) => v.impact === 'serious' || v.impact === 'critical')
                .map((v) => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 120)]))""")
            assert not found, (width, dark, panel, found)


def errors(browser, attnc, folder):
    """A program with an error has a report of the stages that it reached."""
    program, html = folder / "wrong.attn", folder / "wrong.html"
    program.write_text("model M {\n    pub fn forward(x: f32[S, 4]) -> f32[S, 4] {\n        x @ y\n    }\n}\n")
    done = subprocess.run([attnc, program, f"--emit=html={html}"], capture_output=True, check=False)
    assert done.returncode == 1, done
    browser.open(html)
    shown = browser.value("document.getElementById('panel').textContent")
    assert "`y`" in shown, shown
    assert not browser.errors, browser.errors


def proposed(browser, attnc, folder):
    """A missed rewrite has the edit that makes it: below its line, and as changed lines among the remarks."""
    program, html = folder / "masked.attn", folder / "masked.html"
    program.write_text("""model M {
    pub fn f(q: f32[S, 64], k: f32[T, 64], v: f32[T, 64], keep: bool[S, T]) -> f32[S, 64] {
        let s = q @ k.T
        softmax(s
            + where(keep, 0.0, -inf)) @ v
    }
}
""")
    subprocess.run([attnc, program, f"--emit=html={html}"], check=True)
    browser.open(html)
    below = browser.value("columns[0].rows.filter((r) => r.kind === 'remark edit').map((r) => r.text)")
    assert below == ["to get it: write `where(keep, s, -inf)` instead of `s + where(keep, 0.0, -inf)`"], below
    shown = browser.value("(showPanel('remarks'), [...document.querySelectorAll('pre.edit span')].map((e) => [e.className, e.textContent]))")
    assert shown == [["del", "-         softmax(s"], ["del", "-             + where(keep, 0.0, -inf)) @ v"],
                     ["add", "+         softmax(where(keep, s, -inf)) @ v"]], shown
    accessible(browser, html)
    assert not browser.errors, browser.errors


def measured(browser, attnc, folder):
    """The page of `attnc bench` shows each kernel with its time; its record has the numbers of --json."""
    html, record, numbers = folder / "bench.html", folder / "bench.json", folder / "numbers.json"
    subprocess.run([attnc, "bench", ROOT / "examples/02_self_attention.attn", "--size", "S=16", "--seconds", "0.01", "--html", html,
                    "--record", record, "--json", numbers], check=True, capture_output=True)
    data, plain = json.loads(record.read_text()), json.loads(numbers.read_text())
    for one, other in zip(data["measured"]["kernels"], plain["kernels"], strict=True):
        assert one["kernel"] == other["kernel"] and one["flops"] == other["flops"], (one, other)
        assert abs(one["seconds"] - other["seconds"]) <= 1e-12, (one, other)
    browser.open(html)
    rows = browser.value("""(showPanel('costs'), [...document.querySelector('figure table tbody').rows].map((r) =>
        [r.cells[0].textContent, r.cells[3].textContent]))""")
    assert rows == [[k["kernel"], f"{k['seconds'] * 1e6:.2f} µs"] for k in plain["kernels"]], rows
    shown = browser.value("document.querySelector('figure [role=img]').shadowRoot.querySelectorAll('circle').length")
    assert shown >= len(rows), shown
    assert browser.requests == [f"file://{html}"] and not browser.errors, (browser.requests, browser.errors)


def numbers(browser, attnc, folder):
    """The page of `attnc run` shows each value with its range; the weights of two equal keys are 0.5; a value that is out
    of its bound is named."""
    program, html, record = folder / "call.attn", folder / "call.html", folder / "call.json"
    program.write_text("model M {\n    pub fn forward(q: f32[S, D], k: f32[T, D]) -> f32[S, T] { softmax(q @ k.T) }\n}\n")
    subprocess.run([attnc, "run", program, "--input", "q=[[1, 2]]", "--input", "k=[[3, 4], [3, 4]]", "--html", html,
                    "--record", record], check=True, capture_output=True)
    data = json.loads(record.read_text())
    schema = json.loads((ROOT / "src/record/schema.json").read_text())
    assert (error := valid(data, schema, schema)) is None, error
    weights = next(v for v in data["values"]["levels"][0]["values"] if v["op"] == "softmax")
    assert weights["elements"] == [0.5, 0.5] and weights["least"] == 0.5 == weights["most"], weights
    scores = next(v for v in data["values"]["levels"][0]["values"] if v["op"] == "matmul")
    assert scores["elements"] == [11, 11] and scores["outside"] == scores["nan"] == 0, scores
    browser.open(html)
    browser.value("showPanel('numbers')")
    rows = browser.value("[...document.querySelector('#panel table tbody').rows].map((r) => [...r.cells].map((c) => c.textContent))")
    assert [row[0] for row in rows] == [v["name"] for v in data["values"]["levels"][0]["values"]], rows
    assert rows[1][1:4] == ["matmul", "f32[1, 2]", "11 to 11"], rows
    assert "within their error bounds" in browser.value("document.getElementById('panel').textContent")
    browser.value("document.querySelector('#panel table button').click()")
    assert browser.value("active.key") == "graph"
    # A wrong number in the record.
    wrong = html.read_text().replace('"outside":0', '"outside":1', 1)
    html.write_text(wrong)
    browser.open(html)
    shown = browser.value("document.getElementById('panel').textContent")
    assert f"{rows[0][0]} is the first value outside of its error bound" in shown, shown
    assert browser.value("document.querySelectorAll('tr.wrong').length") == 1 and not browser.errors, browser.errors


def screens(browser, page, folder):
    for width, height in [(1280, 800), (390, 800)]:
        for dark in [False, True]:
            browser.open(page, width, height, dark)
            browser.value("new Promise((done) => setTimeout(done, 300))")
            browser.value("""(() => { const c = columns[1];
                c.cursor = c.rows.findIndex((r) => / matmul /.test(r.text)); c.choose(names(c.rows[c.cursor].text)[0], false);
                c.cursor = c.rows.findIndex((r) => / attention /.test(r.text));
                if (c.cursor >= 0) c.choose(names(c.rows[c.cursor].text)[0], true); })()""")
            browser.value("new Promise((done) => setTimeout(done, 300))")
            browser.screenshot(folder / f"report-{width}-{'dark' if dark else 'light'}.png")


def golden(browser, page, folder):
    """At most 0.005 % of the pixels differ from the kept screenshots. Other versions of Chromium and other fonts draw
    other pixels: with these, nothing is compared."""
    kept = ROOT / "tests/report/golden"
    fonts = [subprocess.run(["fc-match", "-f", "%{file|basename}", name], capture_output=True, text=True,
                            check=False).stdout if shutil.which("fc-match") else "" for name in ("system-ui", "monospace")]
    made_with = ", ".join([browser.call("Browser.getVersion")["product"], *fonts]) + "\n"
    if "--accept" in sys.argv:
        kept.mkdir(exist_ok=True)
        screens(browser, page, kept)
        (kept / "made_with").write_text(made_with)
    if (kept / "made_with").read_text() != made_with:
        print(f"tests/report/check.py: screenshots are not compared: they were made with "
              f"{(kept / 'made_with').read_text().strip()}, here is {made_with.strip()}")
        return
    screens(browser, page, folder)
    browser.open(page)
    browser.call("Page.navigate", url="about:blank")
    for image in sorted(kept.glob("*.png")):
        pair = [base64.b64encode((where / image.name).read_bytes()).decode() for where in (kept, folder)]
        differ = browser.value("""(async () => {
            const pixels = async (data) => {
                const image = new Image();
                image.src = 'data:image/png;base64,' + data;
                await image.decode();
                const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
                canvas.drawImage(image, 0, 0);
                return new Uint32Array(canvas.getImageData(0, 0, image.width, image.height).data.buffer);
            };
            const [a, b] = [await pixels('%s'), await pixels('%s')];
            return a.length === b.length ? a.filter((x, i) => x !== b[i]).length / a.length : 1;
        })()""" % tuple(pair))
        assert differ <= 5e-5, f"{image.name}: {differ:.3%} of the pixels differ; look at it, then --accept"


def main():
    if chromium() is None:
        print("tests/report/check.py: there is no Chromium; reports are not opened")
        return 3
    attnc = pathlib.Path(sys.argv[1]).resolve()
    browser = Browser()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name).resolve()
            for example, options in CASES:
                check(browser, attnc, folder, example, options)
            keyboard(browser, folder / "report.html")
            subprocess.run([attnc, "02_self_attention.attn", f"--emit=html={folder / 'report.html'}"], check=True,
                           cwd=ROOT / "examples")
            reachable(browser, folder / "report.html")
            accessible(browser, folder / "report.html")
            golden(browser, folder / "report.html", folder)
            errors(browser, attnc, folder)
            proposed(browser, attnc, folder)
            measured(browser, attnc, folder)
            numbers(browser, attnc, folder)
            if "--screens" in sys.argv:
                out = pathlib.Path(sys.argv[sys.argv.index("--screens") + 1])
                out.mkdir(parents=True, exist_ok=True)
                for example, options in CASES[:2]:
                    subprocess.run([attnc, ROOT / f"examples/{example}.attn", *options,
                                    f"--emit=html={folder / 'report.html'}"], check=True)
                    (out / example).mkdir(exist_ok=True)
                    screens(browser, folder / "report.html", out / example)
    finally:
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
