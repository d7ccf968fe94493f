// The view Inspect: every head of one translation, step by step, with heads switched off at will.

import { element, fill, keepFocus, choice, problem, announce, debounce, copyText, different, toolbar } from "./dom.js";
import { rewriteAddress } from "./address.js";
import { fetchInspection, standaloneData } from "./api.js";
import { askForSentence, riddleIn } from "./examples.js";
import { KINDS, attentionAxes, decodeAttention, headTable, weightAt } from "./attention.js";
import { MEASURES, allHeads } from "./heads.js";
import { drawGrid } from "./head_grid.js";
import { drawFigure } from "./one_head.js";
import { showReplay } from "./replay.js";
import { showBeam } from "./beam.js";

export function showInspect(root, parameters) {
  const names = (key) => (parameters.get(key) ?? "").split(",").filter(Boolean);
  const number = (key, fallback) => (parameters.has(key) ? Number(parameters.get(key)) || 0 : fallback);
  const view = {
    text: parameters.get("text") ?? "", sentence: number("sentence", 0),
    kind: parameters.get("kind") in KINDS ? parameters.get("kind") : "encoder",
    layer: number("layer", 5), head: number("head", 1), overlay: names("overlay"), without: names("without"),
    figure: parameters.get("figure") === "heat" ? "heat" : "lines", level: parameters.get("level") === "token" ? "token" : "word",
    word: number("word", null), sort: parameters.get("sort") in MEASURES ? parameters.get("sort") : "",
    step: number("step", 0), click: "show", request: null, inspection: null, endReplay: null, riddle: null,
  };
  view.remember = () => remember(view);
  view.toggleHead = (name) => toggleHead(view, name);
  view.drawHeads = () => {
    keepFocus(view.parts, () => {
      drawGrid(view);
      drawFigure(view);
    });
    remember(view);
  };
  const data = standaloneData();
  if (data) Object.assign(view, { text: data.inspection.text, without: data.inspection.without });
  layOutInspect(view, root);

  const repaint = () => view.inspection && keepFocus(root, () => drawInspection(view));
  const resized = debounce(() => view.inspection && drawFigure(view), 150);
  const ending = new AbortController();
  const { signal } = ending;
  window.addEventListener("themechange", repaint, { signal });
  window.addEventListener("resize", resized, { signal });
  if (view.text) loadInspection(view);
  return () => {
    view.request?.abort();
    view.endReplay?.();
    resized.cancel();
    ending.abort();
  };
}

// --- the frame of the view

function layOutInspect(view, root) {
  view.input = element("input", { type: "text", id: "inspect-text", value: view.text, dir: "auto", autocomplete: "off" });
  view.link = element("button.quiet.push", { hidden: true, onclick: () => copyText(location.href, view.link) }, "Copy link");
  view.messages = element("div.messages");
  view.result = element("section.card.result", { "aria-label": "Translation", hidden: true });
  view.grid = element("section.card.heads", { "aria-labelledby": "heads-title" });
  view.large = element("section.card.one-head", { "aria-labelledby": "head-title" });
  view.steps = element("section.card", { "aria-labelledby": "steps-title" });
  view.beam = element("section.card", { "aria-labelledby": "beam-title" });
  view.parts = element("div.parts", { hidden: true },
    element("div.workbench", {}, view.grid, view.large), view.steps, view.beam);
  view.intro = element("p.muted.lead", { hidden: view.text !== "" },
    "This view shows where each head of each layer looks, how the translation was chosen word by word, and what changes when you switch heads off.");
  fill(root, element("h1.visually-hidden", {}, "Inspect"), standaloneData() ? null : askForm(view),
    view.messages, view.intro, view.result, view.parts);
}

function askForm(view) {
  view.samples = element("div.toolbar.samples-line.small.muted", {}, view.link);
  offerRiddle(view);
  return element("form.ask", { onsubmit: (event) => { event.preventDefault(); takeText(view, view.input.value); } },
    element("label.visually-hidden", { for: "inspect-text" }, "Sentence"),
    element("div.ask-line", {}, view.input, element("button.main", { type: "submit" }, "Inspect")),
    view.samples);
}

// Offer two sentences, in the language that the model reads, in which a pronoun has to be understood.
async function offerRiddle(view) {
  const language = await askForSentence(view.input);
  const riddle = riddleIn(language);
  if (!riddle) return;
  const { pronoun, before, choices: [first, second], after } = riddle;
  const sample = (words) => element("button.quiet", { lang: language, onclick: () => takeSample(view, riddle, before + words + after) }, words);
  view.samples.prepend(`What is “${pronoun}”? ${before}`, sample(first), "or", sample(second), after);
}

function takeText(view, text) {
  if (!text.trim()) {
    fill(view.messages, problem("The text is empty; type a sentence"));
    return;
  }
  Object.assign(view, { text, sentence: 0, word: null, step: 0 });
  loadInspection(view);
}

// Show the pronoun of a riddle, and the encoder heads in which it looks most at a noun that it may stand for.
function takeSample(view, riddle, text) {
  view.input.value = text;
  Object.assign(view, { kind: "encoder", figure: "lines", level: "word", overlay: [], without: [], riddle });
  takeText(view, text);
}

// --- asking and drawing

async function loadInspection(view) {
  view.request?.abort();
  const request = new AbortController();
  view.request = request;
  view.intro.hidden = true;
  view.parts.ariaBusy = true;
  fill(view.messages, view.inspection ? null : element("p.muted", {}, "Translating and recording …"));
  let inspection;
  try {
    inspection = await fetchInspection({ text: view.text, sentence: view.sentence, without: view.without }, request.signal);
  } catch (error) {
    if (request.signal.aborted) return;
    fill(view.messages, problem(error));
    view.parts.ariaBusy = null;
    view.without = view.inspection?.without ?? [];
    return;
  }
  if (request.signal.aborted) return;
  view.parts.ariaBusy = null;
  view.inspection = inspection;
  view.attention = decodeAttention(inspection);
  fill(view.messages, inspection.notices.map((notice) => element("p.notice", {}, notice)));
  if (view.riddle) findReferent(view, view.riddle);
  keepFocus(view.parts, () => drawInspection(view));
  announce(`Translation: ${inspection.translation}`);
}

function findReferent(view, { pronoun, nouns }) {
  view.riddle = null;
  const axes = attentionAxes(view.inspection, "encoder", "word");
  const row = axes.rows.findIndex(({ label }) => label === pronoun);
  const columns = [...axes.columns.keys()].filter((column) => nouns.includes(axes.columns[column].label));
  if (row < 0 || !columns.length) return;
  view.word = row;
  const weigh = ({ layer, head }) => {
    const table = headTable(view.attention.encoder, axes, layer, head);
    return Math.max(...columns.map((column) => weightAt(table, row, column)));
  };
  const [first, second] = allHeads(view).map((head) => ({ ...head, weight: weigh(head) })).sort((one, other) => other.weight - one.weight);
  Object.assign(view, { layer: first.layer, head: first.head, overlay: second?.weight > 0.5 ? [second.name] : [] });
}

function drawInspection(view) {
  const { layers, heads } = view.attention[view.kind];
  view.layer = Math.min(Math.max(1, view.layer), layers);
  view.head = Math.min(Math.max(1, view.head), heads);
  view.axes = attentionAxes(view.inspection, view.kind, view.level);
  if (view.word !== null && view.word >= view.axes.rows.length) view.word = null;
  view.result.hidden = false;
  view.parts.hidden = false;
  drawResult(view);
  drawGrid(view);
  drawFigure(view);
  drawSteps(view);
  fill(view.beam, element("h2", { id: "beam-title" }, `Beam search, width ${view.inspection.beam.size}`));
  showBeam(view.beam, view.inspection);
  remember(view);
}

function drawSteps(view) {
  view.endReplay?.();
  fill(view.steps, element("h2", { id: "steps-title" }, "Decoding, step by step"));
  view.endReplay = showReplay(view.steps, view.inspection, view.attention, {
    step: view.step,
    onStep: (step) => {
      view.step = step;
      remember(view);
    },
  });
}

// Write the view into the address, so that the link shows the same.
function remember(view) {
  rewriteAddress("inspect", {
    text: view.text, sentence: view.sentence || null, kind: view.kind, layer: view.layer, head: view.head,
    overlay: view.overlay.join(","), without: view.without.join(","), figure: view.figure === "heat" ? "heat" : null,
    level: view.level === "token" ? "token" : null, word: view.word, sort: view.sort, step: view.step || null,
  });
}

// --- the translation, with all heads and without some

function drawResult(view) {
  const { inspection } = view;
  const { source_language: from, target_language: to } = inspection.model;
  const isCompared = inspection.without.length > 0 && inspection.full_translation !== null;
  const [before, after] = isCompared ? different(inspection.full_translation, inspection.translation) : [null, inspection.translation];
  const isSame = isCompared && inspection.full_translation === inspection.translation;
  view.link.hidden = false;
  fill(view.result,
    inspection.sentences.length > 1 && !standaloneData() ? sentenceChoice(view) : null,
    element("div.bitext", {},
      line("Source", inspection.text, from),
      isCompared ? line("All heads", before, to) : null,
      line(isCompared ? `Without ${inspection.without.length} head${inspection.without.length > 1 ? "s" : ""}` : "Translation", after, to)),
    isCompared ? toolbar(inspection.without.map((name) => element("button.chip", { onclick: () => toggleHead(view, name), "aria-label": `Switch ${name} on again` }, `${name} is off `, element("span", { "aria-hidden": "true" }, "✕"))),
      inspection.without.length > 1 ? element("button.quiet", { onclick: () => { view.without = []; loadInspection(view); } }, "Switch all on") : null,
      isSame ? element("span.small.muted", {}, "The translation is the same.") : null) : null);
}

function line(title, content, language) {
  return element("div", {}, element("h2.language", {}, title), element("p", { lang: language, dir: "auto" }, content));
}

function sentenceChoice(view) {
  const options = view.inspection.sentences.map((text, place) => [place, `${place + 1}: ${text.length > 70 ? `${text.slice(0, 69)}…` : text}`]);
  return choice("Sentence", options, view.inspection.sentence, (place) => {
    Object.assign(view, { sentence: Number(place), word: null, step: 0 });
    loadInspection(view);
  });
}

function toggleHead(view, name) {
  if (standaloneData()) {
    fill(view.messages, problem("Switching heads off needs a model; start the page with: transduce serve"));
    return;
  }
  view.without = view.without.includes(name) ? view.without.filter((other) => other !== name) : [...view.without, name];
  loadInspection(view);
}
