// Colours and canvases. A map is drawn one pixel per patch; the page scales it up.
"use strict";

function colour(table, value, low, high) {
  const share = high > low ? (value - low) / (high - low) : 0;
  const step = 3 * Math.max(0, Math.min(255, Math.round(share * 255)));
  return [table[step], table[step + 1], table[step + 2]];
}

// Values (rows x columns) as pixels from `low` to `high`; NaN is grey.
function drawValues(canvas, values, rows, columns, table, low, high) {
  canvas.width = columns;
  canvas.height = rows;
  const pixels = new ImageData(columns, rows);
  for (let at = 0; at < values.length; at++) {
    const [red, green, blue] = Number.isNaN(values[at]) ? [150, 150, 150] : colour(table, values[at], low, high);
    pixels.data.set([red, green, blue, 255], 4 * at);
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
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
  for (let at = 0; at < values.length; at++) {
    const row = Math.floor(at / columns), column = at % columns;
    const left = Math.round(column * high), up = Math.round(row * tall);
    context.fillStyle = `rgb(${colour(table, values[at], 0, top).join()})`;
    context.fillRect(left, up, Math.round((column + 1) * high) - left, Math.round((row + 1) * tall) - up);
  }
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
