"""The page in a real browser: Debian's Chromium, driven by Playwright. Skipped where there is none."""

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from services import PAIRS, PATIENCE, Live, held, running, slowed

from kermit import Kermit

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; apt-get install chromium"),
]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MILLISECONDS = 1000 * PATIENCE
NewPage = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=MILLISECONDS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=MILLISECONDS)
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser: Browser, live: Live) -> Iterator[NewPage]:
    """Opens the page as a browser of some kind would; no script error and no breach of the policy is allowed."""
    contexts, complaints = [], list[str]()

    def open_page(path: str = "/", url: str | None = None, **settings: Any) -> Page:
        context = browser.new_context(base_url=url or live.url, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(MILLISECONDS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in complaints if "Failed to load resource" not in text] == []


@pytest.fixture
def page(new_page: NewPage) -> Page:
    page = new_page(reduced_motion="reduce")
    expect(page.get_by_label("English", exact=True)).to_be_visible()
    return page


def tokens(page: Page, side: str, kind: str) -> list[str]:
    return page.locator(f"#text-{side} .{kind}").all_inner_texts()


def done(page: Page) -> None:
    expect(page.locator("#status")).to_contain_text("Done.")


def button(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name)


def test_it_translates_both_ways(page: Page) -> None:
    english, german = page.get_by_label("English", exact=True), page.get_by_label("German", exact=True)
    english.fill(PAIRS[2][0])
    button(page, "Translate to German").click()
    expect(german).to_have_value(PAIRS[2][1])
    english.fill("")
    german.fill(PAIRS[3][1])
    button(page, "Translate to English").click()
    expect(english).to_have_value(PAIRS[3][0])
    assert "".join(tokens(page, "y", "given")) == PAIRS[3][1].replace(" ", "")
    assert tokens(page, "y", "inserted") == []
    assert "".join(tokens(page, "x", "inserted")) == PAIRS[3][0].replace(" ", "")


def test_it_fills_blanks_and_given_words_look_given_without_colour_too(page: Page) -> None:
    page.locator("#x").fill("A man ____ a red ____.")
    page.locator("#y").fill("Ein Mann fährt ein ____ Rad.")
    button(page, "Fill the blanks").click()
    done(page)
    assert (page.input_value("#x"), page.input_value("#y")) == PAIRS[2]
    assert tokens(page, "x", "inserted") == ["rides", "bike"]
    assert tokens(page, "x", "given") == ["A", "man", "a", "red", "."]
    assert tokens(page, "y", "inserted") == ["rotes"]
    look = "element => { const s = getComputedStyle(element); return [s.fontWeight, s.textDecorationLine] }"
    assert page.locator("#text-x .given").first.evaluate(look) == ["700", "none"]
    assert page.locator("#text-x .inserted").first.evaluate(look) == ["400", "underline"]
    button(page, "Put back what was given").click()
    assert page.input_value("#x") == "A man ____ a red ____."


def test_the_rounds_can_be_stepped_through(page: Page) -> None:
    page.locator("#x").fill(PAIRS[2][0])
    button(page, "Translate to German").click()
    done(page)
    slider = page.get_by_role("slider", name="Round")
    expect(slider).to_have_value("4")  # no motion is wanted, so the end is shown at once
    expect(page.locator("#count")).to_have_text("4 rounds for 7 inserted tokens; log2(7 + 1) = 3.00")
    slider.fill("0")
    assert tokens(page, "y", "inserted") == []
    shown = []
    for number in range(1, 4):
        button(page, "One round on").click()
        expect(page.locator("#place")).to_have_text(f"round {number} of 4")
        shown.append((len(tokens(page, "y", "inserted")), len(tokens(page, "y", "now"))))
    assert shown == [(1, 1), (3, 2), (7, 4)]
    button(page, "One round back").click()
    assert len(tokens(page, "y", "inserted")) == 3
    slider.press("ArrowLeft")
    assert len(tokens(page, "y", "inserted")) == 1
    button(page, "Play").click()
    expect(button(page, "Pause")).to_be_visible()
    expect(slider).to_have_value("4")
    expect(button(page, "Play")).to_be_visible()  # it stops at the end


def test_each_inserted_token_tells_its_probability_to_mouse_and_keyboard(page: Page) -> None:
    page.locator("#x").fill(PAIRS[0][0])
    button(page, "Translate to German").click()
    done(page)
    first, second = page.locator("#text-y .inserted").nth(0), page.locator("#text-y .inserted").nth(1)
    tip = "element => getComputedStyle(element, '::after').content"
    assert second.evaluate(tip) == "none"
    second.hover()
    assert re.fullmatch(r'"(100|\d\d?\.\d) %, round \d"', second.evaluate(tip))
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(second).to_be_focused()
    assert re.fullmatch(r'"(100|\d\d?\.\d) %, round \d"', second.evaluate(tip))
    assert re.fullmatch(r"Hund, inserted in round \d, (100|\d\d?\.\d) %", second.get_attribute("aria-label") or "")
    page.keyboard.press("End")
    expect(page.locator("#text-y .inserted").last).to_be_focused()
    page.set_viewport_size({"width": 360, "height": 720})
    for token in page.locator("#text-y .inserted").all():
        token.hover()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_surprise_can_be_shared_by_its_link_and_gone_back_to(page: Page, new_page: NewPage, live: Live) -> None:
    button(page, "Surprise me").click()
    done(page)
    drawn = page.input_value("#x"), page.input_value("#y"), page.input_value("#seed")
    assert drawn[0]
    assert drawn[1]
    link = page.locator("#link").get_attribute("href") or ""
    assert page.url == f"{live.url}/{link}"
    assert f"seed={drawn[2]}" in link
    again = new_page(f"/{link}", reduced_motion="reduce")
    done(again)
    assert (again.input_value("#x"), again.input_value("#y"), again.input_value("#seed")) == drawn
    assert tokens(again, "y", "inserted") == tokens(page, "y", "inserted")
    page.locator("#x").fill("dog ____")
    page.locator("#y").fill("")
    button(page, "Complete both sides").click()
    expect(page.locator("#x")).not_to_have_value("dog ____")
    done(page)
    assert "dog" in tokens(page, "x", "given")
    page.go_back()
    expect(page.locator("#x")).to_have_value(drawn[0])
    expect(page.locator("#y")).to_have_value(drawn[1])


def test_what_is_wrong_is_shown_in_the_page(page: Page) -> None:
    alert = page.get_by_role("alert")
    expect(alert).to_be_hidden()
    button(page, "Translate to German").click()
    expect(alert).to_have_text("there is nothing to translate; write some English first")
    page.locator("#x").fill("A dog sleeps.")
    button(page, "Fill the blanks").click()
    expect(alert).to_contain_text("there is no blank to fill")
    page.locator("#x").fill("x" * 90)
    button(page, "Translate to German").click()
    expect(alert).to_have_text("texts.0: the text takes 90 tokens, but at most 64 are taken; shorten or split it")
    page.get_by_text("How to decode").click()
    page.get_by_label("Top p").fill("7")
    button(page, "Surprise me").click()
    expect(alert).to_contain_text("top p:")
    page.get_by_label("Top p").fill("0.9")
    page.get_by_label("Most tokens").fill("3")
    button(page, "Surprise me").click()
    done(page)
    expect(alert).to_be_hidden()


def test_it_can_be_used_by_keyboard_alone(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.locator("#x")).to_be_focused()
    page.keyboard.type(PAIRS[1][0])
    page.keyboard.press("Control+Enter")
    expect(page.locator("#y")).to_have_value(PAIRS[1][1])
    page.keyboard.press("Tab")
    expect(page.locator("#y")).to_be_focused()
    for name in (
        "Translate to German",
        "Translate to English",
        "Fill the blanks",
        "Complete both sides",
        "Surprise me",
    ):
        page.keyboard.press("Tab")
        expect(button(page, name)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#link")).to_have_attribute("href", re.compile("do=sample"))
    done(page)
    expect(button(page, "Surprise me")).to_be_focused()  # though it was disabled in between


def test_while_it_waits_the_buttons_are_disabled_and_the_rounds_play_by_themselves(
    new_page: NewPage, live: Live
) -> None:
    page = new_page()
    page.locator("#x").fill(PAIRS[2][0])
    page.evaluate(
        """() => {
          const place = document.getElementById("place");
          window.seen = [];
          new MutationObserver(() => seen.push(place.textContent)).observe(place, { childList: true });
        }"""
    )
    with held(live.service):
        button(page, "Translate to German").click()
        expect(page.locator("#status")).to_have_text("Waiting for the model …")
        expect(button(page, "Surprise me")).to_be_disabled()
        expect(page.locator("#main")).to_have_attribute("aria-busy", "true")
    expect(page.locator("#place")).to_have_text("round 4 of 4")
    expect(button(page, "Surprise me")).to_be_enabled()
    seen = [text for text in page.evaluate("seen") if text.endswith("of 4")]
    assert list(dict.fromkeys(seen)) == [f"round {number} of 4" for number in range(1, 5)]


CONTRAST = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" && element.parentElement ? ground(element.parentElement) : colour;
  };
  const found = {};
  for (const name of ["body", ".quiet", "button", "textarea", ".given", ".inserted", ".now", "a", "#error"]) {
    const element = document.querySelector(name);
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))].sort((p, q) => q - p);
    found[name] = (a + 0.05) / (b + 0.05);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_it_fits_and_is_readable_in_light_and_dark(new_page: NewPage, scheme: str) -> None:
    page = new_page(
        viewport={"width": 360, "height": 720}, has_touch=True, color_scheme=scheme, reduced_motion="reduce"
    )
    page.locator("#x").fill(PAIRS[3][0])
    button(page, "Translate to German").tap()
    done(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    left, right = page.locator("#x").bounding_box(), page.locator("#y").bounding_box()
    assert left is not None
    assert right is not None
    assert right["y"] > left["y"] + left["height"]
    page.get_by_text("How to decode").tap()
    for name in ("button", "summary", "select", "input:not([type=checkbox])"):
        sizes = [place.bounding_box() for place in page.locator(name).all() if place.is_visible()]
        assert min(size["height"] for size in sizes if size) >= 38, name  # for a thumb
    contrast = page.evaluate(CONTRAST)
    assert min(contrast.values()) >= 4.5, contrast


def test_a_service_with_a_token_is_asked_for_it(new_page: NewPage, kermit: Kermit) -> None:
    with running(kermit, token="secret") as guarded:
        page = new_page(url=guarded.url, reduced_motion="reduce")
        expect(page.get_by_role("alert")).to_contain_text("token")
        page.get_by_label("Token of this service").fill("wrong")
        button(page, "Use it").click()
        expect(page.get_by_role("alert")).to_contain_text("token")
        page.get_by_label("Token of this service").fill("secret")
        page.keyboard.press("Enter")
        expect(page.get_by_label("English", exact=True)).to_be_visible()
        expect(page.get_by_role("alert")).to_be_hidden()
        button(page, "Surprise me").click()
        done(page)


def test_rounds_that_break_off_stop_and_say_so(new_page: NewPage, kermit: Kermit) -> None:
    with running(kermit, deadline=3.0) as live, slowed(live.service):
        page = new_page(url=live.url)
        page.get_by_label("English", exact=True).fill("A dog sleeps")
        page.get_by_text("How to decode").click()
        page.locator("#termination_penalty").fill("90")
        page.locator("#strategy").select_option("serial")
        button(page, "Translate to German").click()
        expect(page.get_by_role("alert")).to_contain_text("no answer within")
        expect(page.locator("#count")).to_contain_text("Ended by an error")
        expect(page.locator("#play")).to_have_text("Play")


def test_strategies_that_the_model_was_not_trained_for_cannot_be_selected(page: Page) -> None:
    page.get_by_text("How to decode").click()
    for strategy in ("", "parallel", "serial"):
        expect(page.locator(f"#strategy option[value='{strategy}']")).to_be_enabled()
    expect(page.locator("#strategy option[value=left_to_right]")).to_be_disabled()


def test_a_model_trained_left_to_right_inserts_one_token_after_the_other(new_page: NewPage, ordered: Live) -> None:
    page = new_page(url=ordered.url, reduced_motion="reduce")
    expect(page.get_by_label("English", exact=True)).to_be_visible()
    page.get_by_label("English", exact=True).fill("A dog sleeps.")
    page.get_by_text("How to decode").click()
    page.locator("#strategy").select_option("left_to_right")
    page.locator("#termination_penalty").fill("90")
    page.locator("#max_tokens").fill("4")
    button(page, "Translate to German").click()
    done(page)
    expect(page.locator("#count")).to_contain_text("5 rounds for 4 inserted tokens")
    assert len(tokens(page, "y", "inserted")) == 4
    assert "strategy=left_to_right" in page.url


def test_a_link_with_a_strategy_that_the_model_lacks_says_why(new_page: NewPage) -> None:
    page = new_page("/#do=sample&strategy=left_to_right", reduced_motion="reduce")
    expect(page.get_by_role("alert")).to_contain_text("trained with left_to_right among its orders")
