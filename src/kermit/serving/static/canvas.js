// One side of the canvas, drawn in place of its text: given words, inserted words, and those new in this round.

import { button, element } from "./element.js";
import { isOpen, percent, spaceBefore, tokensAfter, visible } from "./record.js";

/** Draws one side and lets the reader navigate its inserted words. */
export class CanvasView {
  /** root: the element to draw into; side: 0 or 1; onPick(token, sentence, element): called for a chosen word. */
  constructor(root, side, onPick) {
    Object.assign(this, { root, side, onPick });
    root.addEventListener("keydown", (event) => this.#move(event));
    for (const kind of ["pointerover", "focusin"]) root.addEventListener(kind, (event) => this.#aim(event));
  }

  /**
   * Draw records after a round.
   *
   * gaps: the white space between the sentences; whole: the text of a side into which nothing is inserted.
   */
  draw(records, round, gaps, whole) {
    const known = records.filter(Boolean);
    if (!known.some((record) => isOpen(record, this.side))) {
      this.root.replaceChildren(element("span", { className: "token given" }, whole));
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
    if (first) first.tabIndex = 0; // one tab stop; the arrow keys move on from there
  }

  #element(token, sentence, now) {
    const text = visible(token.text);
    if (token.round === 0) return element("span", { className: "token given" }, text);
    const sure = percent(token.logProb);
    const word = button(
      {
        className: token.round === now ? "token inserted now" : "token inserted",
        tabIndex: -1,
        style: { "--doubt": `${Math.round(100 * (1 - Math.exp(token.logProb)))}%` },
        attributes: {
          "data-tip": `${sure}, round ${token.round}`,
          "aria-label": `${text}, inserted in round ${token.round}, ${sure}`,
          "aria-haspopup": "dialog",
        },
      },
      text,
    );
    word.addEventListener("click", (event) => {
      event.stopPropagation();
      this.onPick(token, sentence, word);
    });
    return word;
  }

  /** Open the tooltips of tokens on the right to the left, so that they stay on the page. */
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
