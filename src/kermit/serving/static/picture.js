// Draw a decode as an SVG picture, by its rounds or as its insertion tree, and save it as a file.

import { isOpen, parents, percent, rowAfter, spaceBefore, visible } from "./record.js";

const SPACE = "http://www.w3.org/2000/svg";
const FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
const [SIZE, ROW, MARGIN, GUTTER] = [16, 30, 20, 34];
const LIGHT = { paper: "#ffffff", ink: "#1b1d1c", given: "#7a4100", now: "#0b5a2d", later: "#c4c9c6", note: "#6a716c", tint: "#ffd766" };
const DARK = { paper: "#1e2321", ink: "#eceeec", given: "#f2b866", now: "#93dcac", later: "#4c544f", note: "#9aa39d", tint: "#6b5200" };

const ruler = document.createElement("canvas").getContext("2d");

function width(text, bold) {
  ruler.font = `${bold ? "bold " : ""}${SIZE}px ${FONT}`;
  return ruler.measureText(text).width;
}

function make(name, attributes, text) {
  const element = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** The tokens of a side of the final row, each with its horizontal place. */
function columns(row, side) {
  const found = [];
  let x = MARGIN + GUTTER;
  row.forEach((token, place) => {
    if (token.side !== side || token.frame) return;
    const text = visible(token.text);
    const room = width(text, token.round === 0);
    if (found.length > 0 && spaceBefore(token.text) !== "") x += SIZE * 0.45;
    else if (found.length > 0) x += SIZE * 0.1;
    found.push({ place, token, text, room, left: x, middle: x + room / 2 });
    x += room;
  });
  return found;
}

class Drawing {
  constructor(colours) {
    this.colours = colours;
    this.parts = [];
    this.y = MARGIN + ROW / 2;
    this.right = 260;
  }

  text(x, text, colour, more = {}) {
    const attributes = { x: x.toFixed(1), y: (this.y + SIZE * 0.35).toFixed(1), fill: this.colours[colour], "font-size": SIZE };
    this.parts.push(make("text", { ...attributes, ...more }, text));
    this.right = Math.max(this.right, x + (more["text-anchor"] ? 0 : width(text, more["font-weight"])));
  }

  number(number) {
    this.text(MARGIN + GUTTER - 12, String(number), "note", { "text-anchor": "end" });
  }

  token(column, colour, { shaded, line } = {}) {
    const { token, left, room } = column;
    const group = make("g", {});
    group.append(make("title", {}, token.round ? `round ${token.round}, ${percent(token.logProb)}` : "given"));
    const box = { x: (left - 3).toFixed(1), y: (this.y - SIZE * 0.8).toFixed(1), width: (room + 6).toFixed(1), height: SIZE * 1.6, rx: 3 };
    const doubt = shaded ? 1 - Math.exp(token.logProb) : 0;
    group.append(make("rect", { ...box, fill: this.colours.paper }));
    if (doubt > 0.005) group.append(make("rect", { ...box, fill: this.colours.tint, "fill-opacity": doubt.toFixed(2) }));
    if (line) {
      const y = (this.y + SIZE * 0.55).toFixed(1);
      group.append(make("path", { d: `M${left.toFixed(1)} ${y}h${room.toFixed(1)}`, stroke: this.colours.now, "stroke-width": 1.5 }));
    }
    const place = { x: left.toFixed(1), y: (this.y + SIZE * 0.35).toFixed(1), "font-size": SIZE, fill: this.colours[colour] };
    group.append(make("text", token.round === 0 ? { ...place, "font-weight": "bold" } : place, column.text));
    this.parts.push(group);
    this.right = Math.max(this.right, left + room);
  }

  edge(parent, child) {
    const [y, z] = [parent.y + SIZE * 0.8, child.y - SIZE * 0.7];
    const curve = `M${parent.x.toFixed(1)} ${y.toFixed(1)}C${parent.x.toFixed(1)} ${(z - 4).toFixed(1)} ${child.x.toFixed(1)} ${(y + 4).toFixed(1)} ${child.x.toFixed(1)} ${z.toFixed(1)}`;
    this.parts.push(make("path", { d: curve, fill: "none", stroke: this.colours.note }));
  }

  svg(title) {
    const [wide, high] = [Math.ceil(this.right + MARGIN), Math.ceil(this.y - ROW / 2 + MARGIN)];
    const size = { width: wide, height: high, viewBox: `0 0 ${wide} ${high}` };
    const svg = make("svg", { xmlns: SPACE, ...size, role: "img", "aria-label": title, "font-family": FONT });
    svg.append(make("rect", { width: wide, height: high, fill: this.colours.paper }), ...this.parts);
    return svg;
  }
}

function rounds(drawing, row, side) {
  const across = columns(row, side);
  const numbers = [...new Set(across.map(({ token }) => token.round))].filter((n) => n > 0).sort((a, b) => a - b);
  for (const number of numbers) {
    drawing.number(number);
    for (const column of across) {
      const { round } = column.token;
      const colour = round === 0 ? "given" : round > number ? "later" : round === number ? "now" : "ink";
      drawing.token(column, colour, { shaded: round > 0 && round <= number, line: round === number });
    }
    drawing.y += ROW;
  }
}

function tree(drawing, row, side, limit) {
  const across = columns(row, side);
  const numbers = [...new Set(across.map(({ token }) => token.round))].sort((a, b) => a - b);
  const heights = new Map(numbers.map((number, level) => [number, drawing.y + level * ROW * 1.5]));
  const places = new Map(across.map((column) => [column.place, { x: column.middle, y: heights.get(column.token.round) }]));
  const above = parents(row);
  for (const { place, token } of across) {
    if (above[place] !== null && token.round <= limit) drawing.edge(places.get(above[place]), places.get(place));
  }
  for (const number of numbers) {
    drawing.y = heights.get(number);
    if (number > 0) drawing.number(number);
    for (const column of across.filter(({ token }) => token.round === number)) {
      const colour = number === 0 ? "given" : number > limit ? "later" : "ink";
      drawing.token(column, colour, { shaded: number > 0 && number <= limit });
    }
  }
  drawing.y += ROW;
}

/** The picture of records: layout is `rounds` or `tree`; the tree shows the tokens up to a round. */
export function picture(records, names, { layout, round = Infinity, dark = false, title = "" }) {
  const drawing = new Drawing(dark ? DARK : LIGHT);
  if (title) {
    drawing.text(MARGIN, title, "ink", { "font-weight": "bold" });
    drawing.y += ROW * 1.2;
  }
  for (const record of records) {
    const row = rowAfter(record);
    for (const side of [0, 1]) {
      if (record.start_text[side] === undefined) continue;
      const across = columns(row, side);
      if (across.length === 0) continue;
      drawing.text(MARGIN, names[side], "note", { "font-weight": "bold" });
      drawing.y += ROW;
      if (!isOpen(record, side)) {
        for (const column of across) drawing.token(column, "given");
        drawing.y += ROW;
      } else if (layout === "tree") tree(drawing, row, side, round);
      else rounds(drawing, row, side);
      drawing.y += ROW * 0.3;
    }
  }
  let x = MARGIN;
  drawing.y += ROW * 0.2;
  for (const [text, colour] of [["given", "given"], ["inserted", "ink"], ...(layout === "tree" ? [] : [["new in this round", "now"], ["still to come", "later"]])]) {
    drawing.text(x, text, colour);
    x += width(text) + SIZE * 1.5;
  }
  drawing.parts.push(make("rect", { x, y: drawing.y - SIZE * 0.8, width: width("shaded: unsure") + 6, height: SIZE * 1.6, rx: 3, fill: drawing.colours.tint, "fill-opacity": 0.6 }));
  drawing.text(x + 3, "shaded: unsure", "ink");
  drawing.y += ROW;
  return drawing.svg(title || names.join(" / "));
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Save a picture as an SVG file, or as a PNG at twice its size. */
export async function save(svg, kind) {
  const text = new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
  if (kind === "svg") {
    download(text, "kermit.svg");
    return;
  }
  const image = new Image();
  image.src = URL.createObjectURL(text);
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * Number(svg.getAttribute("width"));
  canvas.height = 2 * Number(svg.getAttribute("height"));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  download(await new Promise((resolve) => canvas.toBlob(resolve, "image/png")), "kermit.png");
}
