// The page: one card an encoding, a query and sizes that all share, and sliders of each.
"use strict";

const facts = JSON.parse(document.getElementById("data").textContent);
const common = { rows: 9, columns: 13, seed: 1, roughness: 4, head: 0 };
const shared = [
  slider("rows", "rows", 2, 21, 1, 9), slider("columns", "columns", 2, 21, 1, 13), slider("head", "head", 0, HEADS - 1, 1, 0),
  slider("seed", "draw", 1, 50, 1, 1), slider("roughness", "roughness", 0.5, 10, 0.5, 4),
];
let query = [4, 6], pointed = [4, 6];
const cards = new Map();

// Colours as stops; position: blue for less, red for more; attention: dark to bright.
const STOPS = {
  signed: [[24, 60, 140], [86, 140, 205], [188, 214, 233], [246, 246, 246], [246, 198, 172], [214, 96, 77], [122, 10, 30]],
  attention: [[6, 6, 22], [64, 14, 96], [140, 34, 106], [206, 66, 72], [247, 132, 42], [249, 208, 84], [252, 252, 196]],
};
function colour(stops, share) {
  const place = clamp(share, 0, 1) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
  return stops[low].map((value, at) => value + (stops[low + 1][at] - value) * (place - low));
}

function paint(canvas, values, share, stops) {
  const zoom = Math.max(4, Math.floor(360 / common.columns)), context = canvas.getContext("2d");
  canvas.width = common.columns * zoom;
  canvas.height = common.rows * zoom;
  values.forEach((value, at) => {
    context.fillStyle = Number.isFinite(value) ? `rgb(${colour(stops, share(value)).map(Math.round).join()})` : "rgb(128,128,128)";
    context.fillRect((at % common.columns) * zoom, Math.floor(at / common.columns) * zoom, zoom, zoom);
  });
  const outline = ([down, right], width, style, inset) => {
    context.lineWidth = width;
    context.strokeStyle = style;
    context.strokeRect(right * zoom + inset, down * zoom + inset, zoom - 2 * inset, zoom - 2 * inset);
  };
  outline(query, 6, "#000", 2);
  outline(query, 3, "#00e5ff", 2);
  if (pointed[0] !== query[0] || pointed[1] !== query[1]) {
    outline(pointed, 4, "#000", 2);
    outline(pointed, 2, "#fff", 2);
  }
}

function show(value) {
  if (value === -Infinity) return "hidden";
  return (Math.abs(value) < 1e-9 ? 0 : value).toFixed(Math.abs(value) < 10 ? 2 : 1).replace("-", "−");
}

class CardView {
  constructor(name) {
    this.name = name;
    this.settings = starts(name);
    const known = facts[name], encoding = encodings[name];
    this.element = document.createElement("article");
    this.element.id = name;
    this.element.innerHTML = `
      <h2><code>${name}</code></h2>
      <p>${encoding.good}</p>
      <div class="formula">${mathml(encoding.formula)}</div>
      <div class="pictures">
        <figure><canvas class="map" tabindex="0" role="img"></canvas><figcaption>added to the logit: <span class="range"></span></figcaption></figure>
        <figure><canvas class="weights" role="img" aria-label="Attention from ${name} alone"></canvas><figcaption>attention alone: 0 to <span class="top"></span></figcaption></figure>
      </div>
      <p class="read" aria-live="polite"></p>
      <form class="own" aria-label="Settings of ${name}"></form>
      <details><summary>Paper and properties</summary><dl></dl></details>`;
    const facts_ = [
      ["paper", known.papers.length ? known.papers.map(([title, id]) => (id ? `${escapeText(title)} <a href="https://arxiv.org/abs/${id}">arXiv ${id}</a>` : escapeText(title))).join("; ") : "—"],
      ["adds", escapeText(known.adds)], ["parameters in ViT-S/16", known.parameters.toLocaleString("en")],
      ["at another resolution", escapeText(known.extrapolation)], ["axes", known.axes], ["one token at a time", known.cache ? "yes (key/value cache)" : "no"],
      ["kernels", escapeText(known.kernels)],
    ];
    this.element.querySelector("dl").innerHTML = facts_.map(([term, text]) => `<dt>${term}</dt><dd>${text}</dd>`).join("");
    const own = this.element.querySelector(".own");
    for (const control of encoding.controls) own.append(field(control, this.settings, `${name}-`, () => this.change()));
    own.addEventListener("submit", (event) => event.preventDefault());
    this.map = this.element.querySelector(".map");
    this.weights = this.element.querySelector(".weights");
    for (const canvas of [this.map, this.weights]) {
      canvas.addEventListener("pointermove", (event) => point(canvas, event, false));
      canvas.addEventListener("click", (event) => point(canvas, event, true));
    }
    this.map.addEventListener("keydown", pressed);
    this.visible = false;
  }
  change() {
    this.prepared = null;
    this.draw();
  }
  draw() {
    this.stale = true;
    if (!this.visible) return;
    this.stale = false;
    this.prepared ??= prepare(this.name, this.settings, common);
    const values = row(this.prepared, common.head, query, common), finite = values.filter(Number.isFinite);
    const mean = total(finite) / finite.length, most = Math.max(1e-9, ...finite.map((value) => Math.abs(value - mean)));
    const weights = softmax(values), top = Math.max(...weights), at = pointed[0] * common.columns + pointed[1];
    paint(this.map, values, (value) => 0.5 + (value - mean) / (2 * most), STOPS.signed);
    paint(this.weights, weights, (value) => value / top, STOPS.attention);
    const find = (selector) => this.element.querySelector(selector);
    find(".range").textContent = `${show(Math.min(...finite))} to ${show(Math.max(...finite))}`;
    find(".top").textContent = `${(100 * top).toPrecision(2)}\u00a0%`;
    const offset = `(${query[0] - pointed[0]}, ${query[1] - pointed[1]})`.replace(/-/g, "−");
    const text = `Δ ${offset}: ${show(values[at])}, attention ${(100 * weights[at]).toPrecision(2)}\u00a0%`;
    find(".read").textContent = text;
    this.map.setAttribute("aria-label", `What ${this.name} adds to the logits of head ${common.head}, query at row ${query[0]}, column ${query[1]}. ${text}`);
  }
}

const escapeText = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

// A slider or a choice with its name and value; `power`: equal steps are equal factors.
function field(control, settings, prefix, changed) {
  const label = document.createElement("label"), id = prefix + control.name;
  label.htmlFor = id;
  if (control.of) {
    label.innerHTML = `<span class="named">${control.label}</span><select id="${id}">${control.of.map((word) => `<option>${word}</option>`).join("")}</select>`;
    label.querySelector("select").addEventListener("change", (event) => {
      settings[control.name] = control.of[event.target.selectedIndex];
      changed();
    });
    return label;
  }
  const to = (value) => (control.power ? Math.log(value) : value), from = (value) => (control.power ? Number(Math.exp(value).toPrecision(2)) : value);
  label.innerHTML = `<span class="named">${control.label}<output for="${id}"></output></span>
    <input type="range" id="${id}" min="${to(control.low)}" max="${to(control.high)}" step="${control.power ? "any" : control.step}" value="${to(control.start)}">`;
  const input = label.querySelector("input"), output = label.querySelector("output");
  output.textContent = settings[control.name];
  input.addEventListener("input", () => {
    settings[control.name] = from(Number(input.value));
    output.textContent = settings[control.name];
    changed();
  });
  if (control.power) {
    input.addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (way === undefined) return;
      event.preventDefault();
      input.value = Number(input.value) + way * 0.2;
      input.dispatchEvent(new Event("input"));
    });
  }
  return label;
}

let waiting = false;
function drawAll() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const card of cards.values()) card.draw();
  });
}

function changed() {
  const held = ([down, right]) => [clamp(down, 0, common.rows - 1), clamp(right, 0, common.columns - 1)];
  [query, pointed] = [held(query), held(pointed)];
  for (const card of cards.values()) card.prepared = null;
  drawAll();
}

function point(canvas, event, move) {
  const box = canvas.getBoundingClientRect();
  const down = clamp(Math.floor(((event.clientY - box.top) / box.height) * common.rows), 0, common.rows - 1);
  const right = clamp(Math.floor(((event.clientX - box.left) / box.width) * common.columns), 0, common.columns - 1);
  pointed = [down, right];
  if (move) query = [down, right];
  drawAll();
}

function pressed(event) {
  const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (way) {
    const moved = ([down, right]) => [clamp(down + way[0], 0, common.rows - 1), clamp(right + way[1], 0, common.columns - 1)];
    if (!event.shiftKey) query = moved(query);
    pointed = event.shiftKey ? moved(pointed) : query;
  } else if (event.key.toLowerCase() === "h") {
    const input = document.getElementById("head");
    input.value = (common.head + (event.shiftKey ? HEADS - 1 : 1)) % HEADS;
    input.dispatchEvent(new Event("input"));
  } else return;
  event.preventDefault();
  drawAll();
}

function open() {
  const form = document.getElementById("common");
  for (const control of shared) form.append(field(control, common, "", changed));
  form.addEventListener("submit", (event) => event.preventDefault());
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const card = cards.get(entry.target.id);
      card.visible = entry.isIntersecting;
      if (card.visible && card.stale) card.draw();
    }
  }, { rootMargin: "300px" });
  for (const name of Object.keys(facts)) {
    const card = new CardView(name), link = Object.assign(document.createElement("a"), { href: `#${name}`, textContent: name });
    cards.set(name, card);
    card.stale = true;
    document.getElementById("names").append(link);
    document.getElementById("cards").append(card.element);
    seen.observe(card.element);
  }
}

open();
window.explorer = { ready: Promise.resolve(), prepare, row, encodings };
