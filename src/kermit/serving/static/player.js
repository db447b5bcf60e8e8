// Plays the rounds of a decode: a slider, buttons and a timer. It does not know how a round is drawn.

const PACE = 700; // milliseconds per round

/** Steps through the rounds of one or more records; new rounds may arrive while it plays. */
export class Player {
  /**
   * parts: the elements `play`, `back`, `forward`, `slider` and `place`;
   * onShow(round): draws a round;
   * stillness(): whether the reader prefers reduced motion.
   */
  constructor(parts, onShow, stillness) {
    Object.assign(this, { parts, onShow, stillness });
    this.records = [];
    this.round = 0;
    this.timer = null;
    this.complete = false;
    parts.play.addEventListener("click", () => (this.timer === null ? this.play() : this.pause()));
    parts.back.addEventListener("click", () => this.step(this.round - 1));
    parts.forward.addEventListener("click", () => this.step(this.round + 1));
    parts.slider.addEventListener("input", () => this.step(Number(parts.slider.value)));
  }

  get last() {
    return Math.max(0, ...this.records.filter(Boolean).map((record) => record.rounds.length));
  }

  /** Start without records. */
  reset() {
    this.pause();
    this.records = [];
    this.complete = false;
    this.round = 0;
  }

  /** Add the initial canvas of a sentence. */
  begin(start, sentence) {
    const first = this.records.length === 0;
    this.records[sentence] = { ...start, rounds: [] };
    this.show(this.round);
    if (first && !this.stillness()) this.play();
  }

  /** Add a round of a sentence. */
  add(insertions, sentence) {
    this.records[sentence].rounds.push(insertions);
    this.show(this.round);
  }

  /** Replace the records by the complete ones. */
  end(records) {
    this.records = records;
    this.complete = true;
    this.show(this.timer === null ? this.last : this.round);
  }

  /** Play complete records, starting at a round. */
  replay(records, round) {
    this.pause();
    this.records = records;
    this.complete = true;
    this.show(this.stillness() ? this.last : round);
    if (!this.stillness()) this.play();
  }

  /** Go to a round and stay there. */
  step(round) {
    this.pause();
    this.show(round);
  }

  play() {
    if (this.complete && this.round >= this.last) this.show(0);
    this.#label("Pause");
    this.timer = setInterval(() => {
      if (this.round < this.last) this.show(this.round + 1);
      if (this.complete && this.round >= this.last) this.pause();
    }, PACE);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.#label("Play");
  }

  show(round) {
    this.round = Math.min(Math.max(round, 0), this.last);
    const { slider, place } = this.parts;
    slider.max = this.last;
    slider.value = this.round;
    place.textContent = this.round === 0 ? `start, ${this.last} rounds` : `round ${this.round} of ${this.last}`;
    slider.setAttribute("aria-valuetext", place.textContent);
    this.onShow(this.round);
  }

  #label(text) {
    this.parts.play.textContent = text;
  }
}
