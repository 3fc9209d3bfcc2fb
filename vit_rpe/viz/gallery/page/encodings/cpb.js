add("cpb", {
  formula: 'logit_{ij} += 16 σ(MLP(sign(x) \\frac{log_2(1 + |x|)}{3})),  x_a = \\frac{8 Δ_a}{size_a - 1}',
  good: "A small network of the log offset: smooth, defined at every size, fine near the query and coarse far away. Made for training at one resolution and running at another.",
  controls: [choice("mode", "mode", "swinv2", "log"), slider("native", "size it was trained on", 2, 24, 1, 9), slider("weight", "weights", 0.5, 6, 0.5, 3)],
  options: (s) => ({ hidden: 16, mode: s.mode, ...(s.mode === "swinv2" ? { native: [s.native, s.native] } : {}) }),
  parameters: (s, g, draw) => ({
    "fc1.weight": draw.normal([16, 2], s.weight), "fc1.bias": draw.normal([16]), "fc2.weight": draw.normal([HEADS, 16], 0.25),
    ...(s.mode === "log" ? { "fc2.bias": draw.normal([HEADS]) } : {}),
  }),
  values: ({ s, p, head }) => {
    const swin = s.mode === "swinv2";
    const input = (delta) => {
      const x = swin ? (8 * delta) / (s.native - 1) : delta;
      return Math.sign(x) * (swin ? Math.log2(1 + Math.abs(x)) / 3 : Math.log1p(Math.abs(x)));
    };
    return (dh, dw) => {
      const y = [input(dh), input(dw)];
      const out = total(range(16).map((unit) => p["fc2.weight"][head * 16 + unit] * Math.max(0, p["fc1.bias"][unit] + dot(p["fc1.weight"], y, 2 * unit, 0, 2))));
      return swin ? 16 / (1 + Math.exp(-out)) : out + p["fc2.bias"][head];
    };
  },
});
