add("lookhere", {
  formula: 'logit_{ij} -= m_h ‖Δ‖ "in the field of view of head" h  logit_{ij} = -∞ "outside"',
  good: "Each head looks one way and prefers what is near; no parameters. Made for running on larger images than it was trained on. Step through the heads: hidden keys are grey.",
  controls: [choice("fov", "field of view", 90, 180, 45), slider("layer", "layer (of 12)", 0, 11, 1, 5)],
  options: (s) => ({ fov: Number(s.fov), depth_index: s.layer, depth: 12 }),
  values: ({ s, head }) => {
    const regions = {
      up: (dh) => dh >= 0, down: (dh) => -dh >= 0, left: (dh, dw) => dw >= 0, right: (dh, dw) => -dw >= 0,
      UP: (dh, dw) => dh >= Math.abs(dw), DOWN: (dh, dw) => -dh >= Math.abs(dw), LEFT: (dh, dw) => dw >= Math.abs(dh), RIGHT: (dh, dw) => -dw >= Math.abs(dh),
    };
    const fields = {
      180: "up down left right up down left right", 90: "up&left up&right down&left down&right UP DOWN LEFT RIGHT",
      45: "UP&left DOWN&left LEFT&up RIGHT&up UP&right DOWN&right LEFT&down RIGHT&down",
    };
    const directed = HEADS - Math.floor(HEADS / 3), factor = 1.5 - s.layer / 11;
    const seen = head < directed ? fields[s.fov].split(" ")[head].split("&").map((region) => regions[region]) : [];
    const slope = factor * (head < directed ? (Number(s.fov) === 180 && head >= 4 ? 0.25 : 0.5) : 4 ** -(1 + ((head - directed) % 4)));
    return (dh, dw) => (seen.every((region) => region(dh, dw)) ? -slope * distance(dh, dw) : -Infinity);
  },
});
