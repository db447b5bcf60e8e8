// Alternatives to an inserted word: a small dialog beside the word, to pick one. Escape or a click elsewhere closes it.

import { button, element } from "./element.js";
import { percent, visible } from "./record.js";

/** Shows alternatives to a word. */
export class Choices {
  /** root: the dialog's element, a popover, with a heading and a list in it. */
  constructor(root) {
    this.root = root;
    this.heading = root.querySelector("h2");
    this.list = root.querySelector("ul");
    root.addEventListener("keydown", (event) => this.#move(event));
  }

  /** Open beside a word; `load()` returns the alternatives, `onPick(alternative)` is called with the chosen one. */
  async open(token, word, load, onPick) {
    this.word = word;
    this.heading.textContent = `Instead of “${visible(token.text)}”`;
    this.list.replaceChildren(this.#note("Loading …"));
    word.focus(); // where the focus returns to
    this.root.togglePopover(true);
    this.#place();
    this.root.querySelector("button").focus();
    let rows;
    try {
      const found = await load();
      rows = found.results.map((one) => this.#row(one, token, onPick));
      rows.push(this.#note(`Nothing more belongs here: ${percent(found.end_log_prob)}`));
    } catch (error) {
      rows = [this.#note(error.message)];
    }
    if (this.word !== word || !this.root.matches(":popover-open")) return;
    this.list.replaceChildren(...rows);
    this.#place();
    this.list.querySelector("button:not(:disabled)")?.focus();
  }

  close() {
    this.root.hidePopover();
  }

  #row(one, token, onPick) {
    const present = one.token_id === token.tokenId;
    const row = button(
      {
        disabled: present,
        title: present ? "The current word" : "",
        style: { "--share": `${(100 * Math.exp(one.log_prob)).toFixed(1)}%` },
      },
      element("span", {}, visible(one.text)),
      element("span", { className: "share" }, percent(one.log_prob)),
    );
    row.addEventListener("click", () => {
      this.close();
      onPick(one);
    });
    return element("li", {}, row);
  }

  #note(text) {
    return element("li", { className: "quiet" }, text);
  }

  /** Place the dialog below the word and inside the page; on a phone, the style sheet puts it at the bottom. */
  #place() {
    const word = this.word.getBoundingClientRect();
    const most = document.documentElement.clientWidth - this.root.offsetWidth - 8;
    this.root.style.left = `${Math.max(8, Math.min(word.left, most)) + scrollX}px`;
    this.root.style.top = `${word.bottom + 6 + scrollY}px`;
    const hidden = word.bottom - this.root.getBoundingClientRect().top;
    if (getComputedStyle(this.root).position === "fixed" && hidden > 0) scrollBy(0, hidden + 40);
  }

  #move(event) {
    const buttons = [...this.root.querySelectorAll("button:not(:disabled)")];
    const here = buttons.indexOf(document.activeElement);
    const steps = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: buttons.length - 1 };
    if (event.key in steps) {
      event.preventDefault();
      buttons[(steps[event.key] + buttons.length) % buttons.length].focus();
    }
  }
}
