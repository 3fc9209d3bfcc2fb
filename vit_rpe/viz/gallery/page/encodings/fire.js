add("fire", {
  formula: 'logit_{ij} += MLP(\\frac{ψ(‖Δ‖)}{ψ(max(L, d_{max}(i)))}),  ψ(x) = ln(c x + 1)',
  good: "Distance relative to how far the query can look: a longer input is the same range in finer steps, so it interpolates where others extrapolate. Move the query: the map changes with its place.",
  controls: [slider("c", "squeeze c", 0.05, 4, 0.05, 0.5), slider("L", "shortest range L", 1, 30, 1, 8), slider("weight", "weights", 1, 20, 1, 8)],
  parameters: (s, g, draw) => ({
    "fc1.weight": draw.normal([32, 1], s.weight), "fc1.bias": draw.normal([32], s.weight / 3), "fc2.weight": draw.normal([HEADS, 32], 32 ** -0.5),
    "fc2.bias": draw.normal([HEADS], 0.1), c: draw.filled([s.c]), L: draw.filled([s.L]),
  }),
  values: ({ s, g, p, head }) => {
    const squeeze = (size) => Math.log1p(s.c * size);
    return (dh, dw, query) => {
      const farthest = Math.hypot(Math.max(query[0], g.rows - 1 - query[0]), Math.max(query[1], g.columns - 1 - query[1]));
      const ratio = squeeze(distance(dh, dw)) / (squeeze(Math.max(s.L, farthest)) + 1e-6);
      return p["fc2.bias"][head] + total(range(32).map((unit) => p["fc2.weight"][head * 32 + unit] * Math.max(0, p["fc1.weight"][unit] * ratio + p["fc1.bias"][unit])));
    };
  },
});
