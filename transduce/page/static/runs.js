// The view Runs: progress, curves and samples of the training runs, drawn again while one trains.

import { element, fill, problem, svgElement } from "./dom.js";
import { fetchRun, fetchRuns } from "./api.js";
import { linkTo } from "./address.js";

const REFRESH = 5_000; // milliseconds

// Fill the view; return a function that ends it.
export function showRuns(root, parameters) {
  const ending = new AbortController();
  const body = element("div.parts", {}, element("p.muted", {}, "Reading the runs …"));
  const list = element("nav.views", { "aria-label": "Runs" });
  fill(root, element("h1", {}, "Training runs"), list, body);
  let [timer, states] = [0, null];
  async function load() {
    try {
      const runs = await fetchRuns(ending.signal);
      const name = parameters.get("name") ?? runs[0]?.name;
      const report = name && runReport(await fetchRun(name, ending.signal));
      const present = runs.map(({ state }) => state).join();
      if (present !== states) fill(list, runs.map((run) => runLink(run, name)));
      states = present;
      fill(body, report || element("p.lead.muted", {},
        "There is no run yet. Start one with ", element("code", {}, "transduce train small"), ", and its curves appear here."));
      if (runs.some(({ state }) => state === "training")) timer = setTimeout(load, REFRESH);
    } catch (error) {
      if (error.name !== "AbortError") fill(body, problem(error));
    }
  }
  load();
  return () => {
    clearTimeout(timer);
    ending.abort();
  };
}

function runLink({ name, state }, chosen) {
  return element("a", { href: linkTo("runs", { name }), "aria-current": name === chosen ? "page" : null },
    `${name} (${state})`);
}

function runReport(run) {
  const last = (points, key, digits) => points.findLast((point) => point[key] !== null)?.[key].toLocaleString("en", { maximumFractionDigits: digits });
  const facts = {
    step: `${run.step.toLocaleString("en")} of ${run.steps.toLocaleString("en")}`,
    "validation loss": last(run.validation, "loss", 3), BLEU: last(run.validation, "bleu", 1), chrF: last(run.validation, "chrf", 1),
    "target tokens per second": last(run.training, "tokens_per_second", 0),
  };
  return [
    element("section.card", {}, element("h2", {}, run.name), element("dl.measures", {}, Object.entries(facts).map(([name, value]) =>
      element("div", {}, element("dt.small.muted", {}, name), element("dd.number", {}, value ?? "–"))))),
    element("div.workbench", {},
      runChart("Loss per target token", [["training", run.training, "loss"], ["validation", run.validation, "loss"]]),
      runChart("Scores of the validation set", [["BLEU", run.validation, "bleu"], ["chrF", run.validation, "chrf"]], 0)),
    element("section.card", {}, element("h2", {}, "Samples of the last validation"), run.samples.map((sample) =>
      element("div.bitext", {}, Object.entries(sample).map(([part, text]) => element("div", {}, element("span.small.muted", {}, part), element("p", { dir: "auto" }, text))))),
    run.samples.length ? null : element("p.muted", {}, "Nothing has been translated yet.")),
  ];
}

// Curves over the steps; series are [name, points, key].
function runChart(title, series, floor = Infinity) {
  const curves = series.map(([name, points, key]) => ({ name, points: points.filter((point) => point[key] !== null).map((point) => [point.step, point[key]]) }))
    .filter(({ points }) => points.length);
  const [width, height, left] = [560, 250, 44];
  const end = Math.max(1, ...curves.map(({ points }) => points.at(-1)[0]));
  const values = curves.flatMap(({ points }) => points.map(([, value]) => value));
  const [bottom, top] = [Math.min(floor, ...values), Math.max(...values)];
  // Round numbers, 1, 2 or 5 times a power of ten apart.
  const unit = 10 ** Math.floor(Math.log10((top - bottom || 1) / 4));
  const gap = unit * [1, 2, 5, 10].find((factor) => 4 * factor * unit >= top - bottom);
  const [low, high] = [Math.floor(bottom / gap), Math.ceil(top / gap)];
  const x = (step) => left + (step / end) * (width - left - 8);
  const y = (value) => 8 + ((high - value / gap) / (high - low || 1)) * (height - 40);
  const label = (text, x, y) => svgElement("text", { x, y, "text-anchor": "end" }, text);
  const marks = Array.from({ length: values.length && high - low + 1 }, (_, index) => (low + index) * gap);
  const ticks = marks.map((mark) => [
    svgElement("line", { x1: left, x2: width - 8, y1: y(mark), y2: y(mark) }), label(+mark.toFixed(9), left - 8, y(mark) + 4)]);
  const lines = curves.map(({ points }, index) => svgElement("polyline", { class: `curve-${index + 1}`, points: points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
  const chart = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": title }, ticks, lines, label(`step ${end.toLocaleString("en")}`, width - 8, height - 6));
  return element("section.card", {}, element("h2", {}, title), values.length ? chart : element("p.muted", {}, "Nothing yet."),
    element("p.small", {}, curves.map(({ name, points }, index) => element("span", { class: `key-${index + 1}` }, `${index ? "- - -" : "——"} ${name} ${points.at(-1)[1].toFixed(2)}`))));
}
