// The page: two texts, the actions on them, and the rounds, played in place of the texts.

import { ACTIONS, WARNINGS, body, caution, complaint, label, primary } from "./actions.js";
import { CanvasView } from "./canvas.js";
import { Choices } from "./choices.js";
import { button, element } from "./element.js";
import { chips, examples } from "./examples.js";
import { about, languageName } from "./model.js";
import { picture, save } from "./picture.js";
import { Player } from "./player.js";
import { inserted } from "./record.js";
import { Problem, alternatives, ask, keepToken, models } from "./service.js";

const SIDES = ["x", "y"];
const WORDS = ["strategy", "ranking"];
const NUMBERS = ["candidates", "termination_penalty", "temperature", "top_k", "top_p", "max_tokens"];
const FIELDS = [...SIDES, "seed", ...WORDS, ...NUMBERS];
const KEPT = ["segment", "begun"]; // set by an example or a picked word; not shown in a field

const part = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

let model = null;
let names = ["x", "y"];
let source = "x"; // the side edited last
let running = null;
let shown = null; // what the canvas shows: the requested state, its texts, gaps and parts

const player = new Player(
  Object.fromEntries(["play", "back", "forward", "slider", "place"].map((id) => [id, part(id)])),
  draw,
  still,
);
const views = SIDES.map((side, number) => new CanvasView(part(`text-${side}`), number, choose));
const choices = new Choices(part("choices"));

// ------------------------------------------------------------------------------------------- texts, or their canvas

/** Show the canvas in place of the texts, or the texts in place of the canvas. */
function show(canvas) {
  for (const side of SIDES) {
    part(side).hidden = canvas;
    part(`text-${side}`).hidden = !canvas;
    document.querySelector(`[data-edit=${side}]`).hidden = !canvas;
  }
}

function edit(side) {
  player.pause();
  choices.close();
  show(false);
  part(side).focus();
}

/** Remove the rounds: they no longer belong to the texts. */
function forget() {
  shown = null;
  player.reset();
  show(false);
  part("rounds").hidden = true;
  say("warning", "");
  part("status").textContent = "";
}

function draw(round) {
  if (!shown) return;
  show(true);
  views.forEach((view, side) => view.draw(player.records, round, shown.gaps, shown.texts[side]));
  const known = player.records.filter(Boolean);
  const count = known.reduce((sum, record) => sum + inserted(record), 0);
  part("count").textContent = `${player.last} round${player.last === 1 ? "" : "s"} for ${count} token${count === 1 ? "" : "s"}`;
  drawTree();
}

function drawTree() {
  const wanted = part("tree").ariaPressed === "true" && player.complete;
  part("picture").hidden = !wanted;
  if (wanted) part("picture").replaceChildren(picture(player.records, names, { layout: "tree", round: player.round, dark: dark.matches }));
}

function say(where, text) {
  part(where).textContent = text;
  part(where).hidden = !text;
}

/** Offer the action that fits the texts first, and the others beside it. */
function offer() {
  const wanted = primary({ x: part("x").value, y: part("y").value }, source);
  part("primary").dataset.do = wanted;
  part("primary").textContent = label(wanted, names);
  const others = Object.keys(ACTIONS).filter((action) => action !== wanted);
  part("secondary").replaceChildren(
    ...others.map((action) =>
      button(
        { className: "second", disabled: part("primary").disabled, attributes: { "data-do": action } },
        label(action, names),
      ),
    ),
  );
}

// -------------------------------------------------------------------------------------------------------- asking

/** The contents of the page, and the action. */
function state(action, more = {}) {
  return { do: action, ...Object.fromEntries(FIELDS.map((field) => [field, part(field).value])), ...more };
}

/** The settings that were changed, in the service's format. */
function options(state) {
  const words = WORDS.filter((name) => state[name]).map((name) => [name, state[name]]);
  const numbers = NUMBERS.filter((name) => state[name]).map((name) => [name, Number(state[name])]);
  return { ...Object.fromEntries([...words, ...numbers]), seed: Number(state.seed) };
}

function unfit() {
  const wrong = FIELDS.find((name) => part(name).validity && !part(name).validity.valid);
  return wrong ? `${wrong.replaceAll("_", " ")}: ${part(wrong).validationMessage}` : null;
}

function busy(yes) {
  part("primary").disabled = yes;
  for (const button of part("secondary").children) button.disabled = yes;
  part("main").setAttribute("aria-busy", String(yes));
}

/** Send a request, play the rounds in place of the texts, and show the result. */
async function run(state) {
  const wrong = unfit() ?? complaint(state, names);
  say("error", wrong ?? "");
  if (wrong) return forget();
  running?.abort();
  const controller = (running = new AbortController());
  remember(state);
  const focused = document.activeElement;
  busy(true);
  choices.close();
  forget();
  part("status").textContent = "Waiting for the model …";
  shown = { state, texts: given(state), gaps: [], parts: [] };
  try {
    const begun = state.begun ? { begun: [JSON.parse(state.begun)] } : {};
    const result = await ask(ACTIONS[state.do].path, { ...body(state), ...options(state), ...begun }, controller.signal, hear);
    finish(state, result);
  } catch (error) {
    if (error.name !== "AbortError") fail(error);
  } finally {
    if (running === controller) {
      busy(false);
      refocus(focused);
    }
  }
}

/** The given texts of the sides; empty for a side that is generated. */
function given(state) {
  const { to } = ACTIONS[state.do];
  return SIDES.map((side) => (side === to || state.do === "sample" ? "" : state[side]));
}

function hear(event, data) {
  part("rounds").hidden = false;
  if (event === "start") player.begin(data, data.sentence);
  if (event === "round") player.add(data.insertions, data.sentence);
}

function finish(state, result) {
  shown.parts = result.sentences ?? [result];
  shown.texts = SIDES.map((side) => result[side] ?? "");
  const { from } = ACTIONS[state.do];
  shown.gaps = result.sentences ? gaps(state[from], result.sentences.map((one) => one[from])) : [];
  const records = shown.parts.map((one) => one.trace);
  part("rounds").hidden = false;
  if (player.records.length === 0) player.replay(records, 0);
  else player.end(records);
  settle(state);
}

/** Put the texts of the canvas into the fields, and report success. */
function settle(state) {
  SIDES.forEach((side, number) => (part(side).value = shown.texts[number]));
  const { from, to } = ACTIONS[state.do];
  if (from) source = from;
  offer();
  const ended = shown.parts.map((one) => WARNINGS[one.finish]).find(Boolean) ?? "";
  say("warning", [ended, caution(state.do, model)].filter(Boolean).join(" "));
  const written = to ? shown.texts[SIDES.indexOf(to)] : shown.texts.filter(Boolean).join(" / ");
  part("status").replaceChildren("Done.", element("span", { className: "heard" }, ` ${written}`)); // for screen readers
}

function fail(error) {
  forget();
  if (error instanceof Problem && error.status === 401) part("token-row").hidden = false;
  say("error", error.message);
}

function refocus(focused) {
  if (document.activeElement !== document.body) return;
  const hidden = SIDES.includes(focused.id) && focused.hidden;
  (hidden ? part(`text-${focused.id}`) : focused.isConnected ? focused : part("primary")).focus();
}

/** The white space between the sentences of a text. */
function gaps(text, sentences) {
  const found = [];
  let end = 0;
  sentences.forEach((sentence, number) => {
    const start = text.indexOf(sentence, end);
    if (number > 0) found.push(start < 0 ? " " : text.slice(end, start));
    end = start < 0 ? end : start + sentence.length;
  });
  return found;
}

// ------------------------------------------------------------------------------------------------- alternatives

/** Show alternatives to a word. */
function choose(token, sentence, word) {
  player.pause();
  const record = player.records[sentence];
  const before = record.rounds.slice(0, token.round - 1);
  const { start, open_slots } = record;
  const strategy = shown.state.strategy ? { strategy: shown.state.strategy } : {};
  const load = () => alternatives({ start, open_slots, rounds: before, slot: token.slot, ...strategy });
  choices.open(token, word, load, (one) => {
    const { token_id, text, log_prob } = one;
    pick([...before, [{ slot: token.slot, token_id, text, log_prob }]], sentence, token.round);
  });
}

/** Decode again with a picked word: the text, or one sentence of it. */
async function pick(begun, sentence, round) {
  const { state, parts } = shown;
  if (parts.length === 1) return run({ ...state, begun: JSON.stringify(begun) });
  const { from, path, to } = ACTIONS[state.do];
  const asked = { texts: [parts[sentence][from]], to, split_sentences: false, begun: [begun], ...options(state) };
  busy(true);
  part("status").textContent = "Waiting for the model …";
  try {
    const result = await ask(path, asked, undefined, () => {});
    shown.parts = parts.map((one, number) => (number === sentence ? result : one));
    const written = shown.parts.map((one, number) => (number === 0 ? "" : (shown.gaps[number - 1] ?? " ")) + one[to]);
    shown.texts[SIDES.indexOf(to)] = written.join("");
    player.replay(shown.parts.map((one) => one.trace), round);
    settle(state);
  } catch (error) {
    fail(error);
  } finally {
    busy(false);
  }
}

// ------------------------------------------------------------------------------------------------- address, model

/** Put the request into the address, so that it can be shared and bookmarked. */
function remember(state) {
  const used = Object.entries(state).filter(([, value]) => value !== "" && value !== undefined);
  const hash = `#${new URLSearchParams(used)}`;
  if (location.hash !== hash) history.pushState(null, "", hash);
  part("link").href = hash;
}

/** Fill the page from the address and run its request; returns whether it has one. */
function recall() {
  const linked = new URLSearchParams(location.hash.slice(1));
  const action = linked.get("do");
  if (!Object.hasOwn(ACTIONS, action)) return false;
  for (const field of FIELDS) part(field).value = linked.get(field) ?? (field === "seed" ? "0" : "");
  run(state(action, Object.fromEntries(KEPT.map((name) => [name, linked.get(name) ?? ""]))));
  return true;
}

function press(action, more) {
  if (part("primary").disabled) return;
  if (part("fresh").checked) part("seed").value = crypto.getRandomValues(new Uint32Array(1))[0];
  run(state(action, more));
}

/** Run an example. */
function start(example) {
  for (const side of SIDES) part(side).value = example[side];
  source = ACTIONS[example.do].from ?? "x";
  offer();
  press(example.do, { segment: example.segment ?? "" });
}

/** Load the model's name, languages and strategies. */
async function introduce() {
  try {
    [model] = await models();
    part("token-row").hidden = true;
    say("error", "");
  } catch (error) {
    if (error.status === 401) part("token-row").hidden = false;
    say("error", error.message);
    return false;
  }
  names = SIDES.map((side) => languageName(model.languages[side]));
  SIDES.forEach((side, number) => {
    part(`name-${side}`).textContent = names[number];
    part(`text-${side}`).setAttribute("aria-label", `${names[number]}, word by word`);
    const code = model.languages[side];
    if (code.length > 1) part(side).lang = part(`text-${side}`).lang = code;
  });
  for (const option of part("strategy").options) {
    option.disabled = option.value !== "" && !model.strategies.includes(option.value);
  }
  part("candidates").max = model.candidates;
  part("about").textContent = about(model, names);
  part("examples").replaceChildren(...chips(examples(model.languages, names), start));
  part("examples").hidden = false;
  busy(false);
  offer();
  return true;
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    part("status").textContent = `${what} copied.`;
  } catch {
    part("status").textContent = "The browser does not allow copying.";
  }
}

// ------------------------------------------------------------------------------------------------------- listeners

document.addEventListener("click", ({ target }) => {
  const { do: action, edit: side, copy: copied, save: kind } = target.dataset ?? {};
  if (action) press(action);
  if (side) edit(side);
  if (copied) copy(part(copied).value, `${names[SIDES.indexOf(copied)]} text`);
  if (kind) {
    const layout = part("tree").ariaPressed === "true" ? "tree" : "rounds";
    save(picture(player.records, names, { layout, title: shown.texts.filter(Boolean).join(" / ") }), kind);
  }
});
for (const side of SIDES) {
  part(side).addEventListener("input", () => {
    source = side;
    if (shown) forget();
    say("error", "");
    offer();
  });
  part(side).addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) press(part("primary").dataset.do);
  });
  part(`text-${side}`).addEventListener("click", () => edit(side));
  part(`text-${side}`).addEventListener("keydown", ({ key }) => {
    if (key === "Escape") edit(side);
  });
}
part("swap").addEventListener("click", () => {
  source = source === "x" ? "y" : "x";
  part("sides").append(part("sides").firstElementChild);
  offer();
});
part("clear").addEventListener("click", () => {
  forget();
  for (const side of SIDES) part(side).value = "";
  say("error", "");
  offer();
  part("sides").querySelector("textarea").focus();
});
part("tree").addEventListener("click", () => {
  part("tree").ariaPressed = String(part("tree").ariaPressed !== "true");
  drawTree();
});
dark.addEventListener("change", drawTree);
part("restore").addEventListener("click", () => {
  const { state } = shown;
  for (const side of SIDES) part(side).value = state[side];
  forget();
  offer();
  part(source).focus();
});
part("copy").addEventListener("click", () => copy(part("link").href, "Link"));
part("token-row").addEventListener("submit", async (event) => {
  event.preventDefault();
  keepToken(part("token").value);
  await welcome();
});
addEventListener("popstate", () => recall() || forget());

/** Introduce the model, then run the request in the address, or an example. */
async function welcome() {
  if (!(await introduce()) || recall()) return;
  const [first] = examples(model.languages, names).Translate ?? [];
  if (first) {
    part("fresh").checked = false;
    start(first);
    part("fresh").checked = true;
  }
}

await welcome();
