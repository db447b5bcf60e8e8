// Examples to start from; models of languages other than English and German only get those that need no text.

import { button, element } from "./element.js";

const ENGLISH_GERMAN = {
  Translate: [
    { do: "to-y", x: "Two dogs are playing in the snow.", y: "" },
    { do: "to-y", x: "A woman in a red coat is waiting for the bus.", y: "" },
    { do: "to-x", x: "", y: "Ein kleiner Junge springt ins Wasser." },
  ],
  "Fill blanks": [
    { do: "infill", x: "A man ____ a red ____.", y: "" },
    { do: "infill", x: "A ____ is riding a ____ bike.", y: "Ein Mann fährt auf einem roten Fahrrad." },
    { do: "infill", x: "A dog runs through the ____.", y: "Ein ____ läuft durch den Schnee." },
  ],
  Complete: [
    { do: "complete", x: "... guitar ...", y: "... Bühne ..." },
    { do: "complete", x: "... children ... beach ...", y: "" },
    { do: "complete", x: "", y: "... Hund ... Ball ..." },
  ],
};

/** Groups of examples, each a name and three examples. */
export function examples({ x, y }, names) {
  const draw = [
    { do: "sample", x: "", y: "", segment: "", text: "a pair" },
    { do: "sample", x: "", y: "", segment: "x", text: `${names[0]} only` },
    { do: "sample", x: "", y: "", segment: "y", text: `${names[1]} only` },
  ];
  const written = x === "en" && y === "de" ? ENGLISH_GERMAN : {};
  return { ...written, Sample: draw };
}

/** Groups of examples as elements; `start(example)` is called with the chosen one. */
export function chips(groups, start) {
  return Object.entries(groups).map(([title, list]) =>
    element(
      "div",
      { className: "chips", attributes: { role: "group", "aria-label": title } },
      element("span", { className: "quiet" }, title),
      ...list.map((example) => chip(example, start)),
    ),
  );
}

function chip(example, start) {
  const text = example.text ?? [example.x, example.y].filter((side) => side).join(" / ");
  return button({ className: "chip", title: text, onclick: () => start(example) }, text);
}
