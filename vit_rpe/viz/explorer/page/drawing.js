// Colours and canvases. A map is drawn one pixel per patch; the page scales it up.
"use strict";

// 256 colours as the words of pixels, and grey at the end.
const WORDS = new Map();
function words(table) {
  if (!WORDS.has(table)) {
    const bytes = new Uint8ClampedArray(257 * 4).fill(255);
    for (let step = 0; step < 256; step++) bytes.set(table.slice(3 * step, 3 * step + 3), 4 * step);
    bytes.set([150, 150, 150], 4 * 256);
    WORDS.set(table, new Uint32Array(bytes.buffer));
  }
  return WORDS.get(table);
}

// Values (rows x columns) as pixels from `low` to `high`; NaN is grey.
function drawValues(canvas, values, rows, columns, table, low, high) {
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows), pixels = new Uint32Array(image.data.buffer), colours = words(table);
  const scale = high > low ? 255 / (high - low) : 0;
  for (let at = 0; at < values.length; at++) {
    const value = values[at], step = Math.max(0, Math.min(255, Math.round((value - low) * scale)));
    pixels[at] = colours[Number.isNaN(value) ? 256 : step];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawScale(canvas, table) {
  drawValues(canvas, Float32Array.from({ length: 256 }, (_, at) => at), 1, 256, table, 0, 255);
}

function largest(values) {
  return values.reduce((top, value) => (value > top ? value : top), 0);
}

// The image with the map over it and the query outlined. `query` is a patch number or null.
function drawOverlay(canvas, image, values, grid, table, strength, query) {
  const { rows, columns } = grid, context = canvas.getContext("2d");
  const zoom = Math.max(1, Math.round(640 / Math.max(image.naturalWidth, image.naturalHeight)));
  canvas.width = image.naturalWidth * zoom;
  canvas.height = image.naturalHeight * zoom;
  const high = canvas.width / columns, tall = canvas.height / rows, top = largest(values);
  context.imageSmoothingEnabled = image.naturalWidth > 96;
  context.filter = strength > 0 ? "grayscale(1)" : "none";
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  context.filter = "none";
  context.globalAlpha = strength;
  const map = document.createElement("canvas");
  drawValues(map, values, rows, columns, table, 0, top);
  context.imageSmoothingEnabled = false;
  context.drawImage(map, 0, 0, canvas.width, canvas.height);
  context.globalAlpha = 1;
  if (query === null) return;
  const width = Math.max(2, canvas.width / 220);
  const left = (query % columns) * high, up = Math.floor(query / columns) * tall;
  for (const [line, style] of [[2 * width, "#000"], [width, "#00e5ff"]]) {
    context.lineWidth = line;
    context.strokeStyle = style;
    context.strokeRect(left, up, high, tall);
  }
}
