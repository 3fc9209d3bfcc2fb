add("pope", {
  formula: 'logit_{ij} = s \\sum_{c} μ(q_{i,c}) μ(k_{j,c}) cos(w_c Δ_{a(c)} - φ_{h,c}),  μ(x) = softplus(x),  w_c = base^{- 2 c / D}',
  good: "Content is a length, position an angle, so that “what” and “where” cannot be taken for one another as they can in rotary pairs. A learned phase moves what a channel looks for away from the query. In its paper ahead of rotary in language, music and genomes, and on sequences longer than those of training.",
  content: "random",
  controls: [slider("base", "base", 2, 10000, 0, 100, true), slider("phase", "phases from 0 to minus", 0, 6.25, 0.25, 1)],
  options: (s) => ({ base: s.base }),
  parameters: (s, g, draw) => ({ phase: { shape: [HEADS, WIDTH], values: range(CHANNELS).map(() => -s.phase * draw.next()) } }),
  values: ({ s, p, head, q, k }) => {
    const share = WIDTH / 2, speeds = range(share).map((c) => s.base ** (-c / share));
    const lengths = q.map((value, c) => softplus(value) * softplus(k[c]));
    return (dh, dw) => SCALE * total(lengths.map((length, c) => {
      const angle = speeds[c % share] * (c < share ? dh : dw) - p.phase[head * WIDTH + c];
      return length * (Math.cos(angle) - 1);
    }));
  },
});
