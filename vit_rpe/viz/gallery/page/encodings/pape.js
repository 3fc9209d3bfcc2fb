add("pape", {
  formula: 'logit_{ij} += s \\sum_{r} [-a_r (u_r · Δ)^2 + b_r (u_r · Δ)],  a = softplus(A x_i), b = B x_i',
  good: "Parabolas that the query's own content opens and shifts: where to look and how widely depends on what is there. Draw again for another token.",
  content: "random",
  controls: [slider("parabolas", "parabolas R", 1, 8, 1, 3), slider("length", "steepness of u", 0.05, 1.5, 0.05, 0.4), slider("content", "what content does", 0, 3, 0.25, 1)],
  options: (s) => ({ parabolas: s.parabolas }),
  parameters: (s, g, draw) => ({
    "a.weight": draw.normal([HEADS * s.parabolas, CHANNELS], s.content * CHANNELS ** -0.5),
    "b.weight": draw.normal([HEADS * s.parabolas, CHANNELS], 2 * s.content * CHANNELS ** -0.5),
    directions: draw.normal([2, HEADS, s.parabolas], s.length),
  }),
  values: ({ s, p, head, x }) => {
    const terms = range(s.parabolas).map((number) => {
      const at = head * s.parabolas + number;
      return [softplus(dot(p["a.weight"], x, at * CHANNELS, 0, CHANNELS)), dot(p["b.weight"], x, at * CHANNELS, 0, CHANNELS), p.directions[at], p.directions[HEADS * s.parabolas + at]];
    });
    return (dh, dw) => SCALE * total(terms.map(([a, b, down, right]) => {
      const along = down * dh + right * dw;
      return -a * along * along + b * along;
    }));
  },
});
