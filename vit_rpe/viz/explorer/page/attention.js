// Attention rows from rounded q and k and the terms: the definition once more, for one query at a time.
// H heads, N tokens with prefix, D head width, F = D / 2 channel pairs. Arrays are flat and row-major.
"use strict";

const MODES = ["attention", "content", "position"];

// One layer of one image. `terms` and `tokens` come from reader.js with their arrays read.
class Layer {
  constructor(terms, tokens, grid) {
    this.terms = terms;
    this.grid = grid;
    [this.heads, this.tokens, this.width] = tokens.q.values.shape;
    this.q = this.unround(tokens.q);
    this.k = this.unround(tokens.k);
    this.meanQ = tokens.q.mean.data;
    this.meanK = tokens.k.mean.data;
    this.turnedQ = this.rotate(this.q, false);
    this.turnedK = this.rotate(this.k, false);
    this.turnedMeanQ = this.rotate(this.meanQ, true);
    this.turnedMeanK = this.rotate(this.meanK, true);
  }

  unround({ mean, values, steps }) {
    const { heads, tokens, width } = this;
    const out = new Float32Array(heads * tokens * width);
    for (let h = 0, at = 0; h < heads; h++) {
      for (let n = 0; n < tokens; n++) {
        const step = steps.data[h * tokens + n] * steps.scale;
        for (let c = 0; c < width; c++, at++) out[at] = mean.data[h * width + c] + values.data[at] * step;
      }
    }
    return out;
  }

  // (cos, sin) of one token in one head.
  angle(h, n, f) {
    const { rotation } = this.terms, half = this.width / 2;
    if (rotation.cos) {
      const head = rotation.cos.shape[0] === 1 ? 0 : h;
      const at = (head * this.tokens + n) * half + f;
      return [rotation.cos.data[at], rotation.sin.data[at]];
    }
    const patch = n - this.grid.prefix;
    if (patch < 0) return [1, 0];
    const head = rotation.start.shape[0] === 1 ? 0 : h;
    const row = Math.floor(patch / this.grid.columns), column = patch % this.grid.columns;
    const steps = rotation.steps.data, base = head * 2 * half + f;
    const angle = rotation.start.data[head * half + f] + row * steps[base] + column * steps[base + half];
    return [Math.cos(angle), Math.sin(angle)];
  }

  // Rotated copies (H, N, D) of x: (H, N, D), or (H, D) with the same vector for every token.
  rotate(x, same) {
    const { heads, tokens, width } = this, half = width / 2;
    if (!this.terms.rotation && !same) return x;
    const out = new Float32Array(heads * tokens * width);
    for (let h = 0; h < heads; h++) {
      for (let n = 0; n < tokens; n++) {
        const from = same ? h * width : (h * tokens + n) * width, to = (h * tokens + n) * width;
        if (!this.terms.rotation) {
          for (let c = 0; c < width; c++) out[to + c] = x[from + c];
          continue;
        }
        for (let f = 0; f < half; f++) {
          const [cos, sin] = this.angle(h, n, f), a = x[from + f], b = x[from + f + half];
          out[to + f] = a * cos - b * sin;
          out[to + f + half] = b * cos + a * sin;
        }
      }
    }
    return out;
  }

  // Attention (N) of query token i in head h.
  row(h, i, mode) {
    const { tokens, width, terms } = this, at = h * tokens * width, position = mode === "position";
    const content = mode === "content";
    const q = content ? this.q : position ? this.turnedMeanQ : this.turnedQ;
    const k = content ? this.k : position ? this.turnedMeanK : this.turnedK;
    const logits = new Float32Array(tokens);
    for (let j = 0; j < tokens; j++) logits[j] = dot(q, at + i * width, k, at + j * width, width);
    if (!content) this.addRelative(logits, h, i, position);
    for (let j = 0; j < tokens; j++) logits[j] *= terms.scale;
    if (!content && terms.bias) this.addPairs(logits, terms.bias, h, i);
    if (terms.clip) for (let j = 0; j < tokens; j++) logits[j] = this.clipped(logits[j]);
    if (content && terms.masks) this.addPairs(logits, terms.masks, h, i);
    return softmax(logits);
  }

  clipped(logit) {
    return logit === -Infinity ? logit : this.terms.clip * Math.tanh(logit / this.terms.clip);
  }

  addRelative(logits, h, i, position) {
    const { tokens, width, terms } = this;
    const q = position ? this.meanQ : this.q, k = position ? this.meanK : this.k;
    const vector = (n) => (position ? h * width : (h * tokens + n) * width);
    for (const { table, index } of terms.onQuery) {
      const relations = table.shape[1], from = table.shape[0] === 1 ? 0 : h * relations * width;
      const products = new Float32Array(relations);
      for (let r = 0; r < relations; r++) products[r] = dot(q, vector(i), table.data, from + r * width, width);
      for (let j = 0; j < tokens; j++) {
        const relation = index.data[i * tokens + j];
        if (relation >= 0) logits[j] += products[relation];
      }
    }
    for (const { table, index } of terms.onKey) {
      const from = table.shape[0] === 1 ? 0 : h * table.shape[1] * width;
      for (let j = 0; j < tokens; j++) {
        const relation = index.data[i * tokens + j];
        if (relation >= 0) logits[j] += dot(k, vector(j), table.data, from + relation * width, width);
      }
    }
  }

  addPairs(logits, { table, index }, h, i) {
    const { tokens } = this, from = table.shape[0] === 1 ? 0 : h * table.shape[1];
    for (let j = 0; j < tokens; j++) {
      const pair = i * tokens + j;
      logits[j] += table.data[from + (index ? index.data[pair] : pair)];
    }
  }

  // Attention (N) of a query in one head; "mean" is the mean over grid tokens.
  attention(h, query, mode) {
    if (query !== "mean") return this.row(h, query, mode);
    const total = new Float32Array(this.tokens), { prefix } = this.grid;
    for (let i = prefix; i < this.tokens; i++) {
      const row = this.row(h, i, mode);
      for (let j = 0; j < this.tokens; j++) total[j] += row[j];
    }
    return total.map((value) => value / (this.tokens - prefix));
  }
}

function dot(a, fromA, b, fromB, width) {
  let sum = 0;
  for (let c = 0; c < width; c++) sum += a[fromA + c] * b[fromB + c];
  return sum;
}

// In place; a row without a visible key becomes zeros.
function softmax(logits) {
  let top = -Infinity, sum = 0;
  for (const logit of logits) top = Math.max(top, logit);
  if (top === -Infinity) return logits.fill(0);
  for (let j = 0; j < logits.length; j++) sum += logits[j] = Math.exp(logits[j] - top);
  for (let j = 0; j < logits.length; j++) logits[j] /= sum;
  return logits;
}
