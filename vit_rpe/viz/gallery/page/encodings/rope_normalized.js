add("rope_normalized", {
  formula: '"angle" \\frac{2 π x_a}{period_t},  x_a = \\frac{2 (i_a + 1/2)}{size_a} - 1',
  good: "Coordinates run from −1 to 1 on every grid: a larger image is the same range in finer steps. DINOv3's choice; change the grid size and see the map stay.",
  content: "ones",
  controls: [slider("base", "longest period (base)", 2, 1000, 0, 100, true), choice("normalize", "divide by", "separate", "min", "max")],
  options: (s) => ({ base: s.base, normalize: s.normalize }),
  values: ({ s, g }) => {
    const sizes = { separate: [g.rows, g.columns], min: Array(2).fill(Math.min(g.rows, g.columns)), max: Array(2).fill(Math.max(g.rows, g.columns)) }[s.normalize];
    const share = WIDTH / 4, periods = range(share).map((t) => s.base ** (t / share));
    return (dh, dw) => turned([dh / sizes[0], dw / sizes[1]].flatMap((place) => periods.map((period) => (4 * Math.PI * place) / period)));
  },
});
