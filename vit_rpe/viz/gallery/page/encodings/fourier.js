add("fourier", {
  formula: 'logit_{ij} += \\sum_{a,r} [c_{a,h,r} cos(ω_r Δ_a) + s_{a,h,r} sin(ω_r Δ_a)],  ω_r = base^{-r/(R-1)}',
  good: "Any smooth prior of the offset from a few waves, on a grid of any size, without a table.",
  controls: [slider("terms", "waves R", 2, 16, 1, 6), slider("base", "slowest wave (base)", 2, 10000, 0, 30, true)],
  options: (s) => ({ terms: s.terms, base: s.base }),
  parameters: (s, g, draw) => ({ cosine: draw.normal([2, HEADS, s.terms], s.terms ** -0.5), sine: draw.normal([2, HEADS, s.terms], s.terms ** -0.5) }),
  values: ({ s, p, head }) => {
    const along = (delta, axis) => total(range(s.terms).map((wave) => {
      const angle = delta * s.base ** (-wave / (s.terms - 1)), at = (axis * HEADS + head) * s.terms + wave;
      return p.cosine[at] * Math.cos(angle) + p.sine[at] * Math.sin(angle);
    }));
    return (dh, dw) => along(dh, 0) + along(dw, 1);
  },
});
