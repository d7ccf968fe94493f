// The translation as words, and the links between its words and those of the source.

import { element, fill, announce, showTip, hideTip, percent } from "./dom.js";
import { linkTo } from "./address.js";
import { locateWords, wordConfidences } from "./words.js";

const UNSURE = 0.5;
const FAIRLY_SURE = 0.8;
const LONGEST_INSPECTED = 2000; // characters that the server inspects at once

// --- drawing

// Draw the sentences; those after the last that arrived are old.
export function drawTranslation(view, arrived = Infinity) {
  cancelAnimationFrame(view.frame);
  view.frame = 0;
  view.words = [];
  const parts = view.sentences.map((sentence, number) => [
    sentence.before,
    element("span", { class: number > arrived ? "sentence old" : "sentence" }, drawSentence(view, sentence, number)),
  ]);
  fill(view.output, parts);
  if (view.words.length) view.words[0].node.tabIndex = 0;
  const empty = !view.sentences.length;
  if (empty) fill(view.output, element("span.muted", {}, "The translation appears here."));
  view.output.classList.toggle("confidence", view.showsConfidence);
  view.copy.disabled = empty;
  view.inspect.hidden = empty;
  if (!empty) view.inspect.setAttribute("href", inspectLink(view, 0));
  drawMirror(view);
}

// The link that inspects a sentence: of a long text, the sentence alone.
export function inspectLink(view, sentence) {
  const isShort = view.text.length <= LONGEST_INSPECTED;
  return linkTo("inspect", isShort ? { text: view.text, sentence: sentence || null } : { text: view.sentences[sentence].source });
}

function drawSentence(view, sentence, number) {
  const words = sentence.target_words ?? sentence.text.split(/\s+/).filter(Boolean);
  const spans = locateWords(sentence.text, words);
  const sure = sentence.tokens ? wordConfidences(sentence.text, spans, sentence.tokens) : null;
  const parts = [];
  let position = 0;
  spans.forEach(([start, end], place) => {
    if (end === start) return;
    parts.push(sentence.text.slice(position, start));
    const confidence = sure?.[place];
    const level = confidence < UNSURE ? "unsure" : confidence < FAIRLY_SURE ? "fair" : "";
    const node = element("span", { class: `word ${level}`, tabindex: "-1" }, sentence.text.slice(start, end));
    view.words.push({ node, sentence: number, word: place, confidence });
    parts.push(node);
    position = end;
  });
  parts.push(sentence.text.slice(position));
  return parts;
}

// The mirror lies behind the source text, letter on letter, and carries the marks of its words.
function drawMirror(view) {
  view.sourceWords = [];
  const parts = [];
  let position = 0;
  view.sentences.forEach((sentence, number) => {
    const start = view.text.indexOf(sentence.source, position);
    if (start < 0 || !sentence.source_words) return;
    locateWords(sentence.source, sentence.source_words).forEach(([from, to], place) => {
      if (from === to) return;
      parts.push(view.text.slice(position, start + from));
      const node = element("span", {}, sentence.source.slice(from, to));
      view.sourceWords.push({ node, sentence: number, word: place, start: start + from, end: start + to });
      parts.push(node);
      position = start + to;
    });
  });
  fill(view.mirror, parts, view.text.slice(position), "\u200b");
}

// --- where a word came from

function linksOf(view, { sentence, word }, side) {
  const links = view.sentences[sentence]?.alignment ?? [];
  return links.filter((link) => link[side] === word).map((link) => link[1 - side]);
}

export function mark(view, nodes) {
  for (const node of view.layout[1].querySelectorAll(".linked")) node.classList.remove("linked");
  for (const node of nodes) node.classList.add("linked");
  if (!nodes.length) hideTip();
}

function sourcesOf(view, entry) {
  const places = linksOf(view, entry, 1);
  return view.sourceWords.filter((other) => other.sentence === entry.sentence && places.includes(other.word));
}

export function describeWord(view, entry) {
  const sources = sourcesOf(view, entry).map((other) => other.node.textContent);
  const sure = entry.confidence === undefined ? "" : `confidence ${percent(entry.confidence)}`;
  return [sources.length ? `from ${sources.join(" ")}` : "", sure].filter(Boolean).join(", ");
}

export function pointAtTarget(view, node, event) {
  const entry = view.words?.find((other) => other.node === node);
  if (!entry) return;
  mark(view, [node, ...sourcesOf(view, entry).map((other) => other.node)]);
  showTip(event.clientX, event.clientY, describeWord(view, entry) || "no source word");
}

export function focusWord(view, node) {
  const entry = view.words?.find((other) => other.node === node);
  if (!entry) return;
  for (const other of view.words) other.node.tabIndex = other === entry ? 0 : -1;
  view.focused = entry;
  mark(view, [node, ...sourcesOf(view, entry).map((other) => other.node)]);
  announce(describeWord(view, entry));
}

function markSourceWord(view, entry) {
  const places = entry ? linksOf(view, entry, 0) : [];
  const targets = (view.words ?? []).filter((other) => entry && other.sentence === entry.sentence && places.includes(other.word));
  mark(view, entry ? [entry.node, ...targets.map((other) => other.node)] : []);
}

export function pointAtSource(view, event) {
  const hit = (box) => box.left <= event.clientX && event.clientX <= box.right && box.top <= event.clientY && event.clientY <= box.bottom;
  markSourceWord(view, view.sourceWords?.find((other) => [...other.node.getClientRects()].some(hit)));
}

export function markAtCaret(view) {
  if (document.activeElement !== view.source) return;
  const caret = view.source.selectionStart;
  markSourceWord(view, view.sourceWords?.find((other) => other.start <= caret && caret < other.end));
}
