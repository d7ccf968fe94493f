// Attention weights: decoded from an inspection, joined to words, and drawn small.

import { themeColor } from "./dom.js";
import { weightColor } from "./figure.js";

export const KINDS = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };

// The weights of every kind: {layers, heads, queries, keys, data}, data being 65535 times the weight.
export function decodeAttention(inspection) {
  const decoded = {};
  for (const kind of Object.keys(KINDS)) {
    const { shape: [layers, heads, queries, keys], data } = inspection.attention[kind];
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    decoded[kind] = { layers, heads, queries, keys, data: new Uint16Array(bytes.buffer) };
  }
  return decoded;
}

// The rows and columns of a kind: [{label, members}], members being positions of tokens.
export function attentionAxes(inspection, kind, level) {
  const source = groupTokens(inspection.source, level);
  const target = groupTokens(inspection.target, level);
  if (kind === "encoder") return { rows: source, columns: source };
  if (kind === "cross") return { rows: target, columns: source };
  // The decoder reads the start and then every token but the last, each one place later.
  const inputs = target
    .map(({ label, members }) => ({ label, members: members.map((member) => member + 1) }))
    .filter(({ members }) => members[0] < inspection.target.tokens.length);
  return { rows: target, columns: [{ label: "‹start›", members: [0] }, ...inputs] };
}

function groupTokens({ words, tokens }, level) {
  const groups = [];
  tokens.forEach((token, place) => {
    const last = groups.at(-1);
    if (level === "word" && token.word !== null && last?.word === token.word) last.members.push(place);
    else groups.push({ label: tokenLabel(token, level, words), members: [place], word: token.word });
  });
  return groups;
}

function tokenLabel(token, level, words) {
  if (token.piece === "</s>") return "‹end›";
  if (level === "word" && token.word !== null) return words[token.word];
  return token.text.trim() || token.piece;
}

// One head as a table: rows and columns of labels, and weights row by row; each row sums to 1.
export function headTable(attention, axes, layer, head) {
  const { heads, queries, keys, data } = attention;
  const offset = ((layer - 1) * heads + (head - 1)) * queries * keys;
  const { rows, columns } = axes;
  const weights = new Float32Array(rows.length * columns.length);
  rows.forEach((row, r) => columns.forEach((column, c) => {
    let sum = 0;
    for (const query of row.members) for (const key of column.members) sum += data[offset + query * keys + key];
    weights[r * columns.length + c] = sum / 65535 / row.members.length;
  }));
  return { rows: rows.map((row) => row.label), columns: columns.map((column) => column.label), weights, layer, head };
}

// The mean of several tables of the same size.
export function meanTable(tables) {
  const weights = tables[0].weights.map((_, place) => tables.reduce((sum, table) => sum + table.weights[place], 0) / tables.length);
  return { ...tables[0], weights };
}

// What a row attends to, the strongest first.
export function strongestOf(table, row) {
  return table.columns.map((label, column) => ({ label, weight: weightAt(table, row, column) }))
    .sort((first, second) => second.weight - first.weight);
}

export function weightAt(table, row, column) {
  return table.weights[row * table.columns.length + column];
}

// --- the small picture of one head

export function drawThumbnail(canvas, table, colors) {
  canvas.width = table.columns.length;
  canvas.height = table.rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const palette = Array.from({ length: 256 }, (_, share) => [...weightColor(share / 255, ...colors), 255]);
  table.weights.forEach((weight, place) => image.data.set(palette[Math.round(weight * 255)], place * 4));
  context.putImageData(image, 0, 0);
}

// The colours of no weight and of all of it.
export function thumbnailColors() {
  return [themeColor("--card"), themeColor("--accent")];
}
