add("shaw", {
  formula: 'logit_{ij} += s q_i · a_K[clip(Δ)]',
  good: "A vector for every clipped offset meets the query: attention can ask for “what is left of me” where the content wants it. A second set joins the values (not drawn here).",
  content: "random",
  controls: [slider("far", "largest offset", 1, 12, 1, 4)],
  options: (s) => ({ max_distance: s.far, value: false }),
  parameters: (s, g, draw) => Object.fromEntries([0, 1].map((axis) => [`key_${axis}`, draw.waves([1, 2 * s.far + 1, WIDTH], { width: WIDTH })])),
  values: ({ s, p, q }) => {
    const at = (delta) => WIDTH * (clamp(delta, -s.far, s.far) + s.far);
    return (dh, dw) => SCALE * (dot(q, p.key_0, 0, at(dh)) + dot(q, p.key_1, 0, at(dw)));
  },
});
