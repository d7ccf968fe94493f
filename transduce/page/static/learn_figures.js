// The figure of each step of a lesson. What the reader changes is computed here, from q, k and v.

import { element, fill, choice, slider, segmented, percent, toolbar } from "./dom.js";
import { standaloneData } from "./api.js";
import { dotProducts, softmaxRows, weightedSum, entropyOf, temperedSoftmax } from "./arithmetic.js";
import { drawThumbnail, thumbnailColors } from "./attention.js";
import { heatTable } from "./heat_table.js";
import { waveFigure } from "./learn_parts.js";
import { bar } from "./replay.js";
import { tokenName } from "./words.js";

// Draw all that depends on the state of a lesson.
export function drawLesson(lesson) {
  for (const draw of lesson.draws) draw(lesson.state);
}

function change(lesson, changes) {
  Object.assign(lesson.state, changes);
  drawLesson(lesson);
}

// --- parts of figures

function titled(title, node) {
  return element("div", {}, element("h3.small.muted", {}, title), node);
}

// Vectors, one a row; perhaps only their first columns.
function vectors(title, rows, { shape, data, columns, of }) {
  const table = heatTable(columns ? `${title}: the first ${columns} of ${of.toLocaleString("en")} columns` : title, rows, shape[1], { signed: true });
  table.draw(data);
  return table.node;
}

function barChart(title, labels) {
  const list = element("ol.bars");
  const draw = (shares, text = percent, chosen = -1) => fill(list, labels.map((label, index) =>
    bar(label, Math.max(0, shares[index]), index === chosen, null, text(shares[index]))));
  return { node: titled(title, list), draw };
}

// A choice of a token; it follows when the same token is chosen elsewhere.
function tokenChoice(lesson, label, tokens, key, none) {
  const options = tokens.map((token, index) => [index, `${index + 1}. ${token}`]);
  const field = choice(label, none ? [[-1, none], ...options] : options, lesson.state[key], (value) => change(lesson, { [key]: Number(value) }));
  lesson.draws.push((state) => { field.querySelector("select").value = state[key]; });
  return field;
}

function stateSlider(lesson, label, key, options) {
  return slider(label, { value: lesson.state[key], ...options }, (value) => change(lesson, { [key]: value }));
}

function toggle(lesson, label, key) {
  const input = element("input", { type: "checkbox", checked: true, onchange: () => change(lesson, { [key]: input.checked }) });
  return element("label.field", {}, input, element("span", {}, label));
}

// --- what several figures compute

function rowOf(values, row, width) {
  return values.slice(row * width, (row + 1) * width);
}

function headScores({ data }) {
  const { q, k } = data["queries-keys-values"];
  return dotProducts(q.data, k.data, q.shape[1]);
}

function headWeights(lesson, divisor) {
  return softmaxRows(headScores(lesson), lesson.source.length, divisor, lesson.data.softmax.allowed.data);
}

// Weights without one key: the others share its weight in proportion.
function withoutKey(weights, columns, key) {
  return softmaxRows(weights.map((weight) => Math.log(Math.max(weight, 1e-30))), columns, 1, weights.map((_, cell) => cell % columns !== key));
}

// The probabilities of the candidates at the chosen place and temperature, and of the others.
function nextShares({ data: { distribution: { logits, rest, temperatures } }, state: { place, temperature } }) {
  return temperedSoftmax(rowOf(logits.data, place, logits.shape[1]), rowOf(rest.data, place, rest.shape[1])[temperature], temperatures.data[temperature]);
}

// --- one figure for each step

// Each function adds its nodes once, and returns a function that draws them and returns a caption.
export const FIGURES = {
  tokens({ source }, { pieces, ids }, add) {
    add(element("ol.shades", {}, pieces.map((piece, index) => element("li.shaded", {},
      element("span", {}, source[index] === "‹end›" ? "‹end›" : piece.replaceAll("▁", "␣")), element("small", {}, ids.data[index])))));
    return () => "␣ is a space. Which words of another sentence are cut into pieces?";
  },

  embedding(lesson, { embedding, norms, position_norms: added, scale: { data: [factor] } }, add) {
    const mean = ({ data }) => data.reduce((sum, value) => sum + value, 0) / data.length;
    add(vectors("Embeddings", lesson.source, embedding), toolbar(toggle(lesson, `multiply by √d_model = ${factor.toFixed(2)}`, "scaled")));
    return ({ scaled }) => {
      const [token, position] = [mean(norms) / (scaled ? 1 : factor), mean(added)];
      return `The vectors have a mean length of ${token.toFixed(1)}${position ? `, the positions one of ${position.toFixed(1)}` : ""}.`;
    };
  },

  position(lesson, { encoding, kind: [kind], variants, weights, translations }, add) {
    const { source, walk, layer, head } = lesson;
    const width = encoding.of ?? encoding.shape[1];
    if (kind !== "none") add(vectors(kind === "rotary" ? "Cosines and sines of the angles" : "Added to the embeddings", source, encoding));
    const waves = element("div");
    if (kind === "sinusoidal" || kind === "rotary") add(toolbar(stateSlider(lesson, "Wave", "wave", { min: 0, max: width / 2 - 1, describe: (i) => `i = ${i}` })), waves);
    const map = heatTable(`Where head ${head} of layer ${layer} looks`, source, source);
    const names = variants.map((name, index) => [index, { 0: "as trained", none: "no positions" }[name] ?? `moved by ${name}`]);
    const translation = element("p.so-far", { lang: walk.model.target_language, dir: "auto" });
    add(toolbar(segmented("Positions of the source", names, 0, (variant) => change(lesson, { variant }))),
      titled("The translation (greedy search)", translation), map.node);
    return ({ variant, wave }) => {
      fill(waves, waveFigure(wave, width, source));
      const shown = rowOf(weights.data, variant, source.length ** 2);
      map.draw(shown);
      translation.textContent = translations[variant];
      const most = Math.max(...shown.map((weight, cell) => Math.abs(weight - weights.data[cell])));
      return variant ? `The largest change of a weight is ${most.toFixed(3)}.` : "Move the sentence, or take the positions away.";
    };
  },

  "queries-keys-values"(lesson, { q, k, v }, add) {
    const { encoder_layers: encoder, decoder_layers: decoder, heads } = lesson.walk.model;
    const numbers = (label, key, count) => choice(label, Array.from({ length: count }, (_, index) => [index + 1, index + 1]), lesson[key],
      (value) => lesson.open({ [key]: value, step: "queries-keys-values" }));
    if (!standaloneData()) add(toolbar(numbers("Layer", "layer", Math.max(encoder, decoder)), numbers("Head", "head", heads), element("span.small.muted", {}, "in all steps")));
    add(...[["Queries", q], ["Keys", k], ["Values", v]].map(([title, value]) => vectors(title, lesson.source, value)));
    return () => "";
  },

  scores(lesson, _, add) {
    const { source, data } = lesson;
    const { q, k } = data["queries-keys-values"];
    const width = q.shape[1];
    const table = heatTable("Scores: queries are rows, keys are columns", source, source, { signed: true, pick: (row, column) => change(lesson, { row, column }) });
    const strip = heatTable("One query, one key, and their products", ["query", "key", "product"], width, { signed: true });
    add(table.node, strip.node);
    return ({ row, column }) => {
      const scores = headScores(lesson);
      const [query, key] = [rowOf(q.data, row, width), rowOf(k.data, column, width)];
      table.draw(scores, { chosen: row });
      strip.draw([...query, ...key, ...query.map((value, index) => value * key[index])]);
      return `The ${width} products of “${source[row]}” and “${source[column]}” add up to ${scores[row * source.length + column].toFixed(2)}. Choose another cell.`;
    };
  },

  scale(lesson, { divisor: { data: [own] } }, add) {
    const { source } = lesson;
    const bars = barChart("Weights after the softmax", source);
    add(toolbar(tokenChoice(lesson, "Query", source, "row"),
      stateSlider(lesson, "Divide by", "divisor", { min: 0.5, max: Math.ceil(own * 4), step: 0.1, describe: (value) => value.toFixed(1) })), bars.node);
    return ({ row, divisor }) => {
      const weights = rowOf(headWeights(lesson, divisor), row, source.length);
      const [entropy, most] = [entropyOf(weights), Math.log(source.length)];
      bars.draw(weights);
      const words = entropy < 0.15 * most ? "nearly all on one token" : entropy > 0.9 * most ? "nearly the same for all" : "spread over some tokens";
      return `Entropy ${entropy.toFixed(2)} of at most ${most.toFixed(2)}: ${words}.`;
    };
  },

  softmax(lesson, { allowed }, add) {
    const { source } = lesson;
    const table = heatTable("Attention weights: each row sums to 1", source, source, { pick: (row, column) => change(lesson, { row, column }) });
    add(table.node);
    return ({ row, divisor }) => {
      const weights = headWeights(lesson, divisor);
      const shares = rowOf(weights, row, source.length);
      const most = Math.max(...shares);
      table.draw(weights, { chosen: row, allowed: allowed.data });
      return `“${source[row]}” looks most at “${source[shares.indexOf(most)]}” (${percent(most)}); its entropy is ${entropyOf(shares).toFixed(2)}. Scores were divided by ${divisor.toFixed(1)}.`;
    };
  },

  "weighted-sum"(lesson, _, add) {
    const { source, data } = lesson;
    const { v } = data["queries-keys-values"];
    const width = v.shape[1];
    const strip = heatTable("The weighted sum", ["all tokens", "as changed"], width, { signed: true });
    add(toolbar(tokenChoice(lesson, "Token", source, "row"), tokenChoice(lesson, "Leave out", source, "leftOut", "nothing")), strip.node);
    return ({ row, divisor, leftOut }) => {
      const weightsAt = (number) => rowOf(headWeights(lesson, number), row, source.length);
      const weights = withoutKey(weightsAt(divisor), source.length, leftOut);
      const [before, after] = [weightsAt(data.scale.divisor.data[0]), weights].map((shares) => weightedSum(shares, v.data, width));
      strip.draw([...before, ...after]);
      const share = Math.hypot(...after.map((value, index) => value - before[index])) / Math.hypot(...before);
      return share < 1e-3 ? "Leave a token out, and see how much came from it." : `The result changes by ${percent(share)} of its length.`;
    };
  },

  heads(lesson, { weights, output, share }, add) {
    const { source } = lesson;
    const canvases = share.data.map(() => element("canvas"));
    add(element("div.grid.sorted", {}, canvases.map((canvas, index) => element("div.cell-with-label", {}, element("button.cell", {
      "aria-label": `Head ${index + 1}`, "aria-pressed": String(index + 1 === lesson.head), onclick: () => lesson.open({ head: index + 1, step: "heads" }),
    }, canvas), element("small", {}, `${index + 1}: ${percent(share.data[index])}`)))),
    vectors("All heads joined", source, output));
    return () => {
      canvases.forEach((canvas, index) => drawThumbnail(canvas, { rows: source, columns: source, weights: rowOf(weights.data, index, source.length ** 2) }, thumbnailColors()));
      return "How far the result moves without each head. Choose one to walk with it.";
    };
  },

  "residual-norm"(lesson, data, add) {
    const { source } = lesson;
    const width = data.input.shape[1];
    const strip = heatTable("One token", ["goes in", "attention", "comes out"], width, { signed: true });
    const bars = barChart("Cosine of what goes in and what comes out", source);
    add(toolbar(tokenChoice(lesson, "Token", source, "row"), toggle(lesson, "residual connection", "residual")), strip.node, bars.node);
    return ({ row, residual }) => {
      strip.draw([data.input, data.sublayer, data.output].flatMap(({ data: values }) => rowOf(values, row, width)));
      bars.draw((residual ? data.kept : data.kept_without).data, (cosine) => cosine.toFixed(2), row);
      const at = (name) => data[name].data[row].toFixed(2);
      return `The norm takes “${source[row]}” from mean ${at("mean_before")} and size ${at("size_before")} to mean ${at("mean_after")} and size ${at("size_after")}.`;
    };
  },

  "feed-forward"(lesson, { inner, active, neurons, error }, add) {
    const used = active.data.reduce((sum, share) => sum + share, 0) / active.data.length;
    add(vectors("Neurons after the activation", lesson.source, inner),
      toolbar(stateSlider(lesson, "Keep the strongest", "neurons", { min: 0, max: neurons.data.length - 1, describe: (index) => neurons.data[index].toLocaleString("en") })));
    return ({ neurons: index }) => (error.data[index] < 1e-4 ? `A token uses ${percent(used)} of its neurons on average. How few are enough?`
        : `With ${neurons.data[index]} neurons for each token, the result is off by ${percent(error.data[index])} of its length.`);
  },

  mask(lesson, { q, k, allowed }, add) {
    const { target } = lesson;
    const table = heatTable("What is written (rows) reads what is there (columns)", target, ["‹start›", ...target.slice(0, -1)]);
    const later = allowed.data.map((_, cell) => Number(cell % target.length > Math.floor(cell / target.length)));
    add(toolbar(toggle(lesson, "mask the future", "masked")), table.node);
    return ({ masked }) => {
      const open = masked ? allowed.data : allowed.data.map((value, cell) => value || later[cell]);
      const weights = softmaxRows(dotProducts(q.data, k.data, q.shape[1]), target.length, Math.sqrt(q.shape[1]), open);
      table.draw(weights, { allowed: open });
      const leaked = weights.reduce((sum, weight, cell) => sum + weight * later[cell], 0) / target.length;
      return masked ? "Each row writes a token and reads only those before it. Where would it look without?"
        : `${percent(leaked)} of the attention now goes to tokens that are not written yet.`;
    };
  },

  "cross-attention"(lesson, { weights }, add) {
    const { source, target } = lesson;
    const table = heatTable("What is written (rows) reads the source (columns)", target, source, { pick: (place) => change(lesson, { place }) });
    add(table.node, toolbar(tokenChoice(lesson, "Writing", target, "place"), tokenChoice(lesson, "Hide", source, "hidden", "nothing")));
    return ({ place, hidden }) => {
      const shown = withoutKey(weights.data, source.length, hidden);
      table.draw(shown, { chosen: place, allowed: shown.map((_, cell) => cell % source.length !== hidden) });
      const shares = rowOf(shown, place, source.length);
      const most = Math.max(...shares);
      const alike = shares.filter((share) => most - share < 5e-4).length;
      const words = alike > 1 ? `reads ${alike} tokens alike` : `reads “${source[shares.indexOf(most)]}” most`;
      return `While it writes “${target[place]}”, head ${lesson.head} ${words} (${percent(most)}).`;
    };
  },

  distribution(lesson, { logits, candidates, temperatures }, add) {
    const { target } = lesson;
    const chart = element("div");
    add(toolbar(tokenChoice(lesson, "Writing", target, "place"), stateSlider(lesson, "Temperature", "temperature", {
      min: 0, max: temperatures.data.length - 1, describe: (index) => `τ = ${temperatures.data[index]}`,
    })), chart);
    return ({ place }) => {
      const names = rowOf(candidates, place, logits.shape[1]).map(tokenName);
      const bars = barChart("Probabilities of the next token", [...names, "all others"]);
      bars.draw(nextShares(lesson), percent, names.indexOf(target[place]));
      fill(chart, bars.node);
    };
  },

  "next-token"(lesson, { chosen, probability, best, best_probability: most, text }, add) {
    const { target } = lesson;
    const line = element("p.so-far", { lang: lesson.walk.model.target_language, dir: "auto" });
    const go = () => change(lesson, { place: (lesson.state.place + 1) % target.length });
    add(toolbar(tokenChoice(lesson, "Writing", target, "place"), element("button", { onclick: go }, "Next token")), line);
    return ({ place }) => {
      fill(line, place ? `${text[place - 1]} ` : "", element("mark", {}, target[place]));
      const total = probability.data.slice(0, place + 1).reduce((product, value) => product * value, 1);
      const other = chosen[place] === best[place] ? "no token has more" : `“${tokenName(best[place])}” has ${percent(most.data[place])}, but the beam went on otherwise`;
      return `“${target[place]}” has ${percent(probability.data[place])}; ${other}. All tokens up to here: ${total.toPrecision(2)}.`;
    };
  },
};
