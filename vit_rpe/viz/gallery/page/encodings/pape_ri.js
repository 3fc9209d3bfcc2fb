add("pape_ri", {
  formula: 'logit_{ij} -= s a_h(x_i) c_h^2 ‖Δ‖^2,  a = softplus(A x_i)',
  good: "One paraboloid a head, as wide as the query's content decides; turned images look the same to it.",
  content: "random",
  controls: [slider("c", "largest c", 0.05, 2, 0.05, 0.6), slider("content", "what content does", 0, 3, 0.25, 1)],
  parameters: (s, g, draw) => ({ c: draw.filled(range(HEADS).map((head) => s.c / (head + 1))), "a.weight": draw.normal([HEADS, CHANNELS], s.content * CHANNELS ** -0.5) }),
  values: ({ p, head, x }) => {
    const width = SCALE * softplus(dot(p["a.weight"], x, head * CHANNELS, 0, CHANNELS)) * p.c[head] ** 2;
    return (dh, dw) => -width * (dh * dh + dw * dw);
  },
});
