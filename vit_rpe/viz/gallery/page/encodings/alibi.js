add("alibi", {
  formula: 'logit_{ij} -= m_h ‖Δ‖',
  good: "No parameters, and nothing to resample: near tokens count more, at every size. One slope a head from steep to almost flat; it cannot tell left from right.",
  controls: [slider("factor", "slopes times", 0.25, 8, 0.25, 1), choice("metric", "distance", "l2", "l1", "linf")],
  options: (s) => ({ metric: s.metric, learned: true }),
  parameters: (s, g, draw) => ({ slopes: draw.filled(range(HEADS).map((head) => s.factor * 2 ** (-8 * (head + 1) / HEADS))) }),
  values: ({ s, p, head }) => {
    const norms = {
      l2: distance, l1: (dh, dw) => Math.abs(dh) + Math.abs(dw), linf: (dh, dw) => Math.max(Math.abs(dh), Math.abs(dw)),
    };
    return (dh, dw) => -p.slopes[head] * norms[s.metric](dh, dw);
  },
});
