add("gaussian", {
  formula: 'logit_{ij} += v_h · (‖Δ‖^2, Δ_1, Δ_2)',
  good: "A head looks at a soft spot beside the query and learns where and how wide: attention that starts as a convolution. Three numbers a head.",
  controls: [slider("strength", "how narrow", 0.02, 1.5, 0.02, 0.2), slider("reach", "how far away", 0, 5, 0.25, 1.5)],
  parameters: (s, g, draw) => {
    const place = (head) => [Math.cos((Math.PI * head) / 4) * s.reach, Math.sin((Math.PI * head) / 4) * s.reach];
    const values = range(HEADS).flatMap((head) => [-s.strength, ...place(head).map((c) => -2 * s.strength * c)]);
    return { v: { shape: [HEADS, 3], values } };
  },
  values: ({ p, head }) => (dh, dw) => dot(p.v, [dh * dh + dw * dw, dh, dw], 3 * head, 0, 3),
});
