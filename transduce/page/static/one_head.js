// One head, large: its figure, what a chosen word looks at, and its measures.

import { element, fill, keepFocus, segmented, choice, hideTip, toolbar } from "./dom.js";
import { KINDS, headTable, strongestOf } from "./attention.js";
import { saveButtons } from "./figure.js";
import { heatMap, lineMap } from "./head_figures.js";
import { EXPLAINED, MEASURES, allHeads, measuresOf } from "./heads.js";
import { bar } from "./replay.js";

const STRONGEST = 6;

function shownTables(view) {
  const shown = { layer: view.layer, head: view.head, name: `${view.kind}.${view.layer}.${view.head}` };
  const overlaid = allHeads(view).filter(({ name }) => view.overlay.includes(name) && name !== shown.name);
  const heads = view.figure === "lines" ? [shown, ...overlaid] : [shown];
  return heads.map(({ layer, head, name }) => ({ ...headTable(view.attention[view.kind], view.axes, layer, head), name }));
}

export function drawFigure(view) {
  hideTip();
  const tables = shownTables(view);
  const { name } = tables[0];
  const [rowTitle, columnTitle] = EXPLAINED[view.kind];
  const place = element("div.scroll.figure-place", { tabindex: "0", role: "region", "aria-label": "Figure" });
  const isOff = view.without.includes(name);
  const refresh = (change) => {
    Object.assign(view, change);
    keepFocus(view.large, () => drawFigure(view));
    view.remember();
  };
  fill(view.large,
    toolbar(element("h2", { id: "head-title" }, `Layer ${view.layer}, head ${view.head}`),
      element("code.muted", {}, name),
      element("button.quiet.push", { id: "toggle-head", onclick: () => view.toggleHead(name) }, isOff ? "Switch on" : "Switch off")),
    toolbar(segmented("Figure", [["lines", "Lines"], ["heat", "Heat map"]], view.figure, (figure) => refresh({ figure })),
      choice("From", [["", "all words"], ...tables[0].rows.map((text, row) => [row, text])], view.word ?? "", (row) => refresh({ word: row === "" ? null : Number(row) })),
      element("span.push"), saveButtons(name, () => place.querySelector("svg"))),
    tables.length > 1 ? overlayKey(view, tables) : null,
    place, view.word === null ? null : strongest(view, tables), measureList(view, name));
  const options = {
    width: place.clientWidth || 560, row: view.word, rowTitle, columnTitle, label: describeFigure(view, tables[0]),
    choose: (row) => refresh({ word: row === view.word ? null : row }),
  };
  fill(place, view.figure === "heat" ? heatMap(tables[0], options) : lineMap(tables, options));
}

function describeFigure(view, table) {
  const rows = view.word === null ? table.rows.map((_, row) => row) : [view.word];
  const links = rows.slice(0, 40).map((row) => `${table.rows[row]} to ${strongestOf(table, row)[0].label}`);
  return `${KINDS[view.kind]} attention of layer ${table.layer}, head ${table.head}. Strongest links: ${links.join("; ")}.`;
}

function overlayKey(view, tables) {
  const entries = tables.map((table, number) => {
    const swatch = element("i", { "aria-hidden": "true" });
    swatch.style.background = `var(--series-${number + 1})`;
    const text = element("span.swatch.small", {}, swatch, `${table.layer}.${table.head}`);
    return number === 0 ? text : element("button.chip", {
      "aria-label": `Remove head ${table.layer}.${table.head} from the overlay`,
      onclick: () => {
        view.overlay = view.overlay.filter((name) => name !== table.name);
        view.drawHeads();
      },
    }, text, element("span", { "aria-hidden": "true" }, " ✕"));
  });
  return element("div.toolbar.overlay-key", {}, entries);
}

// What the chosen word looks at most, as numbers.
function strongest(view, tables) {
  return element("div.split.strongest", {}, tables.map((table, number) => element("section", {},
    element("h3.small", {}, `“${table.rows[view.word]}” in head ${table.layer}.${table.head}`),
    element("ol.bars", {}, strongestOf(table, view.word).slice(0, tables.length > 1 ? 3 : STRONGEST).map(({ label, weight }) => bar(label, weight, false, `var(--series-${number + 1})`))))));
}

function measureList(view, name) {
  const measures = measuresOf(view, name);
  const entries = Object.entries(MEASURES).filter(([key]) => typeof measures[key] === "number");
  return element("dl.measures.small", {}, entries.map(([key, [title, format]]) =>
    element("div", {}, element("dt.muted", {}, title), element("dd.number", {}, format(measures[key])))));
}
