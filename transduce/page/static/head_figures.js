// One head, large: as a heat map, or as lines between words.

import { element, svgElement, showTip, hideTip, percent } from "./dom.js";
import { colorText, figureColors, figureFrame, shorten, textWidth, weightColor } from "./figure.js";
import { drawThumbnail, strongestOf, thumbnailColors, weightAt } from "./attention.js";

const LARGEST_VECTOR = 6_400; // cells; larger heat maps are drawn as one image
const FAINTEST_LINE = 0.015;

// --- heat map

// Draw one head as a heat map. A click on a row chooses it; options are {width, row, label, choose}.
export function heatMap(table, { width, row = null, label, choose }) {
  const colors = figureColors();
  const rowLabels = table.rows.map((text) => shorten(text));
  const columnLabels = table.columns.map((text) => shorten(text));
  const left = Math.max(...rowLabels.map((text) => textWidth(text, 13))) + 12;
  const longest = Math.max(...columnLabels.map((text) => textWidth(text, 13)));
  const top = longest * 0.78 + 16;
  const slant = longest * 0.63;
  const cell = Math.max(13, Math.min(36, (width - left - slant) / table.columns.length));
  const area = { x: left, y: top, width: cell * table.columns.length, height: cell * table.rows.length };
  const figure = svgElement("svg", figureFrame(left + area.width + slant, top + area.height + 2, label));

  columnLabels.forEach((text, column) => figure.append(svgElement("text", {
    transform: `translate(${left + (column + 0.5) * cell + 3} ${top - 8}) rotate(-51)`, fill: colors.muted, "font-size": 13,
  }, text)));
  rowLabels.forEach((text, place) => figure.append(svgElement("text", {
    x: left - 8, y: top + (place + 0.5) * cell, "text-anchor": "end", "dominant-baseline": "central",
    fill: place === row ? colors.accent : colors.muted, "font-weight": place === row ? 700 : 400, "data-row": place,
  }, text)));
  figure.append(table.weights.length > LARGEST_VECTOR ? heatImage(table, area) : heatCells(table, left, top, cell));
  figure.append(svgElement("rect", { ...area, fill: "none", stroke: colors.line }));
  if (row !== null) {
    figure.append(svgElement("rect", { ...area, y: top + row * cell, height: cell, fill: "none", stroke: colors.accent, "stroke-width": 2 }));
  }
  explore(figure, table, { left, top, cell, colors, choose });
  return figure;
}

function heatCells(table, left, top, cell) {
  const [low, high] = thumbnailColors();
  const group = svgElement("g", { "shape-rendering": "crispEdges" });
  table.weights.forEach((weight, place) => {
    if (weight < 0.002) return;
    const row = Math.floor(place / table.columns.length);
    const column = place % table.columns.length;
    group.append(svgElement("rect", {
      x: (left + column * cell).toFixed(2), y: (top + row * cell).toFixed(2), width: cell.toFixed(2), height: cell.toFixed(2),
      fill: colorText(weightColor(weight, low, high)),
    }));
  });
  return group;
}

function heatImage(table, area) {
  const canvas = document.createElement("canvas");
  drawThumbnail(canvas, table, thumbnailColors());
  const image = svgElement("image", { ...area, href: canvas.toDataURL(), preserveAspectRatio: "none" });
  image.style.imageRendering = "pixelated";
  return image;
}

// The pointer shows the number of its cell; a click chooses the row.
function explore(figure, table, { left, top, cell, colors, choose }) {
  const cursor = svgElement("rect", { width: cell, height: cell, fill: "none", stroke: colors.ink, "stroke-width": 1.5, visibility: "hidden", "data-screen": "" });
  figure.append(cursor);
  const find = (event) => {
    const box = figure.getBoundingClientRect();
    const scale = figure.viewBox.baseVal.width / box.width;
    const row = Math.floor(((event.clientY - box.top) * scale - top) / cell);
    const column = Math.floor(((event.clientX - box.left) * scale - left) / cell);
    return { row, column, isRow: row >= 0 && row < table.rows.length, isColumn: column >= 0 && column < table.columns.length };
  };
  figure.addEventListener("pointermove", (event) => {
    const { row, column, isRow, isColumn } = find(event);
    cursor.setAttribute("visibility", isRow && isColumn ? "visible" : "hidden");
    if (!isRow || !isColumn) return hideTip();
    cursor.setAttribute("x", left + column * cell);
    cursor.setAttribute("y", top + row * cell);
    return showTip(event.clientX, event.clientY, `${table.rows[row]} → ${table.columns[column]}: ${weightAt(table, row, column).toFixed(3)}`);
  });
  figure.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    hideTip();
  });
  figure.addEventListener("click", (event) => {
    const { row, isRow } = find(event);
    if (isRow) choose(row);
  });
}

// --- lines between words

// Draw heads as lines from each word to the words it attends to, one colour for each head.
export function lineMap(tables, { width, row = null, label, choose, rowTitle, columnTitle }) {
  const colors = figureColors();
  const [{ rows, columns }] = tables;
  const step = 27;
  const top = 30;
  const widest = (labels) => Math.max(...labels.map((text) => textWidth(shorten(text), 15)));
  const left = Math.max(widest(rows), textWidth(rowTitle, 12)) + 16;
  const numbers = row === null ? 0 : 44;
  const right = Math.max(widest(columns) + numbers, textWidth(columnTitle, 12)) + 16;
  const full = Math.max(left + right + 110, Math.min(width, left + right + 330));
  const height = top + step * Math.max(rows.length, columns.length) + 6;
  const figure = svgElement("svg", figureFrame(full, height, label));
  const middle = (place, count) => top + step * (place + 0.5) + (step * Math.max(0, Math.max(rows.length, columns.length) - count)) / 2;
  const ends = { x1: left, x2: full - right, y1: (place) => middle(place, rows.length), y2: (place) => middle(place, columns.length) };

  figure.append(
    svgElement("text", { x: left - 10, y: 14, "text-anchor": "end", "font-size": 12, fill: colors.muted }, rowTitle),
    svgElement("text", { x: ends.x2 + 10, y: 14, "font-size": 12, fill: colors.muted }, columnTitle));
  const lines = svgElement("g", { fill: "none", "stroke-linecap": "round" });
  figure.append(lines);
  const draw = (shown) => drawLines(lines, tables, ends, shown, colors);
  draw(row);
  lineLabels(figure, tables, ends, { row, colors, choose, full });

  // The pointer over a word shows its lines alone.
  figure.addEventListener("pointerover", (event) => {
    const hovered = event.target.dataset.row;
    draw(hovered === undefined ? row : Number(hovered));
    if (hovered === undefined) hideTip();
    else showTip(event.clientX, event.clientY, tables.map((table) => describeRow(table, Number(hovered))));
  });
  figure.addEventListener("pointerleave", () => {
    draw(row);
    hideTip();
  });
  return figure;
}

// What a row attends to most, in words.
function describeRow(table, row) {
  const words = strongestOf(table, row).slice(0, 3).map(({ label, weight }) => `${label} ${percent(weight)}`);
  return element("div", {}, `${table.layer}.${table.head}: ${table.rows[row]} → ${words.join(", ")}`);
}

function drawLines(group, tables, { x1, x2, y1, y2 }, row, colors) {
  const bend = (x2 - x1) / 2;
  const faintest = row === null && tables[0].rows.length > 40 ? 0.1 : FAINTEST_LINE; // or the browser would be slow
  const paths = [];
  tables.forEach((table, number) => {
    table.weights.forEach((weight, place) => {
      const r = Math.floor(place / table.columns.length);
      if (weight < faintest || (row !== null && r !== row)) return;
      const shift = (number - (tables.length - 1) / 2) * 3;
      const from = y1(r) + shift;
      const to = y2(place % table.columns.length) + shift;
      paths.push(svgElement("path", {
        d: `M${x1},${from}C${x1 + bend},${from} ${x2 - bend},${to} ${x2},${to}`, stroke: colors.series[number % colors.series.length],
        "stroke-opacity": Math.min(1, 0.08 + weight).toFixed(3), "stroke-width": (0.8 + weight * 3.2).toFixed(2),
      }));
    });
  });
  group.replaceChildren(...paths);
}

function lineLabels(figure, tables, { x1, x2, y1, y2 }, { row, colors, choose, full }) {
  const [table] = tables;
  table.rows.forEach((text, place) => {
    const isChosen = place === row;
    figure.append(svgElement("text", {
      x: x1 - 8, y: y1(place), "text-anchor": "end", "dominant-baseline": "central", "font-size": 15, "data-row": place,
      fill: isChosen ? colors.accent : colors.ink, "font-weight": isChosen ? 700 : 400, cursor: "pointer", onclick: () => choose(place),
    }, shorten(text)));
  });
  table.columns.forEach((text, place) => {
    const most = row === null ? 0 : Math.max(...tables.map((other) => weightAt(other, row, place)));
    const isFaint = row !== null && most < 0.05;
    figure.append(svgElement("text", {
      x: x2 + 8, y: y2(place), "dominant-baseline": "central", "font-size": 15,
      fill: isFaint ? colors.muted : colors.ink, "font-weight": most > 0.25 ? 700 : 400,
    }, shorten(text)));
    if (row !== null && most >= 0.05) {
      figure.append(svgElement("text", {
        x: full - 2, y: y2(place), "text-anchor": "end", "dominant-baseline": "central", "font-size": 12, fill: colors.muted,
      }, percent(most)));
    }
  });
}
