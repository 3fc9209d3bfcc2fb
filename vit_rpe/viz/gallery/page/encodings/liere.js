add("liere", {
  formula: 'q_i → R(p_i) q_i, k_j → R(p_j) k_j,  R(p) = exp(\\sum_{a} p_a A_a),  A_a = triu(M_a) - triu(M_a)^T',
  good: "Rotary with learned rotations of several channels at once: wide blocks mix the axes as pairs cannot. Not relative, except for blocks of 2: move the query and the map changes. In its paper ahead of rotary on images and video.",
  content: "ones",
  controls: [choice("block", "channels turned at once", "8", "2", "4", "16"), slider("most", "entries of M up to", 0.25, 6.25, 0.25, 2), slider("trained", "size it was trained on", 2, 24, 1, 9)],
  options: (s) => ({ block: Number(s.block), native: [s.trained, s.trained] }),
  parameters: (s, g, draw) => {
    const shape = [2, HEADS, WIDTH / s.block, Number(s.block), Number(s.block)];
    return { generators: { shape, values: range(2 * CHANNELS * s.block).map(() => s.most * draw.next()) } };
  },
  // The series of a part of the matrix below 1, squared up again. Matrices are row-major lists.
  exponential: (matrix, size) => {
    const product = (a, b) => {
      const found = Array(size * size).fill(0);
      for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) for (let m = 0; m < size; m++) found[i * size + j] += a[i * size + m] * b[m * size + j];
      return found;
    };
    const squarings = Math.max(0, Math.ceil(Math.log2(1e-9 + Math.hypot(...matrix))));
    const small = matrix.map((value) => value / 2 ** squarings), one = matrix.map((_, at) => (at % (size + 1) === 0 ? 1 : 0));
    let sum = one;
    for (let power = 14; power > 0; power--) sum = product(small, sum).map((value, at) => one[at] + value / power);
    for (let step = 0; step < squarings; step++) sum = product(sum, sum);
    return sum;
  },
  values: ({ s, g, p, head, q, k }) => {
    const size = Number(s.block), area = size * size, count = WIDTH / size, known = new Map();
    const step = [g.rows, g.columns].map((length) => length / (Math.max(length - 1, 1) * s.trained));
    const rotations = (token) => range(count).map((block) => encodings.liere.exponential(range(area).map((at) => {
      const i = Math.floor(at / size), j = at % size, above = Math.min(i, j) * size + Math.max(i, j);
      return Math.sign(j - i) * total([0, 1].map((axis) => token[axis] * step[axis] * p.generators[((axis * HEADS + head) * count + block) * area + above]));
    }), size));
    const turn = (blocks, x) => blocks.flatMap((own, block) => range(size).map((i) => dot(own, x, i * size, block * size, size)));
    const at = (token) => {
      if (!known.has(token.join())) {
        const blocks = rotations(token);
        known.set(token.join(), [turn(blocks, q), turn(blocks, k)]);
      }
      return known.get(token.join());
    };
    return (dh, dw, query, key) => SCALE * (dot(at(query)[0], at(key)[1]) - dot(q, k));
  },
});
