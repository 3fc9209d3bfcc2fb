// The page: what is chosen, what is drawn, and how a person changes it.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const { grid } = data;
const find = (id) => document.getElementById(id);
const numLayers = data.layers.length;
const patches = grid.rows * grid.columns;

// query: a token's number or "mean"; head: a number or "mean".
const middle = grid.prefix + Math.floor(grid.rows / 2) * grid.columns + Math.floor(grid.columns / 2);
const state = { image: 0, layer: numLayers - 1, head: "mean", mode: "attention", query: data.mean ? "mean" : middle, held: false };
let common = null;
let layers = [];
let overviewRun = 0;
const pictures = data.images.map((source) => Object.assign(new Image(), { src: source }));
const opened = new Map();

async function openImage(image) {
  if (!opened.has(image)) {
    const element = find(`block-${image + 1}`);
    opened.set(image, readBlock(element, data.alphabet, Number(element.dataset.length)));
  }
  const [buffer] = await Promise.all([opened.get(image), pictures[image].decode()]);
  return readArrays(data.tokens[image], buffer);
}

async function showImage(image) {
  const tokens = await openImage(image);
  layers = tokens.map((each) => ({ tokens: each, layer: null }));
  state.image = image;
  show();
}

function layerAt(number) {
  const slot = layers[number];
  slot.layer ??= new Layer(common[number], slot.tokens, grid.prefix);
  return slot.layer;
}

const numHeads = () => data.layers[state.layer].heads;
const layerName = (number) => data.layers[number].label;

// Attention (N) of every head of a layer for the present query and mode.
function headRows(number) {
  const layer = layerAt(number);
  return Array.from({ length: layer.heads }, (_, head) => layer.attention(head, state.query, state.mode));
}

function meanRow(rows) {
  return rows[0].map((_, at) => rows.reduce((sum, row) => sum + row[at], 0) / rows.length);
}

const onPatches = (row) => row.subarray(grid.prefix);
const share = (value) => `${(100 * value).toPrecision(value > 0 ? 2 : 1)}\u00a0%`;

function queryName() {
  if (state.query === "mean") return "all patches (mean)";
  if (state.query < grid.prefix) return state.query === 0 && data.classToken ? "class token" : `prefix token ${state.query}`;
  const patch = state.query - grid.prefix;
  return `patch (${Math.floor(patch / grid.columns)}, ${patch % grid.columns})`;
}

function show() {
  const rows = headRows(state.layer);
  if (state.head !== "mean" && state.head >= rows.length) state.head = "mean";
  const row = state.head === "mean" ? meanRow(rows) : rows[state.head];
  const values = onPatches(row), patch = state.query === "mean" || state.query < grid.prefix ? null : state.query - grid.prefix;
  drawOverlay(find("picture"), pictures[state.image], values, grid, data.colours.attention, Number(find("strength").value), patch);
  find("attention-top").textContent = `${share(largest(values))} (largest)`;
  showControls(rows.length);
  showHeads(rows);
  showBias();
  describe(values, row);
  showOverview();
  window.explorer.shown = { ...state, rows, row };
}

function showControls(heads) {
  find("image").value = state.image;
  find("layer").value = state.layer;
  find("layer-number").textContent = layerName(state.layer).replace(/^layer /, "");
  find("layer").setAttribute("aria-valuetext", layerName(state.layer));
  if (find("head").options.length !== heads + 1) {
    find("head").replaceChildren(option("mean", "mean of heads"), ...Array.from({ length: heads }, (_, head) => option(head, `head ${head}`)));
  }
  find("head").value = state.head;
  document.querySelector(`input[name="mode"][value="${state.mode}"]`).checked = true;
  find("query-name").textContent = queryName().startsWith("patch") ? queryName() : "";
  find("query-mean").setAttribute("aria-pressed", state.query === "mean");
  find("query-class").setAttribute("aria-pressed", state.query === 0 && data.classToken);
  find("stage-title").textContent = data.names[state.image];
  find("caption").textContent = data.captions[state.image];
}

function describe(values, row) {
  const words = { attention: "attention", content: "content only", position: "position only" }[state.mode];
  const best = values.reduce((at, value, index) => (value > values[at] ? index : at), 0);
  const prefix = row.subarray(0, grid.prefix).reduce((sum, value) => sum + value, 0);
  const most = `most at patch (${Math.floor(best / grid.columns)}, ${best % grid.columns}), ${share(values[best])}`;
  const rest = grid.prefix ? `; ${share(prefix)} at prefix tokens` : "";
  const head = state.head === "mean" ? "mean of heads" : `head ${state.head}`;
  find("status").textContent = `${words}, ${layerName(state.layer)}, ${head}, ${queryName()}: ${most}${rest}${state.held ? " (held)" : ""}`;
}

function describeRounding({ bits, error }) {
  const most = 100 * error + 0.001, unit = 10 ** (Math.floor(Math.log10(most)) - 1); // float32 has its own rounding
  find("rounding").textContent = `To keep this file small, queries and keys are rounded to ${bits} bits: ` +
    `no weight differs from the model's by more than ${(Math.ceil(most / unit) * unit).toPrecision(2)} percentage points.`;
}

function option(value, text) {
  return Object.assign(document.createElement("option"), { value, textContent: text });
}

// As many tiles as values, made once; a click chooses the head.
function tiles(box, count) {
  while (box.children.length > count) box.lastChild.remove();
  while (box.children.length < count) {
    const head = box.children.length, tile = document.createElement("button");
    tile.type = "button";
    tile.className = "tile";
    tile.append(document.createElement("canvas"), document.createElement("span"));
    tile.addEventListener("click", () => set({ head: state.head === head ? "mean" : head }));
    box.append(tile);
  }
  return Array.from(box.children, (tile, head) => {
    tile.setAttribute("aria-pressed", state.head === head);
    return [tile.firstChild, tile.lastChild];
  });
}

function showHeads(rows) {
  tiles(find("heads"), rows.length).forEach(([canvas, label], head) => {
    const values = onPatches(rows[head]), top = largest(values);
    drawValues(canvas, values, grid.rows, grid.columns, data.colours.attention, 0, top || 1);
    label.textContent = `head ${head}, max ${share(top)}`;
  });
}

function showBias() {
  find("bias-section").hidden = common[state.layer].picture === null;
  if (common[state.layer].picture === null) return;
  const { data: values, shape } = common[state.layer].picture, [heads, rows, columns] = shape, size = rows * columns;
  const limit = values.reduce((top, value) => (Math.abs(value) > top ? Math.abs(value) : top), 0);
  tiles(find("bias"), heads).forEach(([canvas, label], head) => {
    drawValues(canvas, values.subarray(head * size, (head + 1) * size), rows, columns, data.colours.signed, -(limit || 1), limit || 1);
    label.textContent = `head ${head}`;
  });
  find("bias-low").textContent = (-limit).toPrecision(2);
  find("bias-high").textContent = `+${limit.toPrecision(2)}`;
}

// Layer by layer between other work, so that the page stays quick; a newer call ends an older one.
function showOverview() {
  const run = ++overviewRun;
  const step = (number) => {
    if (run !== overviewRun || number >= numLayers) return;
    headRows(number).forEach((row, head) => {
      const button = overviewButton(number, head), values = onPatches(row);
      drawValues(button.firstChild, values, grid.rows, grid.columns, data.colours.attention, 0, largest(values) || 1);
      button.setAttribute("aria-pressed", state.layer === number && state.head === head);
    });
    setTimeout(step, 0, number + 1);
  };
  setTimeout(step, 60, 0);
}

function overviewButton(number, head) {
  return find(`cell-${number}-${head}`);
}

function makeOverview() {
  const box = find("overview"), most = Math.max(...data.layers.map((each) => each.heads));
  box.style.gridTemplateColumns = `max-content repeat(${most}, max-content)`;
  data.layers.forEach((each, number) => {
    const name = document.createElement("span");
    name.textContent = layerName(number);
    box.append(name);
    for (let head = 0; head < most; head++) {
      const cell = document.createElement(head < each.heads ? "button" : "span");
      box.append(cell);
      if (cell.tagName === "SPAN") continue;
      cell.type = "button";
      cell.tabIndex = -1;
      cell.id = `cell-${number}-${head}`;
      cell.setAttribute("aria-label", `${layerName(number)}, head ${head}`);
      cell.append(document.createElement("canvas"));
      cell.addEventListener("click", () => set({ layer: number, head }));
    }
  });
}

function set(change) {
  const { image, ...rest } = change;
  Object.assign(state, rest);
  return image !== undefined && image !== state.image ? showImage(image) : show();
}

function patchAt(event) {
  const canvas = find("picture"), box = canvas.getBoundingClientRect();
  const scale = Math.min(box.width / canvas.width, box.height / canvas.height); // object-fit: contain, left top
  const column = Math.floor(((event.clientX - box.left) / (canvas.width * scale)) * grid.columns);
  const row = Math.floor(((event.clientY - box.top) / (canvas.height * scale)) * grid.rows);
  const inside = row >= 0 && row < grid.rows && column >= 0 && column < grid.columns;
  return inside ? grid.prefix + row * grid.columns + column : null;
}

function moveQuery(down, right) {
  const start = (state.query === "mean" || state.query < grid.prefix ? middle : state.query) - grid.prefix;
  const row = Math.min(grid.rows - 1, Math.max(0, Math.floor(start / grid.columns) + down));
  const column = Math.min(grid.columns - 1, Math.max(0, (start % grid.columns) + right));
  set({ query: grid.prefix + row * grid.columns + column, held: true });
}

const wrap = (value, count) => ((value % count) + count) % count;

// Next in the circle: mean, 0, 1, ... last head.
function nextHead(step) {
  const at = wrap((state.head === "mean" ? 0 : state.head + 1) + step, numHeads() + 1);
  return at === 0 ? "mean" : at - 1;
}

const KEYS = {
  PageUp: () => set({ layer: Math.min(numLayers - 1, state.layer + 1) }),
  PageDown: () => set({ layer: Math.max(0, state.layer - 1) }),
  h: () => set({ head: nextHead(1) }),
  H: () => set({ head: nextHead(-1) }),
  i: () => set({ image: wrap(state.image + 1, data.names.length) }),
  I: () => set({ image: wrap(state.image - 1, data.names.length) }),
  m: () => set({ mode: MODES[wrap(MODES.indexOf(state.mode) + 1, MODES.length)] }),
  c: () => data.classToken && set({ query: 0, held: true }),
  a: () => data.mean && set({ query: "mean", held: true }),
  Escape: () => set({ held: false }),
};
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function listen() {
  const picture = find("picture");
  picture.addEventListener("pointermove", (event) => {
    const query = patchAt(event);
    if (!state.held && event.pointerType === "mouse" && query !== null && query !== state.query) set({ query });
  });
  picture.addEventListener("click", (event) => {
    const query = patchAt(event);
    if (query !== null) set({ query, held: !(state.held && query === state.query) });
  });
  picture.addEventListener("keydown", (event) => {
    if (event.key in ARROWS) moveQuery(...ARROWS[event.key]);
    else if (event.key === "Enter") set({ held: !state.held });
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLSelectElement;
    if (typing || event.ctrlKey || event.altKey || event.metaKey || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  find("image").addEventListener("change", (event) => set({ image: Number(event.target.value) }));
  find("layer").addEventListener("input", (event) => set({ layer: Number(event.target.value) }));
  find("head").addEventListener("change", ({ target }) => set({ head: target.value === "mean" ? "mean" : Number(target.value) }));
  find("modes").addEventListener("change", (event) => set({ mode: event.target.value }));
  find("strength").addEventListener("input", show);
  find("query-class").addEventListener("click", () => set({ query: 0, held: true }));
  find("query-mean").addEventListener("click", () => set({ query: "mean", held: true }));
  find("controls").addEventListener("submit", (event) => event.preventDefault());
}

async function open() {
  const element = find("block-0");
  common = readArrays(data.layers, await readBlock(element, data.alphabet, Number(element.dataset.length)));
  find("image").replaceChildren(...data.names.map((name, number) => option(number, name)));
  find("layer").max = numLayers - 1;
  find("query-class").hidden = !data.classToken;
  find("query-mean").hidden = !data.mean;
  drawScale(find("attention-scale"), data.colours.attention);
  drawScale(find("bias-scale"), data.colours.signed);
  describeRounding(data.rounding);
  makeOverview();
  listen();
  await showImage(0);
}

window.explorer = { state, set, layerAt, patches, shown: null, ready: null };
window.explorer.ready = open().catch((error) => {
  find("status").textContent = `This browser could not open the page: ${error.message}`;
  throw error;
});
