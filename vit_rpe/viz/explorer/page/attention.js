// Attention rows from rounded q and k and the terms: the definition once more, for one query at a time.
// H heads, W windows, N tokens of a call with prefix (nq queries, nk keys), D head width, F = D / 2 channel pairs,
// p patches of the image. Arrays are flat and row-major; tokens of all windows are counted on, w N + token.
"use strict";

const MODES = ["attention", "content", "position"];

// One layer of one image. `terms` and `tokens` come from reader.js with their arrays read.
class Layer {
  constructor(terms, tokens, prefix) {
    this.terms = terms;
    this.prefix = prefix;
    this.heads = terms.heads;
    this.nq = terms.queries;
    this.nk = terms.keys;
    this.width = tokens.q.values.shape[2];
    this.q = this.unround(tokens.q);
    this.k = this.unround(tokens.k);
    this.aloneQ = this.alone(tokens.q, tokens.qAlone);
    this.aloneK = this.alone(tokens.k, tokens.kAlone);
    this.turnedQ = this.rotate(this.q);
    this.turnedK = this.rotate(this.k);
    this.turnedAloneQ = this.rotate(this.aloneQ);
    this.turnedAloneK = this.rotate(this.aloneK);
    this.count = new Int32Array(terms.windows * this.nk); // patches that a key answers for
    for (const key of terms.keyOf.data) if (key >= 0) this.count[key] += 1;
  }

  // Vectors (H, W N, D), or (H, D) with the same for every token: where one begins is head * h + token * n.
  unround({ mean, values, steps }) {
    const [heads, tokens, width] = values.shape;
    const data = new Float32Array(heads * tokens * width);
    for (let h = 0, at = 0; h < heads; h++) {
      for (let n = 0; n < tokens; n++) {
        const step = steps.data[h * tokens + n] * steps.scale;
        for (let c = 0; c < width; c++, at++) data[at] = mean.data[h * width + c] + values.data[at] * step;
      }
    }
    return { data, head: tokens * width, token: width };
  }

  // What position alone has for content: the mean, or what each token makes of it.
  alone(own, made) {
    return made ? this.unround(made) : { data: own.mean.data, head: this.width, token: 0 };
  }

  // (cos, sin) of one token in one head.
  angle(h, n, f) {
    const { rotation, grids } = this.terms, half = this.width / 2;
    if (rotation.cos) {
      const head = rotation.cos.shape[0] === 1 ? 0 : h;
      const at = (head * this.nq + n) * half + f;
      return [rotation.cos.data[at], rotation.sin.data[at]];
    }
    const patch = n - grids[0].prefix, columns = grids[0].size[1];
    if (patch < 0) return [1, 0];
    const head = rotation.start.shape[0] === 1 ? 0 : h;
    const row = Math.floor(patch / columns), column = patch % columns;
    const steps = rotation.steps.data, base = head * 2 * half + f;
    const angle = rotation.start.data[head * half + f] + row * steps[base] + column * steps[base + half];
    return [Math.cos(angle), Math.sin(angle)];
  }

  // Rotated copies; windows all turn alike.
  rotate(x) {
    if (!this.terms.rotation) return x;
    const { heads, width, nq } = this, half = width / 2, tokens = this.terms.windows * nq;
    const data = new Float32Array(heads * tokens * width);
    for (let h = 0; h < heads; h++) {
      for (let n = 0; n < tokens; n++) {
        const from = h * x.head + n * x.token, to = (h * tokens + n) * width;
        for (let f = 0; f < half; f++) {
          const [cos, sin] = this.angle(h, n % nq, f), a = x.data[from + f], b = x.data[from + f + half];
          data[to + f] = a * cos - b * sin;
          data[to + f + half] = b * cos + a * sin;
        }
      }
    }
    return { data, head: tokens * width, token: width };
  }

  // Attention (nk) of query i of a window in head h.
  row(h, w, i, mode) {
    const { nk, width, terms } = this, content = mode === "content", position = mode === "position";
    const q = content ? this.q : position ? this.turnedAloneQ : this.turnedQ;
    const k = content ? this.k : position ? this.turnedAloneK : this.turnedK;
    const logits = new Float32Array(nk), from = h * q.head + (w * this.nq + i) * q.token;
    for (let j = 0; j < nk; j++) logits[j] = dot(q.data, from, k.data, h * k.head + (w * nk + j) * k.token, width);
    if (!content) this.addRelative(logits, h, w, i, position);
    for (let j = 0; j < nk; j++) logits[j] *= terms.scale;
    if (!content && terms.bias) this.addPairs(logits, terms.bias, h, i);
    if (terms.clip) for (let j = 0; j < nk; j++) logits[j] = this.clipped(logits[j]);
    if (content && terms.masks) this.addPairs(logits, terms.masks, h, i);
    if (terms.windowMasks) this.hide(logits, w, i);
    return softmax(logits);
  }

  clipped(logit) {
    return logit === -Infinity ? logit : this.terms.clip * Math.tanh(logit / this.terms.clip);
  }

  addRelative(logits, h, w, i, position) {
    const { nk, width, terms } = this;
    const q = position ? this.aloneQ : this.q, k = position ? this.aloneK : this.k;
    for (const part of terms.onQuery) {
      const { table } = part, relations = table.shape[1], from = table.shape[0] === 1 ? 0 : h * relations * width;
      const products = new Float32Array(relations), at = h * q.head + (w * this.nq + i) * q.token;
      for (let r = 0; r < relations; r++) products[r] = dot(q.data, at, table.data, from + r * width, width);
      for (let j = 0; j < nk; j++) {
        const relation = this.relation(part, i, j);
        if (relation >= 0) logits[j] += products[relation];
      }
    }
    for (const part of terms.onKey) {
      const { table } = part, from = table.shape[0] === 1 ? 0 : h * table.shape[1] * width;
      for (let j = 0; j < nk; j++) {
        const relation = this.relation(part, i, j), at = h * k.head + (w * nk + j) * k.token;
        if (relation >= 0) logits[j] += dot(k.data, at, table.data, from + relation * width, width);
      }
    }
  }

  // The relation of a pair; along one axis it is that of two coordinates, and prefix tokens have none.
  relation({ index, axis }, i, j) {
    if (axis === null) return index.data[i * this.nk + j];
    const [a, b] = [i, j].map((token, side) => {
      const { size, prefix } = this.terms.grids[side], patch = token - prefix;
      return patch < 0 ? -1 : axis === 0 ? Math.floor(patch / size[1]) : patch % size[1];
    });
    return a < 0 || b < 0 ? -1 : index.data[a * index.shape[1] + b];
  }

  addPairs(logits, { table, index }, h, i) {
    const { nk } = this, from = table.shape[0] === 1 ? 0 : h * table.shape[1];
    for (let j = 0; j < nk; j++) {
      const pair = i * nk + j;
      logits[j] += table.data[from + (index ? index.data[pair] : pair)];
    }
  }

  // Keys that this window does not see: neighbours only in the rolled image.
  hide(logits, w, i) {
    const { table, of } = this.terms.windowMasks, { nq, nk } = this;
    const from = (of.data[w] * nq + i) * nk;
    for (let j = 0; j < nk; j++) if (!table.data[from + j]) logits[j] = -Infinity;
  }

  // Attention (prefix + p) of a query in one head; "mean" is the mean over all patches. A layer that pools shows the
  // mean of its own queries.
  attention(h, query, mode) {
    const { nq, nk, prefix, terms } = this;
    if (query !== "mean" && terms.queryOf) {
      const at = query < prefix ? query : terms.queryOf.data[query - prefix], w = Math.floor(at / nq);
      return this.onImage(this.row(h, w, at % nq, mode), w * nk);
    }
    const asked = new Float32Array(terms.windows * nq), total = new Float32Array(terms.windows * nk);
    if (terms.queryOf) for (const at of terms.queryOf.data) asked[at] += 1 / terms.queryOf.data.length;
    else asked.fill(1 / nq);
    for (let at = 0; at < asked.length; at++) {
      if (asked[at] === 0) continue;
      const w = Math.floor(at / nq), row = this.row(h, w, at % nq, mode);
      for (let j = 0; j < nk; j++) total[w * nk + j] += asked[at] * row[j];
    }
    return this.onImage(total, 0);
  }

  // Weights of keys from the number `first` on, shared out over the patches they answer for.
  onImage(weights, first) {
    const { prefix, count } = this, keys = this.terms.keyOf.data, out = new Float32Array(prefix + keys.length);
    out.set(weights.subarray(0, prefix));
    for (let at = 0; at < keys.length; at++) {
      const key = keys[at] - first;
      if (keys[at] >= 0 && key >= 0 && key < weights.length) out[prefix + at] = weights[key] / count[keys[at]];
    }
    return out;
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
