add("kerple", {
  formula: 'logit_{ij} -= r_1 ln(1 + r_2 ‖Δ‖)',
  good: "ALiBi with a learned shape, two numbers a head: falls steeply near the query and flattens, so that far tokens are not lost on longer inputs.",
  controls: [choice("variant", "shape", "log", "power"), slider("r1", "factor r1 (first head)", 0.1, 6, 0.1, 2), slider("r2", "r2 (first head)", 0.1, 2, 0.1, 1)],
  options: (s) => ({ variant: s.variant }),
  parameters: (s, g, draw) => ({ r1: draw.filled(range(HEADS).map((head) => s.r1 / (head + 1))), r2: draw.filled(range(HEADS).map((head) => s.r2 / Math.sqrt(head + 1))) }),
  values: ({ s, p, head }) => {
    const r1 = Math.max(0.01, p.r1[head]), r2 = Math.max(0.01, p.r2[head]);
    return (dh, dw) => (s.variant === "log" ? -r1 * Math.log1p(r2 * distance(dh, dw)) : -r1 * distance(dh, dw) ** Math.min(2, r2));
  },
});
