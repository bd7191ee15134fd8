"""Uses the page of `attnc play` in Chromium: `python3 tests/report/play.py ATTNC [--screens FOLDER]`.

A program is typed, its error is shown at its place and fixed with a button, it runs, and its attention weights are a
heat map with the numbers of the formula. An exercise fails and passes, also after the page is loaded again; an error of a program in an IR is
marked; an address opens the program again; Tab leaves the
editor after Escape; axe (if tests/report/check.py has fetched it) finds nothing serious. No request leaves the server.
Exits with 3 where there is no Chromium."""

import math
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import Browser, chromium  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRONG = """model A<D = 2> {
    pub fn forward(q: f32[S, D], k: f32[T, D], v: f32[T, D]) -> f32[S, D] {
        softmax(q @ k.T * .5) @ v
    }
}
"""


def until(browser, condition, what):
    """Waits for the page."""
    end = time.time() + 40
    while not browser.value(f"Promise.resolve({condition}).then(Boolean)"):
        assert time.time() < end, f"{what}: {browser.value('document.body.innerText')[-600:]} {browser.errors}"
        time.sleep(0.05)


def write(browser, text):
    """Replaces the program, as by typing."""
    browser.value("view.focus(), view.dispatch({ selection: { anchor: 0, head: view.state.doc.length } })")
    browser.call("Input.insertText", text=text)


def typed(browser):
    """An error, its place, its fix."""
    write(browser, WRONG)
    until(browser, "document.querySelector('#problems .error')", "the error is not shown")
    shown = browser.value("byId('problems').textContent")
    assert "3:27" in shown and "0.5" in shown, shown
    # As the command line shows it: the source line with the marks below.
    assert "3 |         softmax(q @ k.T * .5) @ v" in shown and "^^" in shown and "-->" not in shown, shown
    until(browser, "document.querySelector('.cm-lintRange-error')", "the error is not marked")
    assert browser.value("document.querySelector('.cm-lintRange-error').closest('.cm-line').textContent").strip().startswith("softmax")
    browser.value("document.querySelector('#problems .fix').click()")
    until(browser, "!byId('problems').children.length", "the fix does not help")
    assert browser.value("state.text") == WRONG.replace(" .5", " 0.5")


def run(browser):
    """Arguments are typed into cells; the weights of the heat map are those of the formula."""
    browser.value("showTab('call')")
    until(browser, "byId('inputs').querySelectorAll('.argument').length === 3", "there is no form")
    for name, value in [("S", 1), ("T", 2)]:
        browser.value(f"""(() => {{ const i = [...document.querySelectorAll('#inputs label')].find((l) => l.firstChild.textContent === '{name}').querySelector('input');
            i.value = {value}; i.dispatchEvent(new Event('change')); }})()""")
        until(browser, f"entryNow().args[{0 if name == 'S' else 1}].shape[0] === {value}", "the size does not change")
    until(browser, "document.querySelectorAll('#inputs .cells input').length === 10", "the tables do not fit the sizes")
    browser.value("""[1, 0, 1, 0, 0, 1, 1, 2, 3, 4].forEach((x, i) => { const c = document.querySelectorAll('#inputs .cells input')[i];
        c.value = x; c.dispatchEvent(new Event('input')); })""")
    browser.value("byId('start').click()")
    until(browser, "document.querySelector('#results .heat')", "there is no heat map")
    first = 1 / (1 + math.exp(-0.5))
    shown = browser.value("[...document.querySelectorAll('#results .heat td')].filter((t) => t.title).map((t) => [Number(t.title.split(': ')[1]), t.style.background])")
    assert [round(x, 5) for x, _ in shown] == [round(first, 5), round(1 - first, 5)], shown
    shades = [float(colour.rstrip(")").split(",")[-1]) for _, colour in shown]
    assert shades[0] > shades[1] > 0, shades
    result = browser.value("[...document.querySelectorAll('#results .numbers td')].filter((t) => t.title).map((t) => Number(t.title.split(': ')[1]))")
    assert all(abs(x - y) < 1e-5 for x, y in zip(result, [3 - 2 * first, 4 - 2 * first], strict=True)), result
    assert "within their error bounds" in browser.value("byId('results').textContent")
    # A cell that is not a number is refused before the call.
    browser.value("""(() => { const c = document.querySelector('#inputs .cells input'); c.value = 'x'; c.dispatchEvent(new Event('input')); })()""")
    browser.value("byId('start').click()")
    until(browser, "byId('results').textContent.includes('“x” is not a value of type f32')", "a wrong cell is accepted")


def report(browser):
    """The report is shown without an origin: its page cannot reach the server."""
    browser.value("showTab('report')")
    until(browser, "/report\\/\\d+$/.test(byId('frame').src)", "there is no report")
    assert browser.value("byId('frame').contentDocument") is None, "the report has the page's origin"


def exercise(browser):
    """It fails as it starts, and passes when it is solved."""
    browser.value("showExercise('05-attention')")
    for text, said in [(None, "Not yet."), ((ROOT / "docs/book/solutions/05-attention.attn").read_text(), "Passed.")]:
        if text:
            write(browser, text)
        browser.value("[...document.querySelectorAll('#lesson button')].find((b) => b.textContent === 'Judge').click()")
        until(browser, f"byId('lesson').textContent.includes('{said}')", said)


def kept(browser, address):
    """What has passed is still so after the page is loaded again."""
    browser.open(address + "#exercise=05-attention")
    until(browser, "window.report && [...document.querySelectorAll('#lessons .done')].length === 1", "it is forgotten")


def marked_ir(browser, address):
    """An error of a program in an IR is marked at its place."""
    text = 'module "m"\nfunc @f() -> (f32[]) {\n^bb0:\n  return %9\n}\n'
    browser.value(f"open({text!r}, 'm.air')")
    until(browser, "document.querySelector('.cm-lintRange-error')", "the error is not marked")
    assert browser.value("document.querySelector('.cm-lintRange-error').closest('.cm-line').textContent") == "  return %9"
    assert "4 |   return %9" in browser.value("byId('problems').textContent")


def shared(browser, address):
    """An address brings the program back; one that is broken is refused."""
    write(browser, WRONG)
    until(browser, "location.hash.startsWith('#program=') && unpack(location.hash.slice(9)).then((p) => p.text === state.text)",
          "the address has another program")
    fragment = browser.value("location.hash")
    browser.open(address + fragment)
    until(browser, "state.text !== ''", "the program is not opened")
    assert browser.value("state.text") == WRONG
    browser.open(address + "#program=broken")
    until(browser, "byId('problems').textContent.includes('no program that can be read')", "a broken address is accepted")


def keyboard(browser, address):
    """Tab reaches the controls, and leaves the editor after Escape."""
    browser.open(address + "#chapter=04-attention")
    browser.value("view.focus()")
    browser.key("Escape")
    browser.key("Tab")
    assert browser.value("!byId('editor').contains(document.activeElement)"), "Tab does not leave the editor"
    browser.value("byId('tab-lesson').focus()")
    browser.key("ArrowRight")
    assert browser.value("[tab, document.activeElement.id]") == ["call", "tab-call"]


def chapters(browser):
    """Each chapter and example opens, with its pictures."""
    for kind in ["chapters", "examples"]:
        for name in browser.value(f"state.course.{kind}.map((c) => c.name)"):
            browser.value(f"{'showChapter' if kind == 'chapters' else 'showExample'}('{name}')")
    browser.value("showChapter('01-transformer')")
    until(browser, "[...document.querySelectorAll('#lesson img')].every((i) => i.complete && i.naturalWidth)", "a picture is missing")


def accessible(browser, address):
    axe = ROOT / "build/npm/node_modules/axe-core/axe.min.js"
    if not axe.exists():
        print("tests/report/play.py: there is no axe; the page's accessibility is not judged")
        return
    for width, dark in [(1280, False), (1280, True), (390, False), (390, True)]:
        browser.open(address + "#chapter=04-attention", width, 844, dark)
        browser.value(axe.read_text() + ";0")
        browser.value("byId('start').click()")
        until(browser, "document.querySelector('#results .heat')", "there is no heat map")
        for panel in ["program", "lesson", "call"]:
            browser.value(f"showTab('{panel}')")
            # What scrolls the editor's text has no focus of its own; the text has.
            found = browser.value("""axe.run({ exclude: [['.cm-scroller']] }).then((r) => r.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical')
                .map((v) => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 160)]))""")
            assert not found, (width, dark, panel, found)
        assert browser.value("document.documentElement.scrollWidth <= innerWidth"), f"the page is wider than {width} px"


def screens(browser, address, folder):
    for width, dark in [(1280, False), (1280, True), (390, False), (390, True)]:
        browser.open(address + "#chapter=04-attention", width, 844, dark)
        until(browser, "document.querySelector('#lesson h1')", "there is no lesson")
        name = f"{width}-{'dark' if dark else 'light'}.png"
        browser.screenshot(folder / f"lesson-{name}")
        browser.value("byId('start').click()")
        until(browser, "document.querySelector('#results .heat')", "there is no heat map")
        browser.screenshot(folder / f"run-{name}")
        browser.value("showTab('report')")
        until(browser, "byId('frame').src", "there is no report")
        time.sleep(2)
        browser.screenshot(folder / f"report-{name}")


def main():
    if chromium() is None:
        print("tests/report/play.py: there is no Chromium; the page of attnc play is not used")
        return 3
    server = subprocess.Popen([sys.argv[1], "play", "--no-open", "--seconds", "30"], stdout=subprocess.PIPE, text=True)
    browser = Browser()
    try:
        address = server.stdout.readline().strip()
        browser.open(address)
        typed(browser)
        run(browser)
        report(browser)
        exercise(browser)
        kept(browser, address)
        marked_ir(browser, address)
        shared(browser, address)
        keyboard(browser, address)
        chapters(browser)
        accessible(browser, address)
        away = [url for url in browser.requests if not url.startswith((address, "data:"))]
        assert not away and not browser.errors, (away, browser.errors)
        if "--screens" in sys.argv:
            folder = pathlib.Path(sys.argv[sys.argv.index("--screens") + 1])
            folder.mkdir(parents=True, exist_ok=True)
            screens(browser, address, folder)
    finally:
        browser.close()
        server.terminate()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
