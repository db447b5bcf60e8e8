// The rounds of a decode: which tokens stand on the canvas after each, and a player that shows them.

const PACE = 700; // milliseconds a round

/**
 * The tokens of both sides after some rounds.
 *
 * A record is what the service tells: `start_text`, the given tokens by side, and `rounds`, the insertions of each.
 * Slot k is left of token k of `[CLS] x [SEP] y [SEP]`, as it stood before the round.
 */
export function canvasAfter(record, rounds) {
  let row = [{ side: 0, frame: true }];
  record.start_text.forEach((texts, side) => {
    row.push(...texts.map((text) => ({ side, text, round: 0 })), { side, frame: true });
  });
  record.rounds.slice(0, rounds).forEach((insertions, index) => {
    const coming = new Map(insertions.map((insertion) => [insertion.slot, insertion]));
    row = row.flatMap((token, slot) => {
      const new_ = coming.get(slot);
      if (new_ === undefined) return [token];
      return [{ side: token.side, text: new_.text, round: index + 1, logProb: new_.log_prob }, token];
    });
  });
  return [0, 1].map((side) => row.filter((token) => token.side === side && !token.frame));
}

/** A probability for the eye. */
export function percent(logProb) {
  const value = 100 * Math.exp(logProb);
  return value >= 99.95 ? "100 %" : value < 0.1 ? "under 0.1 %" : `${value.toFixed(1)} %`;
}

/** Shows a record round by round; new rounds may come while it plays. */
export class Player {
  constructor(parts, stillness) {
    this.parts = parts;
    this.stillness = stillness; // whether the reader wants no motion
    this.record = null;
    this.round = 0;
    this.timer = null;
    parts.play.addEventListener("click", () => (this.timer === null ? this.play() : this.pause()));
    parts.back.addEventListener("click", () => this.step(this.round - 1));
    parts.forward.addEventListener("click", () => this.step(this.round + 1));
    parts.slider.addEventListener("input", () => this.step(Number(parts.slider.value)));
    for (const text of parts.texts) {
      text.addEventListener("keydown", (event) => this.#move(event));
      for (const kind of ["pointerover", "focusin"]) text.addEventListener(kind, (event) => this.#aim(event));
    }
  }

  /** Begin with the canvas at the start; its rounds are yet to come. */
  begin(start) {
    this.pause();
    this.record = { ...start, rounds: [] };
    this.final = null;
    this.show(0);
    if (!this.stillness()) this.play();
  }

  /** One round more. */
  add(insertions) {
    this.record.rounds.push(insertions);
    this.show(this.round);
  }

  /** All rounds are there. */
  end(result) {
    if (this.record === null || this.record.rounds.length === 0) this.record = result.trace;
    this.final = result;
    this.show(this.timer === null ? this.last : this.round);
  }

  /** No more rounds will come, though the text is not done. */
  breakOff() {
    if (this.record === null || this.final) return;
    this.final = { finish: "an error" };
    this.step(this.last);
  }

  get last() {
    return this.record.rounds.length;
  }

  /** Go to a round and stay there. */
  step(round) {
    this.pause();
    this.show(round);
  }

  play() {
    if (this.final && this.round >= this.last) this.show(0);
    this.parts.play.textContent = "Pause";
    this.timer = setInterval(() => {
      if (this.round < this.last) this.show(this.round + 1);
      if (this.final && this.round >= this.last) this.pause();
    }, PACE);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.parts.play.textContent = "Play";
  }

  show(round) {
    this.round = Math.min(Math.max(round, 0), this.last);
    const { slider, place, count, texts } = this.parts;
    slider.max = this.last;
    slider.value = this.round;
    place.textContent = this.round === 0 ? `start, ${this.last} to come` : `round ${this.round} of ${this.last}`;
    slider.setAttribute("aria-valuetext", place.textContent);
    const inserted = this.record.rounds.reduce((sum, insertions) => sum + insertions.length, 0);
    const bound = Math.log2(inserted + 1).toFixed(2);
    const s = this.last === 1 ? "" : "s";
    count.textContent = `${this.last} round${s} for ${inserted} inserted tokens; log2(${inserted} + 1) = ${bound}`;
    if (this.final && this.final.finish !== "finished") {
      count.textContent += `. Ended by ${this.final.finish}: the text may be incomplete.`;
    }
    canvasAfter(this.record, this.round).forEach((tokens, side) => this.#draw(texts[side], tokens));
  }

  #draw(text, tokens) {
    const parts = tokens.flatMap((token, index) => {
      const bare = token.text.trim();
      const before = index === 0 ? "" : token.text.slice(0, token.text.length - token.text.trimStart().length);
      const span = document.createElement("span");
      span.textContent = bare === "" ? "␣" : bare.replaceAll("\uFFFD", "·"); // · is part of a letter
      span.className = "token";
      span.setAttribute("role", "listitem");
      if (token.round === 0) {
        span.classList.add("given");
        span.setAttribute("aria-label", `${bare}, given`);
      } else {
        const tip = `${percent(token.logProb)}, round ${token.round}`;
        span.classList.add("inserted");
        span.classList.toggle("now", token.round === this.round);
        span.dataset.tip = tip;
        span.tabIndex = -1;
        span.setAttribute("aria-label", `${bare}, inserted in round ${token.round}, ${percent(token.logProb)}`);
      }
      return [before, span];
    });
    text.replaceChildren(...parts);
    const first = text.querySelector(".inserted");
    if (first) first.tabIndex = 0; // one stop for the tab key; the arrow keys go on from there
  }

  /** Have the tip of a token on the right open to the left, so that it stays on the page. */
  #aim({ target, currentTarget }) {
    if (target !== currentTarget) target.classList.toggle("right", target.offsetLeft > currentTarget.clientWidth / 2);
  }

  #move(event) {
    const tokens = [...event.currentTarget.querySelectorAll(".inserted")];
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
