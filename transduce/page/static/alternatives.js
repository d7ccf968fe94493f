// Other translations of a sentence, offered below the panes.

import { element, fill, problem, announce, different, signed, toolbar } from "./dom.js";
import { fetchTranslation } from "./api.js";
import { drawTranslation, describeWord, inspectLink } from "./translation_pane.js";

const ALTERNATIVES = 6;

export async function openAlternatives(view, node) {
  const entry = view.words?.find((other) => other.node === node);
  if (!entry) return;
  const sentence = view.sentences[entry.sentence];
  const request = view.request;
  view.asked = entry;
  fill(view.alternatives, element("p.muted", {}, "Looking for alternatives …"));
  view.alternatives.hidden = false;
  try {
    const options = { text: sentence.source, n_best: ALTERNATIVES };
    sentence.others ??= distinct((await fetchTranslation(options, request?.signal)).translations[0].n_best);
  } catch (error) {
    if (!request?.signal.aborted) fill(view.alternatives, problem(error));
    return;
  }
  if (request?.signal.aborted || view.asked !== entry) return;
  const about = describeWord(view, entry);
  fill(view.alternatives,
    toolbar(element("h2", {}, "Alternatives"),
      element("span.muted.small", {}, `“${node.textContent}”${about ? `: ${about}` : ""}`),
      element("a.push.small", { href: inspectLink(view, entry.sentence) }, "Inspect this sentence"),
      element("button.quiet", { onclick: () => closeAlternatives(view, true) }, "Close")),
    element("ol", {}, sentence.others.map((other) => alternative(view, entry, other))));
  announce(`${sentence.others.length} alternatives`);
  view.alternatives.querySelector("li button").focus();
}

// Different tokens can make the same text: keep the best of each.
function distinct(translations) {
  return translations.filter(({ text }, place) => translations.findIndex((other) => other.text === text) === place);
}

function alternative(view, entry, other) {
  const sentence = view.sentences[entry.sentence];
  const isShown = other.text === sentence.text;
  return element("li", {}, element("button", {
    "aria-pressed": String(isShown), lang: view.output.lang || null,
    onclick: () => chooseAlternative(view, entry, other),
  },
  element("span", {}, isShown ? other.text : different(sentence.text, other.text)[1]),
  element("span.muted.small.number", { title: "log-probability, normalized by length" }, signed(other.score, 2))));
}

// Show another translation of a sentence. What was known of the words of the first one is dropped.
function chooseAlternative(view, entry, other) {
  const { source, before, others } = view.sentences[entry.sentence];
  if (other.text !== view.sentences[entry.sentence].text) {
    view.sentences[entry.sentence] = { source, before, others, text: other.text, score: other.score };
    view.whole = null;
    drawTranslation(view);
  }
  view.focused = view.words.find((word) => word.sentence === entry.sentence);
  closeAlternatives(view, true);
}

export function closeAlternatives(view, returnFocus = false) {
  view.alternatives.hidden = true;
  if (returnFocus) view.focused?.node.focus();
}
