// Decoding step by step: what the model could have said, what it said, and where it looked.

import { element, fill, percent, announce, toolbar } from "./dom.js";
import { attentionAxes, headTable, meanTable, weightAt } from "./attention.js";
import { tokenName } from "./words.js";

const STEP_SECONDS = 0.9;

// Add the replay to a root; options are {step, onStep}. Returns a function that ends it.
export function showReplay(root, inspection, attention, { step = 0, onStep }) {
  const last = inspection.steps.length - 1;
  const replay = { step: Math.min(Math.max(0, step), last), timer: 0 };
  const place = element("div.replay");
  const play = element("button.main", { onclick: () => (replay.timer ? pause() : start()) }, "Play");
  const slide = element("input", {
    type: "range", min: 0, max: last, value: replay.step, "aria-label": "Step of decoding",
    oninput: () => { pause(); move(Number(slide.value)); },
  });
  const count = element("span.number.small.muted");

  function move(to) {
    replay.step = Math.min(last, Math.max(0, to));
    slide.value = replay.step;
    slide.ariaValueText = `step ${replay.step + 1} of ${last + 1}: ${tokenText(inspection, replay.step)}`;
    count.textContent = `Step ${replay.step + 1} of ${last + 1}`;
    fill(place, soFar(inspection, replay.step), element("div.split", {},
      candidates(inspection, replay.step), looked(inspection, attention, replay.step)));
    onStep(replay.step);
  }
  function pause() {
    clearInterval(replay.timer);
    replay.timer = 0;
    play.textContent = "Play";
  }
  function start() {
    if (replay.step === last) move(0);
    play.textContent = "Pause";
    replay.timer = setInterval(() => {
      move(replay.step + 1);
      if (replay.step === last) {
        pause();
        announce("The sentence is complete");
      }
    }, STEP_SECONDS * 1000);
  }

  root.append(
    toolbar(element("button", { "aria-label": "Step back", onclick: () => { pause(); move(replay.step - 1); } }, "←"),
      play,
      element("button", { "aria-label": "Step forward", onclick: () => { pause(); move(replay.step + 1); } }, "→"),
      slide, count),
    place);
  move(replay.step);
  return pause;
}

function tokenText(inspection, step) {
  const token = inspection.target.tokens[step];
  return token.piece === "</s>" ? "‹end›" : token.text.trim() || token.piece;
}

// The translation up to this step; the token that is being chosen is marked.
function soFar(inspection, step) {
  const tokens = inspection.target.tokens.slice(0, step + 1);
  return element("p.so-far", { lang: inspection.model.target_language, dir: "auto" },
    tokens.map((token, place) => {
      const space = place && (token.piece.startsWith("\u2581") || token.piece === "</s>") ? " " : "";
      const text = tokenText(inspection, place);
      return [space, place === step ? element("mark", {}, text) : text];
    }));
}

function candidates(inspection, step) {
  const { candidates: list, entropy, chosen } = inspection.steps[step];
  return element("section", {},
    element("h3", {}, "Candidates"),
    element("p.small.muted", {}, `Probabilities of the next token; entropy ${entropy.toFixed(2)} nats`),
    element("ol.bars", {}, list.map(({ id, text, probability }) => bar(tokenName(text), probability, id === chosen))));
}

// One line of a bar chart: a label, a bar and the number.
export function bar(label, share, isChosen = false, color = null, text = percent(share)) {
  const line = element("span.bar");
  if (color) line.style.background = color;
  line.style.width = `${Math.max(0.5, share * 100)}%`;
  return element("li", { class: isChosen ? "chosen" : null },
    element("span.label", {}, label, isChosen ? element("span.visually-hidden", {}, " (chosen)") : null),
    element("span.track", { "aria-hidden": "true" }, line),
    element("span.number", {}, text));
}

// Where the step looked in the source: the mean of the heads of one layer, chosen as for alignments.
function looked(inspection, attention, step) {
  const { layers, heads } = attention.cross;
  const layer = layers > 2 ? layers - 1 : layers;
  const axes = attentionAxes(inspection, "cross", "word");
  const row = axes.rows.findIndex(({ members }) => members.includes(step));
  const only = { rows: [{ ...axes.rows[row], members: [step] }], columns: axes.columns };
  const tables = Array.from({ length: heads }, (_, head) => headTable(attention.cross, only, layer, head + 1));
  const table = meanTable(tables);
  const words = table.columns.map((word, column) => {
    const weight = weightAt(table, 0, column);
    const node = element("span.shaded", { title: percent(weight) }, element("span", {}, word), element("small", {}, percent(weight)));
    node.style.setProperty("--share", `${Math.round(weight ** 0.65 * 100)}%`);
    return node;
  });
  return element("section", {},
    element("h3", {}, "Attention to the source"),
    element("p.small.muted", {}, `Mean of the ${heads} cross-attention heads of layer ${layer}`),
    element("p.shades", { lang: inspection.model.source_language }, words));
}
