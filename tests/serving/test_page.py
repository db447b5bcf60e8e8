"""The page in a real browser, Debian's Chromium, driven by Playwright. Skipped without Chromium."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image
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
    """Open the page with some browser settings; no script error and no violation of the content policy is allowed."""
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
    """The page with reduced motion, after the first example was played."""
    page = new_page(reduced_motion="reduce")
    done(page)
    return page


def tokens(page: Page, side: str, kind: str) -> list[str]:
    return page.locator(f"#text-{side} .{kind}").all_inner_texts()


def done(page: Page) -> None:
    expect(page.locator("#status")).to_contain_text("Done.")


def button(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


def write(page: Page, x: str, y: str = "") -> None:
    """Clear the page and enter both texts."""
    button(page, "Clear").click()
    page.locator("#x").fill(x)
    if y:
        page.locator("#y").fill(y)


def run(page: Page, x: str, y: str = "", action: str | None = None) -> None:
    """Enter texts and run the primary action, or another one."""
    write(page, x, y)
    (page.locator("#primary") if action is None else button(page, action)).click()
    done(page)


def slider(page: Page) -> Any:
    return page.get_by_role("slider", name="Round")


# --------------------------------------------------------------------------------------------------- the first view


def test_the_first_view_explains_itself(page: Page) -> None:
    expect(page.locator("header")).to_contain_text("by inserting words anywhere")
    expect(page.locator("#about")).to_contain_text(
        re.compile(r"^by-heart \(\d+k parameters\)\. A model of English and")
    )
    for group in ("Translate", "Fill blanks", "Complete", "Sample"):
        assert page.get_by_role("group", name=group, exact=True).get_by_role("button").count() == 3
    assert tokens(page, "x", "given") == ["Two dogs are playing in the snow."]
    assert tokens(page, "y", "inserted")
    expect(slider(page)).to_have_value(re.compile("[1-9]"))
    expect(page.locator("#primary")).to_have_text("Translate to German")


def test_the_page_shows_the_title_and_summary_of_the_model_card(
    new_page: NewPage, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "carded")
    card = "---\nlanguage: en\n---\n\n# Four pairs\n\nKnows *exactly* four\n[pairs](x.md) by heart.\n\n## More\n"
    (tmp_path / "carded" / "README.md").write_text(card)
    with running(Kermit.from_pretrained(tmp_path / "carded", device="cpu")) as live:
        page = new_page(url=live.url, reduced_motion="reduce")
        about = page.locator("#about")
        expect(about).to_contain_text("Four pairs (carded,")
        expect(about).to_contain_text("Knows *exactly* four pairs by heart.")


def test_an_example_plays_when_its_chip_is_clicked(page: Page) -> None:
    button(page, "A man ____ a red ____.").click()
    done(page)
    assert page.input_value("#x") == PAIRS[2][0]
    assert "do=infill" in page.url
    button(page, "German only").click()
    expect(page.locator("#x")).to_have_value("")
    done(page)
    assert page.input_value("#y")
    assert "segment=y" in page.url


# -------------------------------------------------------------------------------------------------------- actions


@pytest.mark.parametrize(
    ("x", "y", "label"),
    [
        ("A dog", "", "Translate to German"),
        ("", "Ein Hund", "Translate to English"),
        ("A ____", "", "Fill the blanks"),
        ("A dog", "Ein ____", "Fill the blanks"),
        ("", "", "Sample pair"),
        ("A dog", "Ein Hund", "Translate to English"),
    ],
)
def test_the_primary_action_depends_on_the_typed_text(page: Page, x: str, y: str, label: str) -> None:
    write(page, x, y)
    expect(page.locator("#primary")).to_have_text(label)
    others = page.locator("#secondary button").all_inner_texts()
    assert len({*others, label}) == 5


def test_it_translates_in_both_directions(page: Page) -> None:
    run(page, PAIRS[2][0])
    assert page.input_value("#y") == PAIRS[2][1]
    run(page, "", PAIRS[3][1])
    assert page.input_value("#x") == PAIRS[3][0]
    assert tokens(page, "y", "given") == [PAIRS[3][1]]
    assert tokens(page, "y", "inserted") == []
    assert "".join(tokens(page, "x", "inserted")) == PAIRS[3][0].replace(" ", "")


def test_the_result_appears_once_in_place_of_the_text(page: Page) -> None:
    run(page, PAIRS[2][0])
    expect(page.locator("#y")).to_be_hidden()
    expect(page.locator("#text-y")).to_have_text(PAIRS[2][1])
    seen = page.locator("#status").evaluate("status => status.childNodes[0].textContent")
    assert seen == "Done."
    expect(page.locator("#status .heard")).to_have_text(PAIRS[2][1])  # for screen readers
    page.locator("#text-y").click(position={"x": 5, "y": 120})
    expect(page.locator("#y")).to_be_focused()
    expect(page.locator("#y")).to_have_value(PAIRS[2][1])
    slider(page).press("ArrowLeft")  # the rounds are still there
    expect(page.locator("#text-y")).to_be_visible()
    button(page, "Edit").first.click()
    page.locator("#x").fill("A dog")
    expect(page.locator("#rounds")).to_be_hidden()  # they no longer belong to this text


def test_it_fills_blanks_and_marks_given_words_without_relying_on_colour(page: Page) -> None:
    run(page, "A man ____ a red ____.", "Ein Mann fährt ein ____ Rad.")
    assert (page.input_value("#x"), page.input_value("#y")) == PAIRS[2]
    assert tokens(page, "x", "inserted") == ["rides", "bike"]
    assert tokens(page, "x", "given") == ["A", "man", "a", "red", "."]
    assert tokens(page, "y", "inserted") == ["rotes"]
    look = "element => { const s = getComputedStyle(element); return [s.fontWeight, s.textDecorationLine] }"
    assert page.locator("#text-x .given").first.evaluate(look) == ["700", "none"]
    assert page.locator("#text-x .inserted").first.evaluate(look) == ["400", "underline"]
    button(page, "Restore my input").click()
    assert page.input_value("#x") == "A man ____ a red ____."
    expect(page.locator("#primary")).to_have_text("Fill the blanks")


def test_a_long_text_is_translated_sentence_by_sentence(page: Page) -> None:
    run(page, f"{PAIRS[0][0]} {PAIRS[2][0]}\n{PAIRS[1][0]}")
    assert page.input_value("#y") == f"{PAIRS[0][1]} {PAIRS[2][1]}\n{PAIRS[1][1]}"
    assert page.locator("#text-y").inner_text() == page.input_value("#y")
    slider(page).fill("1")
    assert len(tokens(page, "y", "now")) == 3  # one word of each


def test_texts_can_be_swapped_copied_and_cleared(new_page: NewPage) -> None:
    page = new_page(reduced_motion="reduce", permissions=["clipboard-read", "clipboard-write"])
    done(page)
    run(page, PAIRS[2][0])
    button(page, "Copy").last.click()
    expect(page.locator("#status")).to_have_text("German text copied.")
    assert page.evaluate("navigator.clipboard.readText()") == PAIRS[2][1]
    button(page, "⇄ Swap").click()
    left, right = page.locator("#text-y").bounding_box(), page.locator("#text-x").bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] < right["x"]
    expect(page.locator("#primary")).to_have_text("Translate to English")
    button(page, "Clear").click()
    assert (page.input_value("#x"), page.input_value("#y")) == ("", "")
    expect(page.locator("#rounds")).to_be_hidden()
    expect(page.locator("#y")).to_be_focused()


def test_the_best_of_several_candidates_is_shown_with_its_rounds(page: Page) -> None:
    page.get_by_text("Decoding options").click()
    page.get_by_label("Candidates").fill("4")
    page.get_by_label("Ranking").select_option("both_ways")
    run(page, PAIRS[2][0])
    assert page.input_value("#y") == PAIRS[2][1]
    assert "candidates=4" in page.url
    assert "ranking=both_ways" in page.url
    expect(slider(page)).to_have_value("4")


# --------------------------------------------------------------------------------------------------------- rounds


def test_the_rounds_can_be_stepped_through(page: Page) -> None:
    run(page, PAIRS[2][0])
    expect(slider(page)).to_have_value("4")  # with reduced motion the end is shown at once
    expect(page.locator("#count")).to_have_text("4 rounds for 7 tokens")
    slider(page).fill("0")
    assert tokens(page, "y", "inserted") == []
    shown = []
    for number in range(1, 4):
        button(page, "One round forward").click()
        expect(page.locator("#place")).to_have_text(f"round {number} of 4")
        shown.append((len(tokens(page, "y", "inserted")), len(tokens(page, "y", "now"))))
    assert shown == [(1, 1), (3, 2), (7, 4)]
    button(page, "One round back").click()
    assert len(tokens(page, "y", "inserted")) == 3
    slider(page).press("ArrowLeft")
    assert len(tokens(page, "y", "inserted")) == 1
    button(page, "Play").click()
    expect(button(page, "Pause")).to_be_visible()
    expect(slider(page)).to_have_value("4")
    expect(button(page, "Play")).to_be_visible()  # it stops at the end


def test_the_probability_of_a_token_is_available_to_mouse_and_keyboard(page: Page) -> None:
    run(page, PAIRS[0][0])
    first, second = page.locator("#text-y .inserted").nth(0), page.locator("#text-y .inserted").nth(1)
    tip = "element => getComputedStyle(element, '::after').content"
    page.mouse.move(0, 0)
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


def test_the_tree_is_a_second_view_and_pictures_can_be_saved(page: Page, tmp_path: Path) -> None:
    run(page, PAIRS[2][0])
    expect(page.locator("#picture")).to_be_hidden()
    saved = {}
    for layout in ("rounds", "tree"):
        for kind in ("SVG", "PNG"):
            with page.expect_download() as download:
                button(page, f"Save {kind}").click()
            assert download.value.suggested_filename == f"kermit.{kind.lower()}"
            saved[layout, kind] = tmp_path / f"{layout}.{kind}"
            download.value.save_as(saved[layout, kind])
        if layout == "rounds":
            button(page, "Tree").click()
            expect(page.locator("#picture svg")).to_be_visible()
    assert page.locator("#picture svg path").count() == 6  # seven tokens, one of them the root
    slider(page).fill("2")
    assert page.locator("#picture svg path").count() == 2
    for layout, rows in (("rounds", 3), ("tree", 1)):
        svg = ElementTree.parse(saved[layout, "SVG"]).getroot()
        texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
        assert texts.count("Mann") == rows
        assert {"English", "German", "given"} <= set(texts)
        image = Image.open(saved[layout, "PNG"])
        assert image.size == (2 * int(svg.get("width") or 0), 2 * int(svg.get("height") or 0))
        assert len(image.convert("RGB").getcolors(2**20) or []) > 10


# --------------------------------------------------------------------------------------------------- alternatives


def test_another_word_can_be_picked_and_the_rest_is_decoded_around_it(page: Page) -> None:
    run(page, PAIRS[2][0])
    slider(page).fill("1")
    (root,) = tokens(page, "y", "inserted")
    page.locator("#text-y .inserted").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Instead of “{root}”")
    expect(dialog).to_contain_text("Nothing more belongs here")
    options = dialog.locator("li button")
    expect(options).to_have_count(8)
    expect(options.nth(0)).to_be_disabled()  # it is there already
    expect(options.nth(1)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(options.nth(2)).to_be_focused()
    page.keyboard.press("ArrowUp")
    picked = options.nth(1).locator("span").first.inner_text()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("#y")).not_to_have_value(PAIRS[2][1])
    done(page)
    slider(page).fill("1")
    assert tokens(page, "y", "inserted") == [picked]
    page.go_back()
    expect(page.locator("#y")).to_have_value(PAIRS[2][1])


def test_a_word_of_one_sentence_can_be_picked_and_the_others_stay(page: Page) -> None:
    run(page, f"{PAIRS[1][0]} {PAIRS[2][0]}")
    before = page.input_value("#y")
    assert before.startswith(PAIRS[1][1])
    page.locator("#text-y .inserted").last.click()
    page.get_by_role("dialog").locator("li button:not(:disabled)").first.click()
    expect(page.locator("#y")).not_to_have_value(before)
    assert page.input_value("#y").startswith(PAIRS[1][1])
    done(page)


def test_alternatives_close_on_escape_or_a_click_elsewhere_and_return_the_focus(page: Page) -> None:
    word = page.locator("#text-y .inserted").first
    dialog = page.get_by_role("dialog")
    word.focus()
    page.keyboard.press("Enter")
    expect(dialog.locator("li button").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(word).to_be_focused()
    word.click()
    expect(dialog).to_be_visible()
    page.locator("h1").click()
    expect(dialog).to_be_hidden()


# ---------------------------------------------------------------------------------------- links, errors, keyboard


def test_a_sample_can_be_shared_by_link_and_restored_with_back(page: Page, new_page: NewPage, live: Live) -> None:
    run(page, "", "")
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
    run(page, "... dog", action="Complete both sides")
    assert "dog" in tokens(page, "x", "given")
    page.go_back()
    expect(page.locator("#x")).to_have_value(drawn[0])
    expect(page.locator("#y")).to_have_value(drawn[1])


def test_an_error_replaces_the_result_and_its_rounds(page: Page) -> None:
    alert = page.get_by_role("alert")
    expect(alert).to_be_hidden()
    expect(page.locator("#rounds")).to_be_visible()
    write(page, "")
    button(page, "Translate to German").click()
    expect(alert).to_have_text("Nothing to translate; write some English text first.")
    run(page, "A dog sleeps.")
    expect(alert).to_be_hidden()
    button(page, "Fill the blanks").click()
    expect(alert).to_contain_text("No blank to fill")
    expect(page.locator("#rounds")).to_be_hidden()
    expect(page.locator("#status")).to_have_text("")
    run(page, "A dog sleeps.")
    write(page, "x" * 90)
    page.locator("#primary").click()
    expect(alert).to_have_text("texts.0: the text has 90 tokens, but may have at most 64; shorten or split it")
    expect(page.locator("#rounds")).to_be_hidden()
    expect(page.locator("#status")).to_have_text("")
    expect(page.locator("#x")).to_have_value("x" * 90)
    page.get_by_text("Decoding options").click()
    page.get_by_label("Top p").fill("7")
    button(page, "Sample pair").click()
    expect(alert).to_contain_text("top p:")
    page.get_by_label("Top p").fill("0.9")
    button(page, "Sample pair").click()
    done(page)
    expect(alert).to_be_hidden()


def test_a_text_that_reached_a_limit_is_shown_with_a_warning(page: Page) -> None:
    warning = page.locator("#warning")
    run(page, PAIRS[2][0])
    expect(warning).to_be_hidden()
    page.get_by_text("Decoding options").click()
    page.get_by_label("Maximum tokens").fill("3")
    run(page, PAIRS[2][0])
    expect(warning).to_have_text("The text reached the maximum number of tokens and may be incomplete.")


def test_it_can_be_used_with_the_keyboard_only(page: Page) -> None:
    button(page, "Clear").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#x")).to_be_focused()
    page.keyboard.type(PAIRS[1][0])
    page.keyboard.press("Control+Enter")
    expect(page.locator("#y")).to_have_value(PAIRS[1][1])
    expect(page.locator("#text-x")).to_be_focused()  # where the text was
    page.keyboard.press("Escape")
    expect(page.locator("#x")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.locator("#y")).to_be_focused()
    for name in ("Translate to German", "Translate to English", "Fill the blanks", "Complete both sides"):
        page.keyboard.press("Tab")
        expect(button(page, name)).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#link")).to_have_attribute("href", re.compile("do=sample"))
    done(page)
    expect(page.locator("#primary")).to_be_focused()  # the button that was pressed is another one now


def test_while_it_waits_the_buttons_are_disabled_and_the_rounds_play_by_themselves(
    new_page: NewPage, live: Live
) -> None:
    page = new_page()
    done(page)
    write(page, PAIRS[2][0])
    page.evaluate(
        """() => {
          const place = document.getElementById("place");
          window.seen = [];
          new MutationObserver(() => seen.push(place.textContent)).observe(place, { childList: true });
        }"""
    )
    with held(live.service):
        page.locator("#primary").click()
        expect(page.locator("#status")).to_have_text("Waiting for the model …")
        expect(button(page, "Sample pair")).to_be_disabled()
        expect(page.locator("#main")).to_have_attribute("aria-busy", "true")
    expect(page.locator("#place")).to_have_text("round 4 of 4")
    expect(button(page, "Sample pair")).to_be_enabled()
    seen = [text for text in page.evaluate("seen") if text.endswith("of 4")]
    assert list(dict.fromkeys(seen)) == [f"round {number} of 4" for number in range(1, 5)]


CONTRAST = """() => {
  const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const paint = (...colours) => {
    brush.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      brush.fillStyle = colour;
      brush.fillRect(0, 0, 1, 1);
    }
    const [r, g, b] = [...brush.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const grounds = (element) => {
    const own = getComputedStyle(element).backgroundColor;
    return element.parentElement ? [...grounds(element.parentElement), own] : [own];
  };
  const found = {};
  document.querySelector(".now").style.setProperty("--doubt", "100%"); // as unsure as can be
  for (const name of ["body", ".quiet", "button", ".chip", "textarea", ".given", ".inserted", ".now", "a", "#error"]) {
    const element = document.querySelector(name);
    const [a, b] = [paint(getComputedStyle(element).color), paint(...grounds(element))].sort((p, q) => q - p);
    found[name] = (a + 0.05) / (b + 0.05);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_it_fits_and_is_readable_in_light_and_dark(new_page: NewPage, scheme: str) -> None:
    page = new_page(
        viewport={"width": 360, "height": 720}, has_touch=True, color_scheme=scheme, reduced_motion="reduce"
    )
    done(page)
    run(page, PAIRS[3][0])
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    left, right = page.locator("#text-x").bounding_box(), page.locator("#text-y").bounding_box()
    assert left is not None
    assert right is not None
    assert right["y"] > left["y"] + left["height"]
    page.locator("#text-y .inserted").first.tap()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("li button").first).to_be_visible()
    box = dialog.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    assert box["y"] + box["height"] <= 720
    button(page, "Close").tap()
    page.get_by_text("Decoding options").tap()
    for name in ("button:not(.token)", "summary", "select", "input:not([type=checkbox])"):
        sizes = [place.bounding_box() for place in page.locator(name).all() if place.is_visible()]
        assert min(size["height"] for size in sizes if size) >= 38, name  # large enough for a thumb
    contrast = page.evaluate(CONTRAST)
    assert min(contrast.values()) >= 4.5, contrast


def test_the_page_asks_for_the_token_of_a_service_that_has_one(new_page: NewPage, kermit: Kermit) -> None:
    with running(kermit, token="secret") as guarded:
        page = new_page(url=guarded.url, reduced_motion="reduce")
        expect(page.get_by_role("alert")).to_contain_text("token")
        page.get_by_label("Access token").fill("wrong")
        button(page, "Connect").click()
        expect(page.get_by_role("alert")).to_contain_text("token")
        page.get_by_label("Access token").fill("secret")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_be_hidden()
        done(page)


def test_interrupted_rounds_are_replaced_by_the_error(new_page: NewPage, kermit: Kermit) -> None:
    with running(kermit, deadline=3.0) as live:
        page = new_page(url=live.url, reduced_motion="reduce")
        done(page)
        with slowed(live.service):
            write(page, "A dog sleeps")
            page.get_by_text("Decoding options").click()
            page.locator("#termination_penalty").fill("90")
            page.locator("#strategy").select_option("serial")
            page.locator("#primary").click()
            expect(page.locator("#rounds")).to_be_visible()
            expect(page.get_by_role("alert")).to_contain_text("no answer within")
            expect(page.locator("#rounds")).to_be_hidden()
            expect(page.locator("#x")).to_have_value("A dog sleeps")


def test_strategies_that_the_model_was_not_trained_for_cannot_be_selected(page: Page) -> None:
    page.get_by_text("Decoding options").click()
    for strategy in ("", "parallel", "serial"):
        expect(page.locator(f"#strategy option[value='{strategy}']")).to_be_enabled()
    expect(page.locator("#strategy option[value=left_to_right]")).to_be_disabled()


def test_a_model_trained_left_to_right_inserts_one_token_after_the_other(new_page: NewPage, ordered: Live) -> None:
    page = new_page(url=ordered.url, reduced_motion="reduce")
    done(page)
    page.get_by_text("Decoding options").click()
    page.locator("#strategy").select_option("left_to_right")
    page.locator("#termination_penalty").fill("90")
    page.locator("#max_tokens").fill("4")
    run(page, "A dog sleeps.")
    expect(page.locator("#count")).to_have_text("5 rounds for 4 tokens")
    before = tokens(page, "y", "inserted")
    assert len(before) == 4
    assert "strategy=left_to_right" in page.url
    page.locator("#text-y .inserted").nth(1).click()
    page.get_by_role("dialog").locator("li button:not(:disabled)").first.click()
    expect(page.locator("#text-y .inserted").nth(1)).not_to_have_text(before[1])
    assert tokens(page, "y", "inserted")[0] == before[0]


def test_a_link_with_an_unsupported_strategy_shows_the_reason(new_page: NewPage) -> None:
    page = new_page("/#do=sample&strategy=left_to_right", reduced_motion="reduce")
    expect(page.get_by_role("alert")).to_contain_text("trained with left_to_right among its orders")


def test_swagger_lists_the_routes(new_page: NewPage) -> None:
    page = new_page("/docs")
    for route in ("/v1/translate", "/v1/alternatives", "/languages"):
        expect(page.locator(".opblock-summary-path", has_text=route).first).to_be_visible()
