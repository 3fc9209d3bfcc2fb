add("t5", {
  formula: 'logit_{ij} += \\sum_{a} T_{a,h}[bucket(-Δ_a)]',
  good: "Learned numbers for distance buckets: one each near the query, wider and wider ones far away. A handful of parameters and a value at every distance.",
  controls: [slider("buckets", "buckets", 4, 32, 2, 12), slider("far", "largest offset", 9, 64, 1, 16), choice("axes", "axes", "summed", "joint")],
  options: (s) => ({ num_buckets: s.buckets, max_distance: s.far, axes: s.axes }),
  parameters: (s, g, draw) => (s.axes === "joint" ? { table: draw.waves([HEADS, s.buckets, s.buckets]) }
    : { table_0: draw.waves([HEADS, s.buckets]), table_1: draw.waves([HEADS, s.buckets]) }),
  values: ({ s, p, head }) => {
    const half = s.buckets / 2, exact = Math.floor(half / 2);
    const bucket = (delta) => {
      const size = Math.min(Math.abs(delta), s.far), first = delta < 0 ? half : 0;
      if (size < exact) return first + size;
      const share = Math.log(size / exact) / Math.log(s.far / exact);
      return first + Math.min(exact + Math.floor(share * (half - exact) + 1e-9), half - 1);
    };
    if (s.axes === "joint") return (dh, dw) => p.table[(head * s.buckets + bucket(dh)) * s.buckets + bucket(dw)];
    return (dh, dw) => p.table_0[head * s.buckets + bucket(dh)] + p.table_1[head * s.buckets + bucket(dw)];
  },
});
