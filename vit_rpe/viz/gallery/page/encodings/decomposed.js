add("decomposed", {
  formula: 'logit_{ij} += q_i · (R_1[Δ_1] + R_2[Δ_2])',
  good: "A vector a row offset and one a column offset meet the query, also between pooled grids: detection and segmentation at high resolution (MViTv2, Segment Anything).",
  content: "random",
  controls: [slider("native", "size it was trained on", 2, 16, 1, 9)],
  native: (s) => [s.native, s.native],
  parameters: (s, g, draw) => Object.fromEntries([0, 1].map((axis) => {
    const { values } = draw.waves([1, 2 * s.native - 1, WIDTH], { width: WIDTH });
    return [`table_${axis}`, { shape: [2 * s.native - 1, WIDTH], values: values.map((value) => value / 4) }];
  })),
  values: ({ s, p, q }) => {
    const at = (delta) => WIDTH * clamp(delta + s.native - 1, 0, 2 * s.native - 2);
    return (dh, dw) => dot(q, p.table_0, 0, at(dh)) + dot(q, p.table_1, 0, at(dw));
  },
});
