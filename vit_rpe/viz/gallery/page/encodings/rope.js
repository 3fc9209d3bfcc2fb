add("rope", {
  formula: 'q_i → R(x_i) q_i, k_j → R(x_j) k_j:  "pair" t "turns by" f_t · x',
  good: "q and k turn, so that their product knows the offset: no parameters, and no bias that a fused kernel would have to take. Drawn for q and k of ones; real content picks the waves it wants.",
  content: "ones",
  controls: [choice("layout", "directions", "axial", "spiral", "golden", "simplex"), slider("base", "base", 2, 10000, 0, 100, true), slider("fastest", "fastest, radians a token", 0.05, 3.1, 0.05, 1)],
  options: (s) => ({ layout: s.layout, base: s.base, fastest: s.fastest }),
  // Where the normal distribution has left the share p behind: its series, by Newton's steps.
  quantile: (p) => {
    let x = 0;
    for (let step = 0; step < 60; step++) {
      let term = x, sum = x;
      for (let odd = 3; odd < 240; odd += 2) sum += term *= (x * x) / odd;
      const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
      x -= clamp((0.5 + density * sum - p) / density, -1, 1);
    }
    return x;
  },
  vectors: (s, head) => {
    const pairs = WIDTH / 2, falling = (count) => range(count).map((m) => s.fastest * s.base ** (-m / count));
    if (s.layout === "axial") return [0, 1].flatMap((axis) => falling(pairs / 2).map((speed) => (axis === 0 ? [speed, 0] : [0, speed])));
    if (s.layout === "spiral") {
      const directions = 4, own = falling(pairs / 2).map((speed, m) => [speed, (Math.PI / 2) * ((Math.floor(m / 2) % (directions / 2)) / (directions / 2))]);
      return [...own.map(([f, phi]) => [f * Math.cos(phi), f * Math.sin(phi)]), ...own.map(([f, phi]) => [-f * Math.sin(phi), f * Math.cos(phi)])];
    }
    if (s.layout === "golden") {
      let golden = 2;
      for (let step = 0; step < 64; step++) golden = Math.cbrt(1 + golden);
      return range(pairs).map((m) => {
        const number = head * pairs + m + 1, point = [1, 2].map((axis) => encodings.rope.quantile((number * golden ** -axis) % 1));
        const speed = s.fastest * s.base ** ((m - pairs + 1) / (pairs - 1)) / Math.hypot(...point);
        return point.map((value) => value * speed);
      });
    }
    const corners = [[1, 0], [-0.5, Math.sqrt(0.75)], [-0.5, -Math.sqrt(0.75)]];
    return corners.flatMap(([down, right]) => falling(Math.floor(pairs / 3)).map((speed) => [speed * down, speed * right]));
  },
  values: ({ s, head }) => {
    const vectors = encodings.rope.vectors(s, head);
    return (dh, dw) => turned(vectors.map(([down, right]) => down * dh + right * dw));
  },
});
