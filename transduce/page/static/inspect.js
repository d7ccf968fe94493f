// The view Inspect: every head of one translation, step by step, with heads switched off at will.

import { element, fill, segmented, choice, problem, announce, debounce, copyText, hideTip, different } from "./dom.js";
import { rewriteAddress } from "./address.js";
import { fetchInspection, standaloneData } from "./api.js";
import { KINDS, attentionAxes, decodeAttention, drawThumbnail, headTable, heatMap, lineMap, thumbnailColors, weightAt } from "./attention.js";
import { colorText, saveButtons, weightColor } from "./figure.js";
import { bar, showReplay } from "./replay.js";
import { showBeam } from "./beam.js";

// The sentences of the paper's Figures 3 to 5 and of the blog post about it: what is "it"?
const PAPER = {
  tired: "The animal didn't cross the street because it was too tired.",
  wide: "The animal didn't cross the street because it was too wide.",
};
const REFERENTS = ["animal", "street"];
const MOST_OVERLAID = 6;
const STRONGEST = 6;
const MEASURES = {
  distance: ["Distance", (value) => `${value.toFixed(1)} tokens`],
  entropy: ["Entropy", (value) => `${value.toFixed(2)} nats`],
  previous: ["On the previous word", asShare],
  same: ["On the same word", asShare],
  next: ["On the next word", asShare],
  punctuation: ["On punctuation", asShare],
  end: ["On the end", asShare],
  aligned: ["On the aligned word", asShare],
};
const EXPLAINED = {
  encoder: ["word", "attends to", "Self-attention of the encoder: how each source word gathers its context."],
  decoder: ["next word", "attends to", "Masked self-attention of the decoder: how the translation looks back at itself. A row is the word that is about to be written."],
  cross: ["next word", "attends to", "Encoder-decoder attention: where in the source the decoder looks as it writes each word."],
};

function asShare(value) {
  return `${Math.round(value * 100)} %`;
}

export function showInspect(root, parameters) {
  const names = (key) => (parameters.get(key) ?? "").split(",").filter(Boolean);
  const number = (key, fallback) => (parameters.has(key) ? Number(parameters.get(key)) || 0 : fallback);
  const view = {
    text: parameters.get("text") ?? "", sentence: number("sentence", 0),
    kind: parameters.get("kind") in KINDS ? parameters.get("kind") : "encoder",
    layer: number("layer", 5), head: number("head", 1), overlay: names("overlay"), without: names("without"),
    figure: parameters.get("figure") === "heat" ? "heat" : "lines", level: parameters.get("level") === "token" ? "token" : "word",
    word: number("word", null), sort: parameters.get("sort") in MEASURES ? parameters.get("sort") : "",
    step: number("step", 0), click: "show", request: null, inspection: null, replay: null, findsReferent: false,
  };
  const data = standaloneData();
  if (data) Object.assign(view, { text: data.inspection.text, without: data.inspection.without });
  layOutInspect(view, root);

  const repaint = () => view.inspection && drawInspection(view);
  const resized = debounce(() => view.inspection && drawFigure(view), 150);
  window.addEventListener("themechange", repaint);
  window.addEventListener("resize", resized);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", repaint);
  if (view.text) loadInspection(view);
  return () => {
    view.request?.abort();
    view.replay?.end();
    resized.cancel();
    window.removeEventListener("themechange", repaint);
    window.removeEventListener("resize", resized);
    scheme.removeEventListener("change", repaint);
  };
}

// ---------------------------------------------------------------- the frame of the view

function layOutInspect(view, root) {
  view.input = element("input", { type: "text", id: "inspect-text", value: view.text, dir: "auto", autocomplete: "off", placeholder: "A sentence to translate and look into" });
  view.link = element("button", { type: "button", class: "quiet push", hidden: true, onclick: () => copyText(location.href, view.link) }, "Copy link");
  view.messages = element("div", { class: "messages" });
  view.result = element("section", { class: "card result", "aria-label": "Translation", hidden: true });
  view.grid = element("section", { class: "card heads", "aria-labelledby": "heads-title" });
  view.large = element("section", { class: "card one-head", "aria-labelledby": "head-title" });
  view.steps = element("section", { class: "card", "aria-labelledby": "steps-title" });
  view.beam = element("section", { class: "card", "aria-labelledby": "beam-title" });
  view.parts = element("div", { class: "parts", hidden: true },
    element("div", { class: "workbench" }, view.grid, view.large), view.steps, view.beam);
  view.intro = element("p", { class: "muted lead", hidden: view.text !== "" },
    "Type a sentence, or take one of the two above. You then see where each head of each layer looks, how the translation was ",
    "chosen word by word, and what changes when you switch heads off.");
  fill(root, element("h1", { class: "visually-hidden" }, "Inspect"), standaloneData() ? null : askForm(view),
    view.messages, view.intro, view.result, view.parts);
}

function askForm(view) {
  const sample = (name, text) => element("button", { type: "button", class: "quiet", "data-sample": name, onclick: () => takeSample(view, PAPER[name]) }, text);
  return element("form", { class: "ask", onsubmit: (event) => { event.preventDefault(); takeText(view, view.input.value); } },
    element("label", { class: "visually-hidden", for: "inspect-text" }, "Sentence"),
    element("div", { class: "ask-line" }, view.input, element("button", { type: "submit", class: "main" }, "Inspect")),
    element("div", { class: "toolbar samples-line small" }, element("span", { class: "muted" }, "What is “it”? The animal didn't cross the street because it was "),
      sample("tired", "too tired"), element("span", { class: "muted" }, "or"), sample("wide", "too wide"), view.link));
}

function takeText(view, text) {
  Object.assign(view, { text, sentence: 0, word: null, step: 0 });
  loadInspection(view);
}

// Show "it" of the paper's sentence, and the encoder head in which it looks most at what it stands for.
function takeSample(view, text) {
  view.input.value = text;
  Object.assign(view, { kind: "encoder", figure: "lines", level: "word", overlay: [], without: [], findsReferent: true });
  takeText(view, text);
}

// ---------------------------------------------------------------- asking and drawing

async function loadInspection(view) {
  view.request?.abort();
  const request = new AbortController();
  view.request = request;
  view.intro.hidden = true;
  view.parts.setAttribute("aria-busy", "true");
  fill(view.messages, view.inspection ? null : element("p", { class: "muted" }, "Translating and recording …"));
  let inspection;
  try {
    inspection = await fetchInspection({ text: view.text, sentence: view.sentence, without: view.without }, request.signal);
  } catch (error) {
    if (request.signal.aborted) return;
    fill(view.messages, problem(error));
    view.parts.removeAttribute("aria-busy");
    view.without = view.inspection?.without ?? [];
    return;
  }
  if (request.signal.aborted) return;
  view.parts.removeAttribute("aria-busy");
  view.inspection = inspection;
  view.attention = decodeAttention(inspection);
  fill(view.messages, inspection.notices.map((notice) => element("p", { class: "notice" }, notice)));
  if (view.findsReferent) findReferent(view);
  drawInspection(view);
  announce(`Translation: ${inspection.translation}`);
}

function findReferent(view) {
  view.findsReferent = false;
  const axes = attentionAxes(view.inspection, "encoder", "word");
  const row = axes.rows.findIndex(({ label }) => label === "it");
  const columns = REFERENTS.map((word) => axes.columns.findIndex(({ label }) => label === word));
  if (row < 0 || columns.some((column) => column < 0)) return;
  view.word = row;
  let most = -1;
  for (const { layer, head } of allHeads(view)) {
    const table = headTable(view.attention.encoder, axes, layer, head);
    const weight = Math.max(...columns.map((column) => weightAt(table, row, column)));
    if (weight > most) {
      most = weight;
      Object.assign(view, { layer, head });
    }
  }
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
  const place = element("div", { class: "stacked" });
  fill(view.beam, element("h2", { id: "beam-title" }, `Beam search, width ${view.inspection.beam.size}`), place);
  showBeam(place, view.inspection);
  remember(view);
}

function drawSteps(view) {
  view.replay?.end();
  const place = element("div", { class: "stacked" });
  fill(view.steps, element("h2", { id: "steps-title" }, "Decoding, step by step"), place);
  view.replay = showReplay(place, view.inspection, view.attention, {
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

// ---------------------------------------------------------------- the translation, with all heads and without some

function drawResult(view) {
  const { inspection } = view;
  const { source_language: from, target_language: to } = inspection.model;
  const isCompared = inspection.without.length > 0 && inspection.full_translation !== null;
  const [before, after] = isCompared ? different(inspection.full_translation, inspection.translation) : [null, inspection.translation];
  const isSame = isCompared && inspection.full_translation === inspection.translation;
  view.link.hidden = false;
  fill(view.result,
    inspection.sentences.length > 1 && !standaloneData() ? sentenceChoice(view) : null,
    element("div", { class: "bitext" },
      line("Source", inspection.text, from),
      isCompared ? line("All heads", before, to) : null,
      line(isCompared ? `Without ${inspection.without.length} head${inspection.without.length > 1 ? "s" : ""}` : "Translation", after, to)),
    isCompared ? element("div", { class: "toolbar" },
      inspection.without.map((name) => element("button", { type: "button", class: "chip", onclick: () => toggleHead(view, name), "aria-label": `Switch ${name} on again` }, `${name} is off `, element("span", { "aria-hidden": "true" }, "✕"))),
      inspection.without.length > 1 ? element("button", { type: "button", class: "quiet", onclick: () => { view.without = []; loadInspection(view); } }, "Switch all on") : null,
      isSame ? element("span", { class: "small muted" }, "The translation is the same.") : null) : null);
}

function line(title, content, language) {
  return element("div", {}, element("h2", { class: "language" }, title), element("p", { lang: language, dir: "auto" }, content));
}

function sentenceChoice(view) {
  const options = view.inspection.sentences.map((text, place) => [place, `${place + 1}: ${text.length > 70 ? `${text.slice(0, 69)}…` : text}`]);
  return choice("Sentence", options, view.inspection.sentence, (place) => {
    Object.assign(view, { sentence: Number(place), word: null, step: 0 });
    loadInspection(view);
  });
}

// ---------------------------------------------------------------- all heads at a glance

function allHeads(view) {
  const { layers, heads } = view.attention[view.kind];
  return Array.from({ length: layers * heads }, (_, place) => {
    const layer = Math.floor(place / heads) + 1;
    const head = (place % heads) + 1;
    return { layer, head, name: `${view.kind}.${layer}.${head}` };
  });
}

function measuresOf(view, name) {
  return view.inspection.measures.find((measure) => measure.head === name) ?? {};
}

function drawGrid(view) {
  const sorts = Object.entries(MEASURES).filter(([name]) => view.kind === "cross" || name !== "aligned")
    .map(([name, [title]]) => [name, title]);
  const redraw = (change) => {
    Object.assign(view, change);
    view.axes = attentionAxes(view.inspection, view.kind, view.level);
    const { layers } = view.attention[view.kind];
    view.layer = Math.min(view.layer, layers);
    drawGrid(view);
    drawFigure(view);
    remember(view);
  };
  fill(view.grid,
    element("div", { class: "toolbar" },
      element("h2", { id: "heads-title" }, "All heads"),
      segmented("Kind of attention", Object.entries(KINDS), view.kind, (kind) => redraw({ kind, word: null, overlay: [] }))),
    element("p", { class: "small muted" }, EXPLAINED[view.kind][2]),
    element("div", { class: "toolbar" },
      choice("Sort by", [["", "Layer"], ...sorts], view.sort, (sort) => redraw({ sort })),
      segmented("Level", [["word", "Words"], ["token", "Tokens"]], view.level, (level) => redraw({ level, word: null }))),
    view.sort ? sortedHeads(view) : headsByLayer(view),
    element("div", { class: "toolbar" },
      element("span", { class: "small muted" }, "A click"),
      segmented("What a click on a head does", [["show", "shows"], ["overlay", "overlays"], ["off", "switches off"]], view.click, (click) => { view.click = click; }),
      element("span", { class: "push" }), weightLegend()));
}

function headsByLayer(view) {
  const { layers, heads } = view.attention[view.kind];
  const cells = headCells(view, allHeads(view));
  const rows = Array.from({ length: layers }, (_, layer) => [
    element("span", { class: "layer small muted" }, String(layer + 1)),
    cells.slice(layer * heads, (layer + 1) * heads),
  ]);
  const titles = Array.from({ length: heads }, (_, head) => element("span", { class: "small muted head-number" }, String(head + 1)));
  const grid = element("div", { class: "grid by-layer", role: "group", "aria-label": "Heads by layer; the arrow keys move", onkeydown: (event) => moveInGrid(event, heads) },
    element("span", { class: "small muted corner" }, "layer"), titles, rows);
  grid.style.setProperty("--heads", heads);
  return grid;
}

function sortedHeads(view) {
  const { heads } = view.attention[view.kind];
  const [, format] = MEASURES[view.sort];
  const order = allHeads(view).sort((first, second) => (measuresOf(view, second.name)[view.sort] ?? 0) - (measuresOf(view, first.name)[view.sort] ?? 0));
  const cells = headCells(view, order);
  const grid = element("div", { class: "grid sorted", role: "group", "aria-label": "Heads by measure; the arrow keys move", onkeydown: (event) => moveInGrid(event, heads) },
    order.map(({ layer, head, name }, place) => element("span", { class: "cell-with-label" }, cells[place],
      element("small", { class: "number muted" }, `${layer}.${head} · ${format(measuresOf(view, name)[view.sort] ?? 0)}`))));
  grid.style.setProperty("--heads", heads);
  return grid;
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
      type: "button", class: `cell${isOff ? " off" : ""}${overlaid >= 0 ? " overlaid" : ""}`, "data-head": name,
      "aria-pressed": String(isShown), "aria-label": says, title: says, tabindex: isShown ? "0" : "-1",
      onclick: () => clickHead(view, layer, head, name),
    }, canvas, isOff ? element("span", { class: "cross", "aria-hidden": "true" }, "✕") : null);
  });
}

function moveInGrid(event, columns) {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
  if (!step || !event.target.matches(".cell")) return;
  const cells = [...event.currentTarget.querySelectorAll(".cell")];
  const next = cells[cells.indexOf(event.target) + step];
  event.preventDefault();
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function clickHead(view, layer, head, name) {
  if (view.click === "off") {
    toggleHead(view, name);
    return;
  }
  if (view.click === "overlay") {
    const shown = `${view.kind}.${view.layer}.${view.head}`;
    if (name === shown) return;
    const others = view.overlay.filter((other) => other !== name);
    view.overlay = others.length < view.overlay.length ? others : [...view.overlay, name].slice(-(MOST_OVERLAID - 1));
    view.figure = "lines";
  } else Object.assign(view, { layer, head, overlay: view.overlay.filter((other) => other !== name) });
  const place = document.activeElement?.dataset.head;
  drawGrid(view);
  drawFigure(view);
  remember(view);
  if (place) view.grid.querySelector(`[data-head="${place}"]`)?.focus();
}

function toggleHead(view, name) {
  if (standaloneData()) {
    fill(view.messages, problem("Switching heads off needs a model; start the page with: transduce serve"));
    return;
  }
  view.without = view.without.includes(name) ? view.without.filter((other) => other !== name) : [...view.without, name];
  loadInspection(view);
}

function weightLegend() {
  const [low, high] = thumbnailColors();
  const swatches = [0, 0.1, 0.25, 0.5, 1].map((weight) => {
    const swatch = element("i", { "aria-hidden": "true" });
    swatch.style.background = colorText(weightColor(weight, low, high));
    return element("span", {}, swatch, String(weight));
  });
  return element("span", { class: "weights small muted number", role: "img", "aria-label": "Colours: pale for a weight of 0, full for 1" }, swatches);
}

// ---------------------------------------------------------------- one head, large

function shownTables(view) {
  const shown = { layer: view.layer, head: view.head, name: `${view.kind}.${view.layer}.${view.head}` };
  const overlaid = allHeads(view).filter(({ name }) => view.overlay.includes(name) && name !== shown.name);
  const heads = view.figure === "lines" ? [shown, ...overlaid] : [shown];
  return heads.map(({ layer, head, name }) => ({ ...headTable(view.attention[view.kind], view.axes, layer, head), name }));
}

function drawFigure(view) {
  hideTip();
  const tables = shownTables(view);
  const { name } = tables[0];
  const [rowTitle, columnTitle] = EXPLAINED[view.kind];
  const place = element("div", { class: "scroll figure-place", tabindex: "0", role: "region", "aria-label": "Figure" });
  const isOff = view.without.includes(name);
  const refresh = (change) => {
    Object.assign(view, change);
    drawFigure(view);
    remember(view);
  };
  fill(view.large,
    element("div", { class: "toolbar" },
      element("h2", { id: "head-title" }, `Layer ${view.layer}, head ${view.head}`),
      element("code", { class: "muted" }, name),
      element("button", { type: "button", class: "quiet push", id: "toggle-head", onclick: () => toggleHead(view, name) }, isOff ? "Switch on" : "Switch off")),
    element("div", { class: "toolbar" },
      segmented("Figure", [["lines", "Lines"], ["heat", "Heat map"]], view.figure, (figure) => refresh({ figure })),
      choice("From", [["", "all words"], ...tables[0].rows.map((text, row) => [row, text])], view.word ?? "", (row) => refresh({ word: row === "" ? null : Number(row) })),
      element("span", { class: "push" }), saveButtons(name, () => place.querySelector("svg"))),
    tables.length > 1 ? overlayKey(view, tables) : null,
    place, view.word === null ? null : strongest(view, tables), measureList(view, name));
  const options = {
    width: place.clientWidth || 560, row: view.word, rowTitle, columnTitle, label: describeFigure(view, tables[0]),
    choose: (row) => refresh({ word: row === view.word ? null : row }),
  };
  fill(place, view.figure === "heat" ? heatMap(tables[0], options) : lineMap(tables, options));
}

function strongestOf(table, row) {
  return table.columns.map((label, column) => ({ label, weight: weightAt(table, row, column) }))
    .sort((first, second) => second.weight - first.weight);
}

function describeFigure(view, table) {
  const rows = view.word === null ? table.rows.map((_, row) => row) : [view.word];
  const links = rows.slice(0, 40).map((row) => `${table.rows[row]} to ${strongestOf(table, row)[0].label}`);
  return `${KINDS[view.kind]} attention of layer ${table.layer}, head ${table.head}. Strongest links: ${links.join("; ")}.`;
}

function overlayKey(view, tables) {
  const entries = tables.map((table, number) => {
    const swatch = element("i", { "aria-hidden": "true" });
    swatch.style.background = `var(--series-${(number % MOST_OVERLAID) + 1})`;
    const text = element("span", { class: "swatch small" }, swatch, `${table.layer}.${table.head}`);
    return number === 0 ? text : element("button", {
      type: "button", class: "chip", "aria-label": `Remove head ${table.layer}.${table.head} from the overlay`,
      onclick: () => {
        view.overlay = view.overlay.filter((name) => name !== table.name);
        drawGrid(view);
        drawFigure(view);
        remember(view);
      },
    }, text, element("span", { "aria-hidden": "true" }, " ✕"));
  });
  return element("div", { class: "toolbar overlay-key" }, entries);
}

// What the chosen word looks at most, as numbers.
function strongest(view, tables) {
  return element("div", { class: "split strongest" }, tables.map((table) => element("section", {},
    element("h3", { class: "small" }, `“${table.rows[view.word]}” in head ${table.layer}.${table.head}`),
    element("ol", { class: "bars" }, strongestOf(table, view.word).slice(0, tables.length > 1 ? 3 : STRONGEST).map(({ label, weight }) => bar(label, weight))))));
}

function measureList(view, name) {
  const measures = measuresOf(view, name);
  const entries = Object.entries(MEASURES).filter(([key]) => typeof measures[key] === "number");
  return element("dl", { class: "measures small" }, entries.map(([key, [title, format]]) =>
    element("div", {}, element("dt", { class: "muted" }, title), element("dd", { class: "number" }, format(measures[key])))));
}
