add("rope_mixed", {
  formula: '"angle of pair" t: \\sum_{a} x_a f_{a,h,t}',
  good: "Rotary with learned frequencies along all axes at once, a set for every head: diagonals become possible. In its paper ahead of the axial form on images of another size.",
  content: "ones",
  controls: [slider("base", "base", 1.5, 100, 0, 10, true), choice("normalized", "coordinates", "tokens", "0 to 1"), slider("speed", "speeds times", 0.25, 8, 0.25, 1)],
  options: (s) => ({ normalized: s.normalized !== "tokens" }),
  parameters: (s, g, draw) => {
    const pairs = WIDTH / 2, share = pairs / 2, turn = range(HEADS).map(() => 2 * Math.PI * draw.next());
    const values = [0, 1].flatMap((axis) => range(HEADS).flatMap((head) => range(pairs).map((pair) => {
      const phi = turn[head] + (pair >= share ? Math.PI / 2 : 0);
      return s.speed * s.base ** (-(pair % share) / share) * (axis === 0 ? Math.cos(phi) : Math.sin(phi));
    })));
    return { frequencies: { shape: [2, HEADS, pairs], values } };
  },
  values: ({ s, g, p, head }) => {
    const pairs = WIDTH / 2, unit = s.normalized === "tokens" ? [1, 1] : [g.rows, g.columns];
    return (dh, dw) => turned(range(pairs).map((pair) => (p.frequencies[head * pairs + pair] * dh) / unit[0] + (p.frequencies[(HEADS + head) * pairs + pair] * dw) / unit[1]));
  },
});
