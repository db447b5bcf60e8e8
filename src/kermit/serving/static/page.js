// The page: two texts, what to do with them, and the rounds that it took.

import { Player } from "./rounds.js";
import { Problem, ask, keepToken, models } from "./service.js";

const BLANK = /_{4,}/g;
const OPTIONS = ["strategy", "termination_penalty", "temperature", "top_k", "top_p", "max_tokens"];
const FIELDS = ["x", "y", "seed", ...OPTIONS];
const ACTIONS = {
  "to-y": { path: "v1/translate", needs: ["y_given_x", "joint"], body: ({ x }) => ({ texts: [x], to: "y" }) },
  "to-x": { path: "v1/translate", needs: ["x_given_y", "joint"], body: ({ y }) => ({ texts: [y], to: "x" }) },
  infill: { path: "v1/infill", needs: [], body: ({ x, y }) => ({ x: [x], y: [y] }) },
  complete: { path: "v1/complete", needs: ["joint"], body: ({ x, y }) => ({ x: [x], y: [y] }) },
  sample: { path: "v1/sample", needs: ["joint"], body: () => ({}) },
};

const part = (id) => document.getElementById(id);
const buttons = [...document.querySelectorAll("[data-do]")];
const player = new Player(
  {
    play: part("play"),
    back: part("back"),
    forward: part("forward"),
    slider: part("slider"),
    place: part("place"),
    count: part("count"),
    texts: [part("text-x"), part("text-y")],
  },
  () => matchMedia("(prefers-reduced-motion: reduce)").matches,
);
let model = null;
let asked = null; // what was last asked, as the link has it
let running = null;

/** What is wrong with what is asked, before the service is bothered; null if nothing is. */
function complaint(state) {
  const wrong = FIELDS.find((name) => part(name).validity && !part(name).validity.valid);
  if (wrong) return `${wrong.replaceAll("_", " ")}: ${part(wrong).validationMessage}`;
  if (state.do === "infill" && !`${state.x} ${state.y}`.match(BLANK)) {
    return "there is no blank to fill; write ____ where text is to be inserted";
  }
  const given = { "to-y": "x", "to-x": "y" }[state.do];
  if (given && state[given].trim() === "") return `there is nothing to translate; write some ${name(given)} first`;
  if (given && state[given].match(BLANK)) {
    return `the ${name(given)} text has blanks; fill them first, or complete both sides`;
  }
  return null;
}

/** What a side is called. */
function name(side) {
  return part(`name-${side}`).textContent;
}

function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

function say(error) {
  part("error").textContent = error ?? "";
  part("error").hidden = !error;
}

/** The settings that were changed, as the service wants them. */
function options(state) {
  const chosen = OPTIONS.filter((option) => state[option]);
  return Object.fromEntries(chosen.map((option) => [option, option === "strategy" ? state[option] : Number(state[option])]));
}

/** Ask the service, show the rounds, and put the result into the texts. */
async function run(state) {
  const wrong = complaint(state);
  say(wrong);
  if (wrong) return;
  running?.abort();
  const controller = (running = new AbortController());
  remember(state);
  const focused = document.activeElement;
  buttons.forEach((button) => (button.disabled = true));
  part("main").setAttribute("aria-busy", "true");
  part("status").textContent = "Waiting for the model …";
  try {
    const { path, body } = ACTIONS[state.do];
    const request = { ...body(state), ...options(state), seed: Number(state.seed) };
    const result = await ask(path, request, controller.signal, (event, data) => {
      part("rounds").hidden = false;
      if (event === "start") player.begin(data);
      if (event === "round") player.add(data.insertions);
    });
    if (result.rounds === 0) player.begin(result.trace);
    part("rounds").hidden = false;
    player.end(result);
    for (const side of ["x", "y"]) if (result[side] !== null) part(side).value = result[side];
    part("status").textContent = `Done. ${untrained(state.do)}`;
  } catch (error) {
    if (error.name === "AbortError") return;
    part("status").textContent = "";
    player.breakOff();
    if (error instanceof Problem && error.status === 401) part("token-row").hidden = false;
    say(error.message);
  } finally {
    if (running === controller) {
      buttons.forEach((button) => (button.disabled = false));
      part("main").setAttribute("aria-busy", "false");
      if (document.activeElement === document.body) focused.focus(); // a disabled button cannot keep it
    }
  }
}

function untrained(action) {
  const { needs } = ACTIONS[action];
  const trained = model?.factorizations;
  if (!trained || needs.length === 0 || needs.some((need) => trained.includes(need))) return "";
  return `The model was not trained for this (${needs[0].replaceAll("_", " ")}), so it may make little sense.`;
}

/** What the page holds, and what is to be done with it. */
function state(action) {
  const fields = Object.fromEntries(FIELDS.map((field) => [field, part(field).value]));
  return { do: action, ...fields };
}

/** Put what is asked into the address, so that it can be shared and gone back to. */
function remember(state) {
  asked = state;
  const used = Object.entries(state).filter(([, value]) => value !== "");
  const hash = `#${new URLSearchParams(used)}`;
  if (location.hash !== hash) history.pushState(null, "", hash);
  part("link").href = hash;
}

/** Fill the page from the address and do what it says. */
function recall() {
  const linked = new URLSearchParams(location.hash.slice(1));
  if (!Object.hasOwn(ACTIONS, linked.get("do"))) return;
  for (const field of FIELDS) part(field).value = linked.get(field) ?? (field === "seed" ? "0" : "");
  run(state(linked.get("do")));
}

function press(action) {
  if (buttons[0].disabled) return;
  if (part("fresh").checked) part("seed").value = crypto.getRandomValues(new Uint32Array(1))[0];
  run(state(action));
}

/** Learn what the model is called, which languages it knows and how it can decode. */
async function introduce() {
  try {
    [model] = await models();
    part("token-row").hidden = true;
    say(null);
  } catch (error) {
    if (error.status === 401) part("token-row").hidden = false;
    say(error.message);
    return false;
  }
  const { x, y } = model.languages;
  for (const [side, code] of [["x", x], ["y", y]]) {
    part(`name-${side}`).textContent = languageName(code);
    part(`text-${side}`).setAttribute("aria-label", `${languageName(code)}, token by token`);
    if (code.length > 1) part(side).lang = part(`text-${side}`).lang = code;
  }
  document.querySelector("[data-do=to-y]").textContent = `Translate to ${name("y")} →`;
  document.querySelector("[data-do=to-x]").textContent = `← Translate to ${name("x")}`;
  for (const option of part("strategy").options) {
    option.disabled = option.value !== "" && !model.strategies.includes(option.value);
  }
  part("about").textContent = `${model.name}: ${name("x")} and ${name("y")}, by insertion.`;
  return true;
}

buttons.forEach((button) => button.addEventListener("click", () => press(button.dataset.do)));
for (const [side, action] of [["x", "to-y"], ["y", "to-x"]]) {
  part(side).addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) press(action);
  });
}
part("restore").addEventListener("click", () => {
  for (const side of ["x", "y"]) part(side).value = asked[side];
  part("x").focus();
});
part("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(part("link").href);
    part("status").textContent = "The link is copied.";
  } catch {
    part("status").textContent = "The browser does not allow copying; take the link beside the button.";
  }
});
part("token-row").addEventListener("submit", async (event) => {
  event.preventDefault();
  keepToken(part("token").value);
  if (await introduce()) recall();
});
addEventListener("popstate", recall);
if (await introduce()) recall();
