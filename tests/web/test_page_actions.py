"""Acting from the page: what the manager does then, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from simulated_run import TOKEN, SimulatedRun

from benchmarks.browser import Browser
from elastream.arrivals.load import Steps
from elastream.policies.catalog import create
from elastream.web.tokens import Tokens

GROWING = Steps(steps=((0.0, 350.0), (100.0, 700.0)))
SIZED = {"words": 5, "counts": 6}  # at 350 sentences a second
INTERVALS = 6  # until it is sized, and that is judged

RULES = """
rules:
  - name: words are late
    scale_out: words
    by: 1
    never_above: 8
    when:
      - {metric: utilization, above: 90 %, for_at_least: 10 s}
"""


@pytest.fixture
def run(browser: Browser) -> Iterator[SimulatedRun]:
    """Sized for its load, which doubles later; its page is open."""
    with SimulatedRun(load=GROWING) as run:
        run.pass_intervals(INTERVALS)
        assert run.engine.plan() == SIZED
        browser.open(run.url)
        browser.wait_until_drawn()
        yield run


def give_token(browser: Browser, token: str = TOKEN) -> None:
    if not browser.find("#controls").is_displayed():
        browser.click("#controls-open")
    browser.find("#token").send_keys(token, Keys.ENTER)
    said(browser, "The token is used from now on")


def said(browser: Browser, what: str) -> None:
    browser.wait(lambda: what in browser.text(".said"), f"the page says {what!r}, found {browser.text('.said')!r}")


def press(browser: Browser, text: str, within: str = "#controls") -> None:
    found = [button for button in browser.all(f"{within} button") if button.text == text]
    assert len(found) == 1, f"one button {text!r}, found {len(found)}"
    found[0].click()


def test_pausing_stops_scaling_until_it_is_resumed(browser: Browser, run: SimulatedRun) -> None:
    give_token(browser)
    press(browser, "Pause scaling")
    said(browser, "Scaling is paused")
    browser.wait(lambda: "scaling paused" in browser.text("#phase"), "everybody can see it")
    run.pass_intervals(2 * INTERVALS)  # the load has doubled
    assert run.engine.plan() == SIZED
    browser.wait(lambda: "700/s" in browser.text("#summary"), "windows still come")
    press(browser, "Resume scaling")
    said(browser, "Scaling goes on")
    run.pass_intervals(INTERVALS)
    assert run.engine.plan()["words"] > SIZED["words"]


def test_a_wrong_token_is_refused_and_nothing_happens(browser: Browser, run: SimulatedRun) -> None:
    give_token(browser, "not-the-token")
    press(browser, "Pause scaling")
    said(browser, "The token was refused")
    assert "paused" not in browser.text("#phase")
    run.pass_intervals(2 * INTERVALS)
    assert run.engine.plan()["words"] > SIZED["words"], "scaling goes on"
    give_token(browser)
    press(browser, "Pause scaling")
    said(browser, "Scaling is paused")
    assert all("401" in found for found in browser.complaints())


def test_without_a_token_the_page_asks_for_it(browser: Browser, run: SimulatedRun) -> None:
    browser.click("#pause")
    said(browser, "This needs the token")
    assert browser.run("return document.activeElement.id") == "token"
    assert run.engine.plan() == SIZED
    assert all("401" in found for found in browser.complaints())


def test_the_address_may_carry_the_token(browser: Browser, run: SimulatedRun) -> None:
    browser.open("about:blank")
    browser.open(f"{run.url}#token={TOKEN}")
    browser.wait_until_drawn()
    assert TOKEN not in browser.driver.current_url, "nobody reads it over a shoulder"
    browser.click("#pause")
    browser.wait(lambda: "scaling paused" in browser.text("#phase"), "it is accepted")


def test_looking_with_tokens_and_what_becomes_of_one_that_is_taken_back(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text("- {token: may-look-for-a-while, role: look}")
    with SimulatedRun(tokens=Tokens(file=file)) as run:
        run.pass_intervals(2)
        browser.open(run.url)
        browser.wait(lambda: "Looking needs a token" in browser.text("#empty"), "nothing is shown")
        browser.find("#look-token").send_keys("may-look-for-a-while", Keys.ENTER)
        browser.wait_until_drawn()
        assert not browser.find("#look").is_displayed()
        press(browser, "Pause scaling", within=".top")
        said(browser, "this token may look, and not act")
        browser.run("document.getElementById('controls').close()")
        file.write_text("- {token: another-one-may-look, role: look}")
        run.pass_intervals(1)  # whatever is sent next is not sent to it any more
        browser.wait(lambda: "was taken back" in browser.text("#banners"), "it is said")
        browser.find("#look-token").send_keys("another-one-may-look", Keys.ENTER)
        browser.wait(lambda: "was taken back" not in browser.text("#banners"), "it goes on")
    assert all("401" in found or "403" in found for found in browser.complaints())


def test_so_may_an_address_that_is_pasted_into_the_open_page(browser: Browser, run: SimulatedRun) -> None:
    """A run that was started anew prints another token; only what follows the # differs, so nothing is loaded."""
    browser.click("#controls-open")
    assert "Without it nothing can be changed" in browser.text("#controls")
    browser.run("window.loadedOnce = true")
    browser.open(f"{run.url}#token={TOKEN}")
    browser.wait(lambda: "Kept until this tab is closed" in browser.text("#controls"), "the page says so")
    assert TOKEN not in browser.driver.current_url
    assert browser.run("return window.loadedOnce")
    press(browser, "Pause scaling")
    said(browser, "Scaling is paused")


def test_scaling_by_hand_and_rolling_back(browser: Browser, run: SimulatedRun) -> None:
    give_token(browser)
    press(browser, "Pause scaling")  # or it would be mended at once
    said(browser, "Scaling is paused")
    browser.find('[aria-label="Instances of words"]').send_keys("9")
    press(browser, "Scale by hand")
    browser.wait(lambda: "by hand" in browser.text("#decisions"), "it is a decision like any other")
    assert run.engine.plan() == {**SIZED, "words": 9}
    browser.wait(lambda: "words 5 → 9" in browser.text("#controls"), "it can be taken back")
    press(browser, "Roll back")
    browser.wait(lambda: "rollback" in browser.text("#decisions"), "it is taken back")
    assert run.engine.plan() == SIZED


def test_what_an_operator_cannot_take_is_refused_by_name(browser: Browser, run: SimulatedRun) -> None:
    give_token(browser)
    browser.find('[aria-label="Instances of words"]').send_keys("17")
    press(browser, "Scale by hand")
    said(browser, "'words' takes 1 to 16 instances, found 17")
    assert run.engine.plan() == SIZED
    assert all("422" in found for found in browser.complaints())


def test_bounds_hold_what_the_policy_wants(browser: Browser, run: SimulatedRun) -> None:
    give_token(browser)
    browser.find('[aria-label="Most of words"]').send_keys("6")
    browser.click('[aria-label="Set the bounds of words"]')
    said(browser, "Words: at most 6")
    run.pass_intervals(2 * INTERVALS)
    assert run.engine.plan()["words"] == 6, "700 sentences a second need 9"
    browser.run("document.getElementById('controls').close()")
    browser.run("document.querySelectorAll('.card')[1].click()")
    browser.wait(lambda: "Bounds\n1 to 6" in browser.text("#operator"), "they are shown")


def test_a_dry_run_tells_what_it_would_do(browser: Browser, run: SimulatedRun) -> None:
    give_token(browser)
    browser.run("document.getElementById('dry-run').click()")
    said(browser, "Dry run: from now on nothing is carried out")
    run.pass_intervals(2 * INTERVALS)
    assert run.engine.plan() == SIZED
    browser.wait(lambda: "dry run" in browser.text("#decisions"), "a decision that was only told")


def changed_by(browser: Browser) -> list[str]:
    names = "document.querySelectorAll('#rules-versions time + span')"
    return list(browser.run(f"return [...{names}].map((name) => name.textContent)"))


def test_rules_are_checked_and_changed_and_taken_back(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    with SimulatedRun(policy=create("rules", {"file": str(file)}), rules=file) as run:
        run.pass_intervals(1)
        browser.open(run.url)
        browser.wait_until_drawn()
        give_token(browser)
        text = browser.find("#rules-text")
        browser.wait(lambda: text.get_property("value") == RULES, "the rules as they are")
        browser.wait(lambda: "1 rule, " in browser.text("#rules-found"), "what they say")
        browser.run("arguments[0].value = arguments[0].value.replace('scale_out', 'scale_sideways')", text)
        browser.click("#rules-check")
        browser.wait(lambda: "error" in browser.text("#rules-found"), "what is wrong")
        assert "line 4" in browser.text("#rules-found")
        browser.click("#rules-apply")
        said(browser, "Refused: ")
        assert file.read_text() == RULES
        changed = RULES.replace("by: 1", "by: 2")
        browser.run("arguments[0].value = arguments[1]", text, changed)
        browser.click("#rules-apply")
        said(browser, "These rules are in force from now on")
        assert file.read_text() == changed
        again = changed.replace("90 %", "80 %")
        browser.run("arguments[0].value = arguments[1]", text, again)
        browser.find("#rules-who").send_keys("Ada")
        browser.click("#rules-apply")
        browser.wait(lambda: file.read_text() == again, "the second edit")
        browser.click("#rules-versions summary")
        who = ["Ada", "the page", "the file"]
        browser.wait(lambda: changed_by(browser) == who, "who changed them, the newest first")
        browser.all("#rules-versions button")[-1].click()
        said(browser, "The rules of that version are in force")
        assert file.read_text() == RULES
        browser.wait(lambda: changed_by(browser) == ["Ada", *who], "that is a version, too")
    assert all("422" in found for found in browser.complaints())
