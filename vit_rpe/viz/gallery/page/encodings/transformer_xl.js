add("transformer_xl", {
  formula: 'logit_{ij} = s [(q_i + u) · k_j + (q_i + v) · W_R r(Δ)]',
  good: "Sinusoids of the offset, projected and met by the query, with two learned vectors where only content or only position counts. Defined at every offset.",
  content: "random",
  controls: [slider("weight", "weights", 0.25, 3, 0.25, 1)],
  parameters: (s, g, draw) => ({
    u: draw.normal([HEADS, WIDTH], 0.5), v: draw.normal([HEADS, WIDTH], 0.5), "proj.weight": draw.normal([CHANNELS, CHANNELS], s.weight * CHANNELS ** -0.5),
  }),
  values: ({ p, head, q, k }) => {
    const met = q.map((value, at) => value + p.v[head * WIDTH + at]), half = CHANNELS / 4;
    const through = range(CHANNELS).map((column) => total(range(WIDTH).map((own) => met[own] * p["proj.weight"][(head * WIDTH + own) * CHANNELS + column])));
    const along = (delta, axis) => total(range(half).map((t) => {
      const angle = delta * 10000 ** (-t / half), at = axis * 2 * half + t;
      return through[at] * Math.sin(angle) + through[at + half] * Math.cos(angle);
    }));
    return (dh, dw) => SCALE * (along(dh, 0) + along(dw, 1) + dot(k, p.u, 0, head * WIDTH));
  },
});
