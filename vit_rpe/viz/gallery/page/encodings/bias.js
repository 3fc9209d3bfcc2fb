add("bias", {
  formula: 'logit_{ij} += T_h[clip(Δ_1), clip(Δ_2)]',
  good: "One learned number for every joint offset: any shape, diagonals included. The standard of Swin and BEiT for a fixed size; tables grow with the grid and are resampled for another one.",
  controls: [slider("far", "largest offset M", 1, 14, 1, 8), choice("symmetric", "mirror images", "apart", "alike")],
  options: (s) => ({ max_distance: s.far, symmetric: s.symmetric === "alike" }),
  parameters: (s, g, draw) => {
    const side = s.symmetric === "alike" ? s.far + 1 : 2 * s.far + 1;
    return { table: draw.waves([HEADS, side, side]) };
  },
  values: ({ s, p, head }) => {
    const alike = s.symmetric === "alike", side = alike ? s.far + 1 : 2 * s.far + 1;
    const at = (delta) => (alike ? Math.min(Math.abs(delta), s.far) : clamp(delta, -s.far, s.far) + s.far);
    return (dh, dw) => p.table[(head * side + at(dh)) * side + at(dw)];
  },
});
