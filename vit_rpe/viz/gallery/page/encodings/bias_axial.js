add("bias_axial", {
  formula: 'logit_{ij} += \\sum_{a} T_{a,h}[clip(Δ_a)]',
  good: "The cheap form of bias: a number for every row offset and one for every column offset, summed. It draws crosses; “two right and one down” is only the sum of both.",
  controls: [slider("far", "largest offset M", 1, 14, 1, 8)],
  options: (s) => ({ max_distance: s.far }),
  parameters: (s, g, draw) => ({ table_0: draw.waves([HEADS, 2 * s.far + 1]), table_1: draw.waves([HEADS, 2 * s.far + 1]) }),
  values: ({ s, p, head }) => {
    const at = (delta) => head * (2 * s.far + 1) + clamp(delta, -s.far, s.far) + s.far;
    return (dh, dw) => p.table_0[at(dh)] + p.table_1[at(dw)];
  },
});
