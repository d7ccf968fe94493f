// The parts of a lesson: formulas, lines of code, and the waves of the positional encoding.

import { element, svgElement } from "./dom.js";

const MATH_NAMESPACE = "http://www.w3.org/1998/Math/MathML";

// A formula, from MathML without its attributes.
export function mathNode({ formula }) {
  const box = element("div.formula");
  const open = [box];
  for (const [, close, name, text] of formula.matchAll(/<(\/?)(\w+)[^>]*>|([^<]+)/g)) {
    if (close) open.pop();
    else if (text) open.at(-1).append(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"));
    else {
      const node = document.createElementNS(MATH_NAMESPACE, name);
      open.at(-1).append(node);
      open.push(node);
    }
  }
  box.firstChild.setAttribute("display", "block");
  return box;
}

// The function that computes a step: the lines that matter with some around them, then all of it.
export function codeNode({ code: { file, first_line: start, lines, highlight } }) {
  const all = lines.split("\n");
  let first = Math.max(all.findLastIndex((line, index) => index < highlight[0] && line.includes('"""')) + 1, highlight[0] - 2);
  while (all[first].trim() === ")") first += 1;
  const shown = all.slice(first, highlight.at(-1) + 2).map((line, index) => element(highlight.includes(first + index) ? "mark" : "span", {}, `${line.slice(4)}\n`));
  return element("div.source.small", {}, element("p.muted", {}, `${file}, line ${start + highlight[0]}`), element("pre", {}, shown),
    element("details", {}, element("summary", {}, "Whole function"), element("pre", {}, lines)));
}

// Sine and cosine of one pair of dimensions over the positions, with a dot for each token.
export function waveFigure(pair, dimensions, tokens) {
  const [width, height, length] = [640, 110, Math.max(24, tokens.length + 3)];
  const slowness = 10_000 ** ((2 * pair) / dimensions);
  const at = (wave, position) => [10 + (position / length) * (width - 20), height / 2 - wave(position / slowness) * (height / 2 - 8)];
  const text = `The wave repeats every ${Number((2 * Math.PI * slowness).toPrecision(3)).toLocaleString("en")} positions.`;
  const waves = [Math.sin, Math.cos].map((wave, series) => {
    const points = Array.from({ length: 161 }, (_, index) => at(wave, (index / 160) * length).map((value) => value.toFixed(1)).join());
    const dots = tokens.map((token, position) => {
      const [cx, cy] = at(wave, position);
      return svgElement("circle", { cx, cy, r: 3.4 }, svgElement("title", {}, `${token}: ${wave(position / slowness).toFixed(3)}`));
    });
    return svgElement("g", { class: `curve-${series + 1}` }, svgElement("polyline", { points: points.join(" ") }), dots);
  });
  return element("div", {}, svgElement("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "chart waves", "aria-label": `Sine and cosine. ${text}` }, waves),
    element("p.small.muted", {}, `Sine (solid) and cosine (dashed), a dot for each token. ${text}`));
}
