add("deberta", {
  formula: 'logit_{ij} = \\frac{q_i · k_j + q_i · K_r[b(Δ)] + k_j · Q_r[b(Δ)]}{\\sqrt{3 D}}',
  good: "Content meets position from both sides: what the query holds asks for places, and what the key holds answers. Strong where tokens differ; the most parameters here.",
  content: "random",
  controls: [slider("span", "span (half the rows)", 2, 12, 1, 6), slider("far", "largest offset", 8, 24, 1, 16), choice("directions", "directions", "both", "c2p", "p2c")],
  options: (s) => ({ span: s.span, max_distance: s.far, directions: s.directions === "both" ? ["c2p", "p2c"] : [s.directions] }),
  parameters: (s, g, draw) => {
    const embed = draw.waves([2, 2 * s.span, CHANNELS], { width: CHANNELS });
    return {
      embed: { shape: [4 * s.span, CHANNELS], values: embed.values },
      ...(s.directions !== "p2c" ? { "key_proj.weight": draw.normal([CHANNELS, CHANNELS], CHANNELS ** -0.5) } : {}),
      ...(s.directions !== "c2p" ? { "query_proj.weight": draw.normal([CHANNELS, CHANNELS], CHANNELS ** -0.5), "query_proj.bias": draw.normal([CHANNELS], 0.1) } : {}),
    };
  },
  values: ({ s, p, head, q, k }) => {
    const middle = Math.floor(s.span / 2), both = s.directions === "both";
    const bucket = (delta) => {
      const size = Math.abs(delta);
      if (size <= middle) return delta;
      return Math.sign(delta) * (Math.ceil(Math.fround((Math.log(size / middle) / Math.log((s.far - 1) / middle)) * (middle - 1))) + middle);
    };
    const at = (delta, axis) => (clamp(bucket(delta) + s.span, 0, 2 * s.span - 1) + axis * 2 * s.span) * CHANNELS;
    // q·(W e) = (Wᵀ q)·e, so that every offset costs one product
    const through = (weight, vector) => range(CHANNELS).map((column) => total(range(WIDTH).map((own) => vector[own] * p[weight][(head * WIDTH + own) * CHANNELS + column])));
    const sides = [];
    if (s.directions !== "p2c") sides.push([through("key_proj.weight", q), 0]);
    if (s.directions !== "c2p") sides.push([through("query_proj.weight", k), 2 * dot(k, p["query_proj.bias"], 0, head * WIDTH)]);
    const factor = SCALE / Math.sqrt(both ? 3 : 2);
    return (dh, dw) => factor * total(sides.map(([vector, constant]) => constant + dot(vector, p.embed, 0, at(dh, 0), CHANNELS) + dot(vector, p.embed, 0, at(dw, 1), CHANNELS)));
  },
});
