// The beam search as a tree: what was kept, what was given up and why.

import { element, svgElement, showTip, hideTip, signed, toolbar } from "./dom.js";
import { figureColors, figureFrame, saveButtons, shorten, textWidth } from "./figure.js";
import { tokenName } from "./words.js";

const STATES = { kept: "kept", pruned: "given up", ended: "complete" };
const LINE_HEIGHT = 30;

// Add the tree and the hypotheses to a root.
export function showBeam(root, inspection) {
  const { beam } = inspection;
  const figure = drawTree(beam);
  root.append(
    toolbar(element("ul.key.small.muted", {},
        element("li.best", {}, "the translation"), element("li", {}, "kept for a while"),
        element("li.pruned", {}, "given up at once")),
      element("span.push"), saveButtons("beam", () => figure)),
    element("div.scroll", { tabindex: "0", role: "region", "aria-label": "Tree of the beam search" }, figure),
    hypotheses(inspection), asText(beam));
}

// Lay the nodes out: a column for each step. The best comes first, then what was kept by probability, then
// what was given up in the order of its parents, so that few lines cross.
function layOut(beam) {
  const columns = [];
  beam.nodes.forEach((node, index) => {
    columns[node.step] ??= [];
    columns[node.step].push({ ...node, index, label: nodeLabel(node) });
  });
  const places = [];
  const order = (node) => {
    if (node.best) return -1e9;
    return node.state === "pruned" ? 1e6 + places[node.parent].y : -node.log_prob;
  };
  let x = 8;
  for (const column of columns) {
    column.sort((first, second) => order(first) - order(second));
    column.forEach((node, row) => {
      places[node.index] = Object.assign(node, { x, y: 20 + row * LINE_HEIGHT, width: textWidth(node.label, 13) + 18 });
    });
    x += Math.max(...column.map((node) => node.width)) + 34;
  }
  return { places, width: x - 24, height: 14 + LINE_HEIGHT * Math.max(...columns.map((column) => column.length)) };
}

function nodeLabel(node) {
  if (node.parent === null) return "‹start›";
  const text = shorten(tokenName(node.text), 16);
  return node.state === "pruned" ? `✕ ${text}` : text;
}

function drawTree(beam) {
  const { places, width, height } = layOut(beam);
  const colors = figureColors();
  const label = `Beam search of width ${beam.size}: ${beam.nodes.length} nodes. The table below has them as text.`;
  const figure = svgElement("svg", figureFrame(width, height, label));
  const edges = places.filter((node) => node.parent !== null).map((node) => {
    const parent = places[node.parent];
    const x1 = parent.x + parent.width;
    const bend = (node.x - x1) / 2;
    return svgElement("path", {
      d: `M${x1},${parent.y}C${x1 + bend},${parent.y} ${node.x - bend},${node.y} ${node.x},${node.y}`, fill: "none",
      stroke: node.best ? colors.accent : colors.muted, "stroke-width": node.best ? 2.5 : 1,
      "stroke-opacity": node.best ? 1 : node.state === "pruned" ? 0.45 : 0.8, "stroke-dasharray": node.state === "pruned" ? "3 3" : null,
    });
  });
  figure.append(...edges.reverse(), ...places.map((node) => drawNode(node, colors)));
  return figure;
}

function drawNode(node, colors) {
  const isPruned = node.state === "pruned";
  const box = svgElement("rect", {
    x: node.x, y: node.y - 11, width: node.width, height: 22, rx: 6, fill: node.best ? colors.accent : colors.card,
    stroke: node.best ? colors.accent : colors.muted, "stroke-opacity": isPruned ? 0.5 : 1,
    "stroke-dasharray": isPruned ? "3 3" : null, "stroke-width": node.state === "ended" ? 2.5 : 1,
  });
  const text = svgElement("text", {
    x: node.x + 9, y: node.y, "dominant-baseline": "central",
    fill: node.best ? colors.card : isPruned ? colors.muted : colors.ink, "font-weight": node.best ? 600 : 400,
  }, node.label);
  return svgElement("g", {
    onpointermove: (event) => showTip(event.clientX, event.clientY, describeNode(node)),
    onpointerleave: hideTip,
  }, box, text);
}

function describeNode(node) {
  const state = node.best ? "on the path of the translation" : STATES[node.state];
  const reason = node.reason ? `: ${node.reason}` : "";
  return `${node.label.replace("✕ ", "")} · log P ${signed(node.log_prob, 2)} · ${state}${reason}`;
}

function hypotheses(inspection) {
  const { beam, model } = inspection;
  return dataTable(["#", "Complete hypothesis", "Score"], beam.hypotheses.map(({ text, score }, place) =>
    [place + 1, element("span", { lang: model.target_language, dir: "auto" }, text), signed(score, 3)]), "hypotheses");
}

// The same tree as a table, made when it is opened.
function asText(beam) {
  const details = element("details.small", {}, element("summary", {}, "The tree as a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    details.append(dataTable(["Step", "Token", "State", "log P", "Reason"], beam.nodes.slice(1).map((node) =>
      [node.step, nodeLabel(node), STATES[node.state], signed(node.log_prob, 2), node.reason])));
  });
  return details;
}

function dataTable(titles, rows, name = null) {
  return element("div.scroll", {}, element("table", { class: name },
    element("thead", {}, element("tr", {}, titles.map((title) => element("th", { scope: "col" }, title)))),
    element("tbody", {}, rows.map((cells) => element("tr", {}, cells.map((cell) => element("td", {}, cell)))))));
}
