"""The page in a real browser, beside a simulated run: what is shown, and that it follows the run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from simulated_run import SimulatedRun

from benchmarks import page
from benchmarks.browser import Browser
from elastream.arrivals.load import Steps
from elastream.manager.events import Held, Trouble
from elastream.measurement import Snapshot
from elastream.measurement.executor import ExecutorReading
from elastream.measurement.recording import RunHeader
from elastream.measurement.tasks import TaskSpread
from elastream.showing.views import ConfigurationView
from elastream.testing import alike, chain, snapshot_of
from elastream.web.address import Address
from elastream.web.feed import Feed
from elastream.web.server import Server

# 350 sentences of five words a second; an instance of words does 100 of them, one of counts 400, at 80 % of that:
# 350 / 80 = 4.4 and 1,750 / 320 = 5.5 instances
RIGHT_SIZE = {"words": 5, "counts": 6}
CHART = "#charts .panel:nth-child(2) .chart"  # of the parallelism
TIP = f"{CHART} .tip:not([hidden])"
RECORDING = ConfigurationView(pipeline="p", shown="recording", policy=None, options=(), knobs=(), acts=False)


def card(browser: Browser, name: str) -> str:
    """What the graph shows of an operator."""
    return browser.text(f'.graph-card:has([title="{name}"])')


def shows(browser: Browser, name: str, parallelism: int) -> bool:
    return re.search(rf"×{parallelism}\b", card(browser, name)) is not None


def test_a_run_that_is_too_small_is_seen_to_be_sized_with_its_reasons(browser: Browser) -> None:
    with SimulatedRun() as run:
        browser.open(run.url)
        run.pass_intervals(1)
        browser.wait(lambda: shows(browser, "words", 2), "words has its two instances")
        browser.wait(lambda: "behind" in card(browser, "words"), "words falls behind, in a word")
        assert "200/s" in card(browser, "words"), "two instances, 100 records a second each"
        assert "350/s" in card(browser, "sentences")
        browser.wait(lambda: browser.text("#deciding") == "Not deciding: warming up, 1 more window", "and why")

        run.pass_intervals(2)
        for name, parallelism in RIGHT_SIZE.items():
            browser.wait(lambda: shows(browser, name, parallelism), f"{name} ×{parallelism}")  # noqa: B023
        run.pass_intervals(3)
        browser.wait(lambda: "effective" in browser.text("#decisions"), "the decision is judged")
        browser.wait(lambda: browser.text("#phase") == "deciding", "and it goes on")
        assert browser.all("#decisions details")
        browser.click("#decisions summary")
        told = browser.wait(lambda: browser.text(".reasons"), "its reasons")
        for stage in ("Measured", "Formula", "Clamps", "Expected", "Achieved"):
            assert stage in told
        assert "processes 200/s in 10 s" in told, "measured"
        assert re.search(r"\d\.\d\d instances", told), "by the formula"
        assert "100 % of the required rate: effective" in told, "achieved"
        assert browser.text("#decisions .change-counts") == f"2 → {RIGHT_SIZE['words']}"


_CONTRADICTIONS = """
window.contradictions = 0;
new MutationObserver(() => {
  const nothing = document.querySelector("#decisions .nothing:not([hidden])");
  if (nothing && document.querySelector(".chart .mark")) window.contradictions++;
}).observe(document, { subtree: true, childList: true, attributes: true });
"""


def test_no_moment_of_opening_says_no_decision_yet_beside_marked_decisions(browser: Browser) -> None:
    with SimulatedRun() as run:
        run.pass_intervals(6)
        command = "Page.addScriptToEvaluateOnNewDocument"
        added = browser.driver.execute_cdp_cmd(command, {"source": _CONTRADICTIONS})
        try:
            browser.open(run.url)
            browser.wait_until_drawn()
            assert browser.all(".chart .mark"), "decisions are marked"
            assert browser.all("#decisions details"), "and listed"
            assert browser.run("return window.contradictions") == 0
        finally:
            browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_numbers_change_as_windows_come_without_being_asked_for(browser: Browser) -> None:
    with SimulatedRun(load=Steps(steps=((0.0, 150.0), (40.0, 190.0)))) as run:
        browser.open(run.url)
        run.pass_intervals(3)
        browser.wait(lambda: "150/s" in browser.text("#summary"), "the input of the first windows")
        before = browser.text("#connection")
        run.pass_intervals(3)
        browser.wait(lambda: "190/s" in browser.text("#summary"), "the input of the later ones")
        assert browser.text("#connection") != before, "the time of the newest window"
        asked = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert len([name for name in asked if "/api/v1/" in name]) <= 2, "one stream and the configuration"
        assert all(name.startswith(run.url) for name in asked), "nothing from elsewhere"


def test_charts_are_drawn_and_read_by_keyboard(browser: Browser) -> None:
    with SimulatedRun() as run:
        run.pass_intervals(6)
        browser.open(run.url)
        browser.wait_until_drawn()
        charts = browser.all(".chart")
        assert len(charts) == 3
        assert len(browser.all(".chart .mark")) == 1, "the one decision is marked"
        steps = browser.run(
            "return [...document.querySelectorAll('.chart')[1].querySelectorAll('.series')].length"
        )
        assert steps == 2, "the parallelism of words and of counts"
        browser.run("document.querySelectorAll('.chart')[1].focus()")
        keys = ActionChains(browser.driver)
        keys.send_keys(Keys.HOME).perform()
        then = browser.wait(lambda: browser.text(".tip:not([hidden])"), "what was then")
        assert then.split()[-4:] == ["words", "2", "counts", "2"]
        keys.send_keys(Keys.END).perform()
        browser.wait(lambda: "6" in browser.text(".tip:not([hidden])").split(), "what is now")
        keys.send_keys(Keys.ENTER).perform()
        browser.wait(lambda: browser.all("#decisions details[open]"), "the nearest decision is open")
        assert browser.run("return document.activeElement.tagName") == "SUMMARY"


def test_an_operator_opens_and_closes_by_keyboard(browser: Browser) -> None:
    with SimulatedRun() as run:
        run.pass_intervals(6)
        browser.open(run.url)
        browser.wait_until_drawn()
        browser.run("document.querySelector('.card[data-kind=\"sink\"]').focus()")
        keys = ActionChains(browser.driver)
        keys.send_keys(Keys.ENTER).perform()
        told = browser.wait(lambda: browser.text("#operator"), "all that is known of counts")
        assert "Must process\n1,750/s" in told
        assert "An instance can do\n400/s" in told
        assert "State partitions\n12" in told
        keys.send_keys(Keys.ENTER).perform()
        browser.wait(lambda: not browser.text("#operator"), "it is closed")


def test_every_control_can_be_reached_by_tab_and_has_a_name(browser: Browser) -> None:
    with SimulatedRun() as run:
        run.pass_intervals(6)
        browser.open(run.url)
        browser.wait_until_drawn()
        wanted = browser.run(
            "return [...document.querySelectorAll('button, summary, input, .chart')]"
            ".filter((e) => e.checkVisibility() && !(e.type === 'radio' && !e.checked)).length"
        )
        keys, reached = ActionChains(browser.driver), set()
        for _ in range(wanted + 10):
            keys.send_keys(Keys.TAB).perform()
            reached.add(browser.run("return document.activeElement"))
        assert len(reached) >= wanted
        nameless = browser.run(
            "return [...document.querySelectorAll('button, summary, input')].filter((e) => e.checkVisibility() "
            "&& !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)"
        )
        assert nameless == []


def test_markup_in_the_name_of_an_operator_is_text(browser: Browser) -> None:
    names = ("<b>source</b>", '"><img src=x onerror="window.harmed=true">', "__proto__")
    with SimulatedRun(names=names) as run:
        browser.open(run.url)
        run.pass_intervals(6)
        browser.wait(lambda: "×6" in browser.text(".graph-cards"), "the run is sized")
        browser.run("document.querySelectorAll('.card').forEach((card) => card.click())")
        browser.click("#decisions summary")
        browser.wait(lambda: browser.text(".reasons"), "its reasons")
        shown = browser.text("main")
        for name in names:
            assert name in shown
        assert browser.run("return [window.harmed, document.querySelectorAll('main img, main b').length]") == [
            None,
            0,
        ]


def test_executors_and_what_is_run_are_shown_as_text(browser: Browser) -> None:
    header = RunHeader(pipeline="<b>clicks</b>", policy="<i>ds2</i>", engine="spark")
    window = snapshot_of(edges=chain("in", "map"), source_rates={"in": 5}, readings=alike("map"))
    executor = ExecutorReading(
        id="1", host="<b>here</b>", cores=4, processors=2, active_tasks=2, busy_cores=1.25, memory_used_bytes=0.0,
        memory_bytes=400.0 * 2**20, peak_heap_bytes=2.5 * 2**30,
    )  # fmt: skip
    unknown: dict[str, Any] = {"processors": None, "busy_cores": None, "peak_heap_bytes": None}
    second = replace(executor, id="2", node="lyon", leaving=True, **unknown)
    feed = Feed("a folder")
    with Server(feed, RECORDING, Address(port=0)) as server:
        browser.open(server.url)
        feed.snapshot(window)
        browser.wait(lambda: "does not tell of executors" in browser.text("#executors"), "it says so")
        assert (browser.text("#pipeline"), browser.text("#policy")) == ("a folder", "")
        feed.begin(header)
        feed.snapshot(replace(window, at_s=70.0, executors=(executor, second)))
        browser.wait(lambda: browser.text("#policy") == "policy <i>ds2</i>", "what is run")
        assert browser.text("#pipeline") == "<b>clicks</b>"
        browser.wait(lambda: "lyon" in browser.text("#executors"), "the executors")
        assert [line for line in browser.text("#executors").splitlines() if line] == [
            "2 executors with 8 slots, 1.25 busy",
            "executor 1 on <b>here</b>",
            "1.25 of 4 slots busy",
            "on 2 cores · 2 tasks now · 0 B of 400 MiB for blocks · heap 2.5 GiB at most",
            "executor 2 on lyon",
            "4 slots",
            "leaving, takes no more tasks · 2 tasks now · 0 B of 400 MiB for blocks",
        ]
        browser.wait(lambda: "A recording of a run on Spark" in browser.text("#foot"), "and by what engine")
        assert browser.run("return document.querySelectorAll('body b, body i').length") == 0


def test_late_records_are_told_with_the_operator_that_drops_them(browser: Browser) -> None:
    readings = [replace(one, records_late=30.0) for one in alike("map", instances=2)]
    window = snapshot_of(edges=chain("in", "map"), source_rates={"in": 5}, readings=readings)
    note = "map drops records as late: <b>raise</b> the delay of its watermark"
    feed = Feed("p")
    with Server(feed, RECORDING, Address(port=0)) as server:
        feed.snapshot(snapshot_of(edges=chain("in", "map"), source_rates={"in": 5}, readings=alike("map")))
        browser.open(server.url)
        browser.wait_until_drawn()
        assert "late" not in browser.text("#summary"), "there is no event time"
        for number in range(1, 4):
            feed.snapshot(replace(window, at_s=10.0 * number, notes=(note,)))
        browser.wait(lambda: "Dropped as late\n≥ 180\nmost by map" in browser.text("#summary"), "the sum")
        assert f"Note: {note}" in browser.text("#banners")
        browser.click('.card[data-kind="sink"]')
        told = browser.wait(lambda: browser.text("#operator"), "all that is known of map")
        assert "Dropped as late\n180" in told
        browser.open(server.url)  # a page that comes later knows as much
        browser.wait(lambda: "Dropped as late\n≥ 180" in browser.text("#summary"), "the sum")
        feed.snapshot(replace(window, at_s=50.0))
        browser.wait(lambda: "Note" not in browser.text("#banners"), "what no longer holds is not said")


def test_a_task_with_half_of_the_records_is_seen_on_the_page(browser: Browser) -> None:
    spread = TaskSpread(tasks=4, records_total=800, records=(100, 130, 135, 200, 400), busy_s=(0.1,) * 5)
    (one,) = alike("map", records_per_s=800, useful_share=0.4)
    skewed = replace(one, instances=2, tasks=spread)
    feed = Feed("p")
    feed.snapshot(
        snapshot_of(
            edges=chain("source", "map"),
            source_rates={"source": 800.0},
            readings=[skewed],
            parallelism={"map": 2},
        )
    )
    with Server(feed, RECORDING, Address(port=0)) as server:
        browser.open(server.url)
        browser.wait_until_drawn()
        browser.run("document.querySelector('.card[data-kind=\"sink\"]').click()")
        facts = browser.wait(lambda: browser.text(".facts"), "what is known of it")
        assert re.search(r"Largest share\s+50 %", facts)
        assert re.search(r"Skew\s+2.0 ×", facts)


def test_a_window_that_is_short_without_anyone_behind_is_not_said_to_keep_up(browser: Browser) -> None:
    readings = [*alike("in"), *alike("map", records_per_s=80, useful_share=0.5)]
    window = snapshot_of(edges=chain("in", "map"), source_rates={"in": 100}, readings=readings)
    feed = Feed("p")
    with Server(feed, RECORDING, Address(port=0)) as server:
        browser.open(server.url)
        feed.snapshot(window)
        browser.wait(lambda: "80 %" in browser.text("#summary"), "what was achieved")
        assert "80 %\nno operator is behind" in browser.text("#summary")
        assert "keeps up" not in browser.text("#summary")
        feed.snapshot(replace(window, at_s=70.0, gaps=("a batch was gone",)))
        browser.wait(lambda: "no operator is behind" not in browser.text("#summary"), "the next window")
        assert "80 %\nnot all was measured" in browser.text("#summary"), "and where it knows, why"
        assert "keeps up" not in browser.text("#summary")


def test_charts_go_on_when_the_clock_steps_back(browser: Browser) -> None:
    def window(at_s: float, instances: int) -> Snapshot:
        readings = alike("map", instances=instances)
        found = snapshot_of(edges=chain("in", "map"), source_rates={"in": 5}, readings=readings)
        return replace(found, at_s=at_s)

    feed = Feed("p")
    with Server(feed, RECORDING, Address(port=0)) as server:
        for at_s, instances in ((60.0, 1), (120.0, 2), (600.0, 3), (660.0, 4)):
            feed.snapshot(window(at_s, instances))
        browser.open(server.url)
        browser.wait(lambda: shows(browser, "map", 4), "four windows")
        feed.snapshot(window(180.0, 5))
        feed.snapshot(window(240.0, 6))
        browser.wait(lambda: shows(browser, "map", 6), "two more, of before that")
        browser.wait(lambda: "4:00" in browser.text(CHART), "the axis ends with the newest")
        assert "10:00" not in browser.text(CHART)
        browser.run(f"document.querySelector('{CHART}').focus()")
        for key, count in ((Keys.HOME, 1), (Keys.ARROW_RIGHT, 2), (Keys.ARROW_RIGHT, 5), (Keys.ARROW_RIGHT, 6)):
            ActionChains(browser.driver).send_keys(key).perform()
            browser.wait(lambda: browser.text(TIP).split()[-1:] == [str(count)], f"{count} instances")  # noqa: B023


def test_routine_does_not_push_out_what_tells_of_something(browser: Browser) -> None:
    window = snapshot_of(edges=chain("in", "map"), source_rates={"in": 5})
    feed = Feed("p")
    with Server(feed, RECORDING, Address(port=0)) as server:
        feed.snapshot(window)
        browser.open(server.url)
        feed.event(Trouble(at_s=0.0, what="the disk is full"))
        browser.wait(lambda: "the disk is full" in browser.text("#events"), "it is in the log")
        browser.click("#routine")
        for hundred in range(4):  # a viewer for whom more than that waits would be sent everything anew
            for number in range(100):
                feed.event(Held(at_s=float(number), why=f"paused {hundred} {number}"))
            newest = f"paused {hundred} 99"
            browser.wait(lambda: newest in browser.text("#events"), newest)  # noqa: B023
        assert "the disk is full" in browser.text("#events")
        assert len(browser.all("#events li")) < 100, "and the routine is bounded"


def test_a_connection_that_is_lost_is_told_and_taken_up_again(browser: Browser) -> None:
    with SimulatedRun() as run:
        run.pass_intervals(2)
        browser.open(run.url)
        browser.wait(lambda: "Live" in browser.text("#connection"), "it is live")
        port = run.port
    browser.wait(lambda: "Connection lost" in browser.text("#connection"), "it says so")
    assert "Shown is what came until" in browser.text("#banners")
    assert shows(browser, "words", 2), "what was known stays"
    with SimulatedRun(port=port) as run:
        run.pass_intervals(6)
        browser.wait(lambda: "Live" in browser.text("#connection"), "it is live again, by itself")
        browser.wait(lambda: shows(browser, "words", RIGHT_SIZE["words"]), "and shows the new run")
        assert "Connection lost" not in browser.text("#banners")


def test_a_run_without_a_window_says_so_and_one_that_ended_too(browser: Browser) -> None:
    feed = Feed("word count")
    shown = ConfigurationView(pipeline="word count", shown="run", policy="ds2", options=(), knobs=(), acts=False)
    with SimulatedRun() as run, Server(feed, shown, Address(port=0)) as server:
        run.pass_intervals(2)
        browser.open(server.url)
        browser.wait(lambda: "Nothing measured yet" in browser.text("#empty"), "there is nothing yet")
        feed.snapshot(run.snapshots[0])
        browser.wait(lambda: shows(browser, "words", 2), "the first window")
        assert browser.text("#empty") == ""
        assert not browser.find("#pause").is_displayed(), "there is nobody to ask for anything"
        feed.end()
        browser.wait(lambda: browser.text("#connection") == "Finished", "nothing more comes")


def test_it_fits_a_phone_and_follows_the_colours_of_the_system_or_the_switch(browser: Browser) -> None:
    with SimulatedRun() as run:
        run.pass_intervals(6)
        browser.resize(360, 780)
        browser.open(run.url)
        browser.wait_until_drawn()
        browser.click("#decisions summary")
        browser.wait(lambda: browser.text(".reasons"), "its reasons")
        assert browser.run("return document.documentElement.scrollWidth") == 360, "nothing to scroll to the side"
        cut_off = (
            "return [...document.querySelectorAll('.card')]"
            ".filter((card) => card.scrollHeight > card.clientHeight).map((card) => card.innerText)"
        )
        assert browser.run(cut_off) == [], "all that a card says is within it"
        lightness = "return getComputedStyle(document.body).backgroundColor"
        light = browser.run(lightness)
        browser.prefer("dark")
        dark = browser.wait(lambda: (found := browser.run(lightness)) != light and found, "it is dark")
        browser.click("#theme")
        browser.wait(lambda: browser.run(lightness) == light, "light, as was chosen")
        browser.click("#theme")
        browser.wait(lambda: browser.run(lightness) == dark, "dark, as was chosen")
        browser.click("#theme")


def test_text_stands_out_from_what_is_behind_it_in_light_and_in_dark(browser: Browser) -> None:
    with SimulatedRun() as run:
        run.pass_intervals(6)
        browser.open(run.url)
        browser.wait_until_drawn()
        browser.click("#decisions summary")
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            weak = browser.run(_CONTRAST)
            assert weak == [], f"below 4.5 in {scheme}"


# the luminance of WCAG, of every element with text of its own and the first opaque background under it
_CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgb = (color, under) => {
  canvas.fillStyle = `rgb(${under})`; canvas.fillRect(0, 0, 1, 1);
  canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = (parts) => parts.map((v) => linear(v / 255))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) =>
  element ? rgb(getComputedStyle(element).backgroundColor, behind(element.parentElement)) : [255, 255, 255];
return [...document.querySelectorAll("body *:not(option)")]
  .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
  .map((e) => {
    const under = behind(e), style = getComputedStyle(e);
    const text = rgb(e instanceof SVGElement ? style.fill : style.color, under);
    const pair = [light(under), light(text)].sort((a, b) => b - a);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), e.className.baseVal ?? e.className, e.textContent.slice(0, 30)];
  })
  .filter(([ratio]) => ratio < 4.5).map(([ratio, name, text]) => `${ratio.toFixed(2)} ${name}: ${text}`);
"""


def test_what_the_page_keeps_does_not_grow_with_the_windows_that_it_has_seen(browser: Browser) -> None:
    found = {measure.what: measure.value for measure in page.follow(browser, hours=2, duration_s=300.0)}
    assert found["the last by the one before"] < 1.5, "thirty windows more"
    assert found["elements of the page after the last"] < 20_000
