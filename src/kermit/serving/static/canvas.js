// One side of the canvas, drawn where its text is: given words, inserted words, and those that are new in this round.

import { isOpen, percent, spaceBefore, tokensAfter, visible } from "./record.js";

/** Draws one side and lets the reader go over its inserted words. */
export class CanvasView {
  /** root: the element to draw into; side: 0 or 1; onPick(token, sentence, element): an inserted word was chosen. */
  constructor(root, side, onPick) {
    Object.assign(this, { root, side, onPick });
    root.addEventListener("keydown", (event) => this.#move(event));
    for (const kind of ["pointerover", "focusin"]) root.addEventListener(kind, (event) => this.#aim(event));
  }

  /**
   * Draw records after a round.
   *
   * gaps: what stands between the sentences; whole: the text of a side into which nothing is inserted.
   */
  draw(records, round, gaps, whole) {
    const known = records.filter(Boolean);
    if (!known.some((record) => isOpen(record, this.side))) {
      const given = document.createElement("span");
      given.className = "token given";
      given.textContent = whole;
      this.root.replaceChildren(given);
      return;
    }
    const parts = records.flatMap((record, sentence) => {
      if (!record) return [];
      const tokens = tokensAfter(record, this.side, round);
      const now = Math.min(round, record.rounds.length);
      const drawn = tokens.flatMap((token, place) => [
        place === 0 ? "" : spaceBefore(token.text),
        this.#element(token, sentence, now),
      ]);
      return sentence === 0 ? drawn : [gaps[sentence - 1] ?? " ", ...drawn];
    });
    this.root.replaceChildren(...parts);
    const first = this.root.querySelector(".inserted");
    if (first) first.tabIndex = 0; // one stop for the tab key; the arrow keys go on from there
  }

  #element(token, sentence, now) {
    const text = visible(token.text);
    if (token.round === 0) {
      const span = document.createElement("span");
      span.className = "token given";
      span.textContent = text;
      return span;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.className = "token inserted";
    button.classList.toggle("now", token.round === now);
    button.style.setProperty("--doubt", `${Math.round(100 * (1 - Math.exp(token.logProb)))}%`);
    button.dataset.tip = `${percent(token.logProb)}, round ${token.round}`;
    button.tabIndex = -1;
    button.setAttribute("aria-label", `${text}, inserted in round ${token.round}, ${percent(token.logProb)}`);
    button.setAttribute("aria-haspopup", "dialog");
    button.addEventListener("click", (event) => {
      event.stopPropagation();
      this.onPick(token, sentence, button);
    });
    return button;
  }

  /** Have the tip of a token on the right open to the left, so that it stays on the page. */
  #aim({ target }) {
    if (target !== this.root) target.classList.toggle("right", target.offsetLeft > this.root.clientWidth / 2);
  }

  #move(event) {
    const tokens = [...this.root.querySelectorAll(".inserted")];
    const here = tokens.indexOf(document.activeElement);
    const steps = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tokens.length - 1 };
    const next = tokens[steps[event.key]];
    if (here < 0 || next === undefined) return;
    event.preventDefault();
    tokens[here].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
