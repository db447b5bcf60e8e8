// The actions on two texts: which one is meant, its request, and the checks before it is sent.

const BLANK = /_{4,}/;
const OPEN = /\.{3}|…/; // like a blank, but only for completing, and may stay empty

export const ACTIONS = {
  "to-y": { path: "v1/translate", needs: ["y_given_x", "joint"], from: "x", to: "y" },
  "to-x": { path: "v1/translate", needs: ["x_given_y", "joint"], from: "y", to: "x" },
  infill: { path: "v1/infill", needs: [] },
  complete: { path: "v1/complete", needs: ["joint"] },
  sample: { path: "v1/sample", needs: ["joint"] },
};

/** The action that fits the texts: ... means complete, a blank infill, an empty side translate. */
export function primary({ x, y }, source) {
  if (OPEN.test(x) || OPEN.test(y)) return "complete";
  if (BLANK.test(x) || BLANK.test(y)) return "infill";
  const [hasX, hasY] = [x.trim() !== "", y.trim() !== ""];
  if (!hasX && !hasY) return "sample";
  if (hasX !== hasY) return hasX ? "to-y" : "to-x";
  return source === "y" ? "to-x" : "to-y";
}

/** The label of an action. */
export function label(action, names) {
  return {
    "to-y": `Translate to ${names[1]}`,
    "to-x": `Translate to ${names[0]}`,
    infill: "Fill the blanks",
    complete: "Complete both sides",
    sample: "Sample pair",
  }[action];
}

/** The body of the request, without options. */
export function body(state) {
  const { from, to } = ACTIONS[state.do];
  if (from) return { texts: [state[from]], to };
  if (state.do === "sample") return { segment: state.segment || "both" };
  return { x: [state.x], y: [state.y] };
}

/** What is wrong with the input, or null. */
export function complaint(state, names) {
  const { from } = ACTIONS[state.do];
  if (state.do === "infill" && !BLANK.test(state.x) && !BLANK.test(state.y)) {
    return "No blank to fill; write ____ where text is to be inserted.";
  }
  if (state.do === "complete" && [state.x, state.y].every((text) => text.trim() && !OPEN.test(text) && !BLANK.test(text))) {
    return "No open place; write ... where text may be inserted.";
  }
  if (!from) return null;
  const name = names[from === "x" ? 0 : 1];
  if (state[from].trim() === "") return `Nothing to translate; write some ${name} text first.`;
  if (BLANK.test(state[from])) return `The ${name} text has blanks; fill them first, or complete both sides.`;
  return null;
}

/** A warning if the model was not trained for an action; otherwise empty. */
export function caution(action, model) {
  const { needs } = ACTIONS[action];
  const trained = model?.factorizations;
  if (!trained || needs.length === 0 || needs.some((need) => trained.includes(need))) return "";
  return `The model was not trained for this (${needs[0].replaceAll("_", " ")}); the result may make little sense.`;
}

/** Warnings by the reason why decoding ended. */
export const WARNINGS = {
  max_tokens: "The text reached the maximum number of tokens and may be incomplete.",
  max_rounds: "The text reached the maximum number of rounds and may be incomplete.",
  repetition: "The model began to repeat itself and was stopped; the text may be incomplete.",
  abandoned: "The text was abandoned before it was finished.",
};
