// A formula as MathML, a new line where two spaces are. Written as text: x_i, x_{ij}, x^2, \frac{a}{b}, \sqrt{a},
// \sum_{a}, "words"; the rest stands for itself, and a name of several letters is upright.
"use strict";

const mathml = (text) => text.split("  ").map(line).join("");

function line(text) {
  const tokens = text.match(/\\[a-z]+|"[^"]*"|[-+]=|[A-Za-z]+|\d+(?:\.\d+)?|\s+|./gu) ?? [];
  let at = 0;
  const escaped = (word) => word.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const row = (parts) => (parts.length === 1 ? parts[0] : `<mrow>${parts.join("")}</mrow>`);
  const upright = /^(logit|sign|log|ln|clip|cos|sin|max|size|bucket|softplus|exp|triu|base|period|MLP)$/;

  function group() {
    if (tokens[at] !== "{") return atom();
    at++;
    const parts = sequence("}");
    at++;
    return row(parts);
  }
  function atom() {
    const token = tokens[at++];
    if (token === undefined) throw new Error(`the formula ends too early: ${text}`);
    if (token === "\\frac") return `<mfrac>${group()}${group()}</mfrac>`;
    if (token === "\\sqrt") return `<msqrt>${group()}</msqrt>`;
    if (token === "\\sum") return "<mo>∑</mo>";
    if (token.startsWith('"')) return `<mtext>\u00a0${escaped(token.slice(1, -1))}\u00a0</mtext>`;
    if (/^\d/.test(token)) return `<mn>${token}</mn>`;
    if (/^[A-Za-z]+$/.test(token)) {
      if (upright.test(token)) return `<mi mathvariant="normal">${token}</mi>`;
      return row([...token].map((letter) => `<mi>${letter}</mi>`));
    }
    if (/\p{L}/u.test(token)) return `<mi>${token}</mi>`;
    if (/^\s+$/.test(token)) return "";
    const before = tokens.slice(0, at - 1).reverse().find((word) => word.trim());
    const sign = token === "-" && (before === undefined || "=([{,".includes(before));
    return `<mo stretchy="false"${sign ? ' form="prefix"' : ""}>${escaped(token.replace("-", "−"))}</mo>`;
  }
  function sequence(end) {
    const parts = [];
    while (at < tokens.length && tokens[at] !== end) {
      const sum = tokens[at] === "\\sum";
      let part = atom();
      const found = {};
      while (tokens[at] === "_" || tokens[at] === "^") {
        const mark = tokens[at++];
        found[mark] = group();
      }
      const [below, above] = [found._, found["^"]];
      const kind = sum ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
      if (below && above) part = `<${kind[2]}>${part}${below}${above}</${kind[2]}>`;
      else if (below) part = `<${kind[0]}>${part}${below}</${kind[0]}>`;
      else if (above) part = `<${kind[1]}>${part}${above}</${kind[1]}>`;
      if (part !== "") parts.push(part);
    }
    return parts;
  }
  const parts = sequence(null);
  return `<math display="block">${row(parts)}</math>`;
}
