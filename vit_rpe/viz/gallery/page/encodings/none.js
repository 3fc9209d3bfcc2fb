add("none", {
  formula: 'logit_{ij} += 0',
  good: "Nothing but content: the control that every other encoding is measured against. A patch model without position sees a bag of patches.",
  values: () => () => 0,
});
