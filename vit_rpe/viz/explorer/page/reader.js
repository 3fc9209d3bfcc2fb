// Reads what packing.py wrote: base 85, gzip, then arrays at known places.
"use strict";

const ARRAYS = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };

function fromBase85(text, alphabet) {
  const digit = new Uint8Array(128);
  for (let value = 0; value < alphabet.length; value++) digit[alphabet.charCodeAt(value)] = value;
  const bytes = new Uint8Array((text.length / 5) * 4);
  for (let from = 0, to = 0; from < text.length; from += 5) {
    let word = 0;
    for (let place = 0; place < 5; place++) word = word * 85 + digit[text.charCodeAt(from + place)];
    bytes[to++] = word >>> 24;
    bytes[to++] = word >>> 16;
    bytes[to++] = word >>> 8;
    bytes[to++] = word;
  }
  return bytes;
}

async function readBlock(element, alphabet, length) {
  const packed = fromBase85(element.textContent, alphabet).subarray(0, length);
  element.textContent = "";
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// A description, or anything that holds descriptions, with the numbers read from `buffer`.
function readArrays(value, buffer) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map((part) => readArrays(part, buffer));
  if (value.type === undefined) {
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, readArrays(part, buffer)]));
  }
  const size = value.shape.reduce((product, length) => product * length, 1);
  const data = new ARRAYS[value.type](buffer, value.at, size);
  if (value.type !== "i2" || value.scale === undefined) return { ...value, data };
  const real = Float32Array.from(data, (whole) =>
    whole === -32768 ? -Infinity : whole === 32767 ? NaN : whole * value.scale);
  return { ...value, data: real };
}
