// All heads of one kind at a glance, by layer or sorted by a measure.

import { element, fill, segmented, choice, toolbar } from "./dom.js";
import { KINDS, attentionAxes, drawThumbnail, headTable, thumbnailColors } from "./attention.js";
import { colorText, weightColor } from "./figure.js";
import { EXPLAINED, MEASURES, allHeads, measuresOf } from "./heads.js";

const MOST_OVERLAID = 5; // beside the head that is shown

export function drawGrid(view) {
  const sorts = Object.entries(MEASURES).filter(([name]) => view.kind === "cross" || name !== "aligned")
    .map(([name, [title]]) => [name, title]);
  const redraw = (change) => {
    Object.assign(view, change);
    view.axes = attentionAxes(view.inspection, view.kind, view.level);
    view.layer = Math.min(view.layer, view.attention[view.kind].layers);
    view.drawHeads();
  };
  fill(view.grid,
    toolbar(element("h2", { id: "heads-title" }, "All heads"),
      segmented("Kind of attention", Object.entries(KINDS), view.kind, (kind) => redraw({ kind, word: null, overlay: [] }))),
    element("p.small.muted", {}, EXPLAINED[view.kind][2]),
    toolbar(choice("Sort by", [["", "Layer"], ...sorts], view.sort, (sort) => redraw({ sort })),
      segmented("Level", [["word", "Words"], ["token", "Tokens"]], view.level, (level) => redraw({ level, word: null }))),
    view.sort ? sortedHeads(view) : headsByLayer(view),
    toolbar(element("span.small.muted", {}, "A click"),
      segmented("What a click on a head does", [["show", "shows"], ["overlay", "overlays"], ["off", "switches off"]], view.click, (click) => { view.click = click; }),
      element("span.push"), weightLegend()));
}

function headsByLayer(view) {
  const { layers, heads } = view.attention[view.kind];
  const cells = headCells(view, allHeads(view));
  const rows = Array.from({ length: layers }, (_, layer) => [
    element("span.layer.small.muted", {}, layer + 1),
    cells.slice(layer * heads, (layer + 1) * heads),
  ]);
  const titles = Array.from({ length: heads }, (_, head) => element("span.small.muted.head-number", {}, head + 1));
  const grid = gridOf("by-layer", element("span.small.muted.corner", {}, "layer"), titles, rows);
  grid.style.setProperty("--heads", heads);
  return grid;
}

function sortedHeads(view) {
  const [, format] = MEASURES[view.sort];
  const value = ({ name }) => measuresOf(view, name)[view.sort] ?? 0;
  const order = allHeads(view).sort((first, second) => value(second) - value(first));
  const cells = headCells(view, order);
  return gridOf("sorted", order.map((head, place) => element("span.cell-with-label", {}, cells[place],
    element("small.number.muted", {}, `${head.layer}.${head.head} · ${format(value(head))}`))));
}

function gridOf(kind, ...children) {
  return element("div", { class: `grid ${kind}`, role: "group", "aria-label": "Heads; the arrow keys move", onkeydown: moveInGrid }, children);
}

function headCells(view, heads) {
  const colors = thumbnailColors();
  return heads.map(({ layer, head, name }) => {
    const canvas = element("canvas", { "aria-hidden": "true" });
    drawThumbnail(canvas, headTable(view.attention[view.kind], view.axes, layer, head), colors);
    const isShown = layer === view.layer && head === view.head;
    const isOff = view.without.includes(name);
    const overlaid = view.overlay.indexOf(name);
    const says = [`Layer ${layer}, head ${head}`, isOff ? "switched off" : "", overlaid >= 0 ? "overlaid" : ""].filter(Boolean).join(", ");
    return element("button", {
      class: `cell${isOff ? " off" : ""}${overlaid >= 0 ? " overlaid" : ""}`, "data-head": name,
      "aria-pressed": String(isShown), "aria-label": says, title: says, tabindex: isShown ? "0" : "-1",
      onclick: () => clickHead(view, layer, head, name),
    }, canvas, isOff ? element("span.cross", { "aria-hidden": "true" }, "✕") : null);
  });
}

function moveInGrid(event) {
  const cells = [...event.currentTarget.querySelectorAll(".cell")];
  const columns = cells.filter((cell) => cell.getBoundingClientRect().top === cells[0].getBoundingClientRect().top).length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
  if (!step) return;
  const next = cells[cells.indexOf(event.target) + step];
  event.preventDefault();
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function clickHead(view, layer, head, name) {
  if (view.click === "off") {
    view.toggleHead(name);
    return;
  }
  if (view.click === "overlay") {
    const shown = `${view.kind}.${view.layer}.${view.head}`;
    if (name === shown) return;
    const others = view.overlay.filter((other) => other !== name);
    view.overlay = others.length < view.overlay.length ? others : [...view.overlay, name].slice(-MOST_OVERLAID);
    view.figure = "lines";
  } else Object.assign(view, { layer, head, overlay: view.overlay.filter((other) => other !== name) });
  view.drawHeads();
}

function weightLegend() {
  const [low, high] = thumbnailColors();
  const swatches = [0, 0.1, 0.25, 0.5, 1].map((weight) => {
    const swatch = element("i", { "aria-hidden": "true" });
    swatch.style.background = colorText(weightColor(weight, low, high));
    return element("span", {}, swatch, weight);
  });
  return element("span.weights.small.muted.number", { role: "img", "aria-label": "Colours: pale for a weight of 0, full for 1" }, swatches);
}
