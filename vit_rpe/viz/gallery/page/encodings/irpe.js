add("irpe", {
  formula: 'logit_{ij} += s q_i · p[bucket(Δ_1, Δ_2)]',
  good: "Vision's buckets: exact near the query, coarse far away, by both offsets, one at a time, or by distance; as a vector that meets the query or as a plain number.",
  content: "random",
  controls: [
    choice("method", "buckets", "product", "cross", "euclidean", "quantization"), choice("mode", "mode", "contextual", "bias"),
    slider("ratio", "bucket size (ratio)", 0.5, 4, 0.1, 1.9),
  ],
  options: (s) => ({ method: s.method, mode: s.mode, ratio: s.ratio }),
  starts: (ratio) => {
    const level = (size) => {
      if (size <= ratio) return size;
      return Math.floor(Math.min(2 * ratio, Math.round(ratio + (Math.log(size / ratio) / Math.log(8)) * ratio)));
    };
    return range(Math.floor(2 * ratio)).map((number) => {
      let size = 0;
      while (level(size) < number + 1) size++;
      return size;
    });
  },
  parameters: (s, g, draw) => {
    const count = encodings.irpe.starts(s.ratio).length, levels = 2 * count + 1;
    const axes = { product: [levels, levels], cross: [levels] }[s.method] ?? [count + 1];
    const rows = axes.reduce((a, b) => a * b, 1);
    const one = () => (s.mode === "bias" ? { shape: [HEADS, rows], values: draw.waves([HEADS, ...axes]).values }
      : { shape: [rows, WIDTH], values: draw.waves([1, ...axes, WIDTH], { width: WIDTH }).values });
    const name = s.mode === "bias" ? "table" : "table_k";
    return s.method === "cross" ? { [`${name}_h`]: one(), [`${name}_w`]: one() } : { [name]: one() };
  },
  values: ({ s, p, head, q }) => {
    const starts = encodings.irpe.starts(s.ratio), levels = 2 * starts.length + 1;
    const reached = (value, limits) => limits.filter((start) => value >= start).length;
    const level = (delta) => Math.sign(delta) * reached(Math.abs(delta), starts) + starts.length;
    const limits = s.method === "euclidean" ? starts.map((start) => start * (start - 1) + 1) : starts;
    const joint = (dh, dw) => (s.method === "product" ? level(dh) * levels + level(dw) : reached(dh * dh + dw * dw, limits));
    const rows = { product: levels * levels, cross: levels }[s.method] ?? starts.length + 1;
    const entry = (name, at) => (s.mode === "bias" ? p[name][head * rows + at] : SCALE * dot(q, p[name], 0, WIDTH * at));
    const name = s.mode === "bias" ? "table" : "table_k";
    return (dh, dw) => (s.method === "cross" ? entry(`${name}_h`, level(dh)) + entry(`${name}_w`, level(dw)) : entry(name, joint(dh, dw)));
  },
});
