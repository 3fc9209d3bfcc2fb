// What the encodings are made of: numbers that stand in for learned ones, and a few functions of them.
"use strict";

const HEADS = 8, WIDTH = 16, CHANNELS = HEADS * WIDTH, SCALE = WIDTH ** -0.5;
const encodings = {};
const range = (count) => Array.from({ length: count }, (_, at) => at);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const dot = (a, b, atA = 0, atB = 0, count = WIDTH) => {
  let sum = 0;
  for (let at = 0; at < count; at++) sum += a[atA + at] * b[atB + at];
  return sum;
};

// Uniform numbers in 0..1, the same for the same seed.
function uniform(seed) {
  let state = (seed * 2654435761) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// Parameters are {shape, values}, the values in one row-major list.
class Draw {
  constructor(seed, roughness) {
    this.next = uniform(seed);
    this.roughness = roughness;
  }
  normal(shape, spread = 1) {
    const one = () => (this.next() + this.next() + this.next() + this.next() - 2) * Math.sqrt(3) * spread;
    return { shape, values: Array.from({ length: shape.reduce((a, b) => a * b, 1) }, one) };
  }
  filled(values) {
    return { shape: [values.length], values };
  }
  // Waves along the middle axes, anew for every entry of the first and of the last ones: tables as training leaves
  // them are smooth. `groups`: how many axes in front are apart, `width`: channels at the end that are.
  waves(shape, { groups = 1, width = 1, count = 3 } = {}) {
    const values = [], along = shape.slice(groups, width > 1 ? -1 : undefined);
    const places = along.reduce((a, b) => a * b, 1);
    for (let group = 0; group < shape.slice(0, groups).reduce((a, b) => a * b, 1); group++) {
      const own = range(width).map(() => range(count).map(() => ({
        phase: 2 * Math.PI * this.next(),
        speed: along.map((size) => (2 * Math.PI * this.roughness * (this.next() - 0.5)) / Math.max(size, 2)),
      })));
      for (let place = 0; place < places; place++) {
        let rest = place;
        const index = along.map(() => 0);
        for (let axis = along.length - 1; axis >= 0; axis--) {
          index[axis] = rest % along[axis];
          rest = Math.floor(rest / along[axis]);
        }
        for (const waves of own) {
          values.push(Math.sqrt(2 / count) * total(waves.map(({ phase, speed }) => Math.cos(phase + dot(speed, index, 0, 0, speed.length)))));
        }
      }
    }
    return { shape, values };
  }
}

// A slider {name, label, low, high, step, start} or a choice {name, label, of: [...]}, the first of them at the start.
const slider = (name, label, low, high, step, start, power = false) => ({ name, label, low, high, step, start, power });
const choice = (name, label, ...of) => ({ name, label, of, start: of[0] });

// One encoding. `controls`: its own sliders; `options`, `native`, `parameters`: what the Python class gets;
// `content`: whether it reads q, k or x; `values(here)`: a function (dh, dw, query, key) of one head's logit, offsets
// query minus key, query and key as [row, column].
function add(name, encoding) {
  encodings[name] = {
    controls: [], options: () => ({}), native: (s, g) => [g.rows, g.columns], parameters: () => ({}), content: false, ...encoding,
  };
}

const starts = (name) => Object.fromEntries(encodings[name].controls.map((one) => [one.name, one.start]));

// Everything one card needs: {options, native, parameters, q, k, x, value(head)}. `common`: {rows, columns, seed, roughness}.
function prepare(name, settings, common) {
  const encoding = encodings[name], s = { ...starts(name), ...settings }, g = common;
  const content = new Draw(1000 + g.seed, g.roughness);
  const q = encoding.content === "ones" ? Array(CHANNELS).fill(1) : content.normal([CHANNELS]).values;
  const k = encoding.content === "ones" ? q : content.normal([CHANNELS]).values;
  const x = content.normal([CHANNELS]).values;
  const parameters = encoding.parameters(s, g, new Draw(g.seed, g.roughness));
  const values = Object.fromEntries(Object.entries(parameters).map(([key, { values: own }]) => [key, own]));
  const known = [];
  return {
    options: encoding.options(s, g), native: encoding.native(s, g), parameters, q, k, x,
    value: (head) => (known[head] ??= encoding.values({ s, g, p: values, head, q: q.slice(head * WIDTH, (head + 1) * WIDTH), k: k.slice(head * WIDTH, (head + 1) * WIDTH), x })),
  };
}

// The logits of one query in one head, over all keys of the grid.
function row(prepared, head, query, g) {
  const value = prepared.value(head);
  return range(g.rows * g.columns).map((at) => {
    const key = [Math.floor(at / g.columns), at % g.columns];
    return value(query[0] - key[0], query[1] - key[1], query, key);
  });
}

function softmax(values) {
  const top = Math.max(...values), powers = values.map((value) => Math.exp(value - top)), sum = total(powers);
  return powers.map((value) => value / sum);
}

const softplus = (value) => Math.max(value, 0) + Math.log1p(Math.exp(-Math.abs(value)));
const distance = (dh, dw) => Math.hypot(dh, dw);
// What turning q and k of ones, pair by pair, adds to their logit: cosines of the angles, less what they were.
const turned = (angles) => SCALE * total(angles.map((angle) => 2 * (Math.cos(angle) - 1)));
