// The view Translate: two panes, a translation that follows the typing, and what each word came from.

import { element, fill, problem, announce, debounce, copyText } from "./dom.js";
import { rewriteAddress, linkTo } from "./address.js";
import { fetchModel, fetchModels, streamTranslation, chooseModel } from "./api.js";
import { examplesIn } from "./examples.js";
import { languageName } from "./words.js";
import { drawTranslation, mark, pointAtTarget, focusWord, pointAtSource, markAtCaret } from "./translation_pane.js";
import { openAlternatives, closeAlternatives } from "./alternatives.js";

const WAIT = 250; // milliseconds without typing before a request
const LONGEST_ADDRESS = 20_000; // characters of text that the address carries
const LARGEST_FILE = 1_000_000; // bytes

export function showTranslate(root, parameters) {
  const view = { sentences: [], text: parameters.get("text") ?? "", request: null, focused: null, frame: 0, showsConfidence: true };
  build(view);
  fill(root, view.layout);
  resize(view);
  labelLanguages(view);
  const ending = new AbortController();
  const { signal } = ending;
  window.addEventListener("resize", () => resize(view), { signal });
  document.addEventListener("keydown", (event) => shortcut(view, event), { signal });
  document.addEventListener("selectionchange", () => markAtCaret(view), { signal });
  drawTranslation(view);
  if (view.text) translateNow(view);
  else view.source.focus({ preventScroll: true });
  return () => {
    view.request?.abort();
    view.later.cancel();
    ending.abort();
  };
}

// --- what the view consists of

function build(view) {
  view.later = debounce(() => translateNow(view), WAIT);
  view.source = element("textarea.text", {
    id: "source", dir: "auto", rows: 3, spellcheck: "false", "aria-labelledby": "source-language",
    "aria-describedby": "count", placeholder: "Type or paste a text, or drop a file", value: view.text,
    oninput: () => typed(view),
    onpaste: (event) => takeFile(view, event, event.clipboardData),
    onpointermove: (event) => pointAtSource(view, event),
    onpointerleave: () => mark(view, []),
  });
  view.mirror = element("div.text.mirror", { dir: "auto", "aria-hidden": "true" });
  view.output = element("div.text.output", {
    id: "translation", dir: "auto", role: "group", "aria-labelledby": "target-language",
    "aria-describedby": "word-keys",
    onkeydown: (event) => moveInOutput(view, event),
    onclick: (event) => openAlternatives(view, event.target.closest(".word")),
    onpointerover: (event) => pointAtTarget(view, event.target.closest(".word"), event),
    onpointerleave: () => mark(view, []),
    onfocusin: (event) => focusWord(view, event.target.closest(".word")),
    onfocusout: () => mark(view, []),
  });
  view.count = element("span.muted.small.number", { id: "count" });
  view.messages = element("div.messages");
  view.alternatives = element("section.card.alternatives", { "aria-label": "Alternatives", hidden: true });
  view.samples = element("p.samples.small.muted");
  view.layout = [
    element("h1.visually-hidden", {}, "Translate"),
    element("div.panes", {}, sourcePane(view), targetPane(view)),
    view.messages, view.alternatives, view.samples, keyboardHelp(),
  ];
}

function sourcePane(view) {
  const file = element("input.visually-hidden", {
    type: "file", accept: ".txt,.md,text/*", tabindex: "-1", "aria-label": "Text file",
    onchange: () => readFile(view, file.files[0]),
  });
  view.swap = element("button.quiet", { id: "swap", title: "Translate back", hidden: true }, "⇄ Swap");
  const pane = element("section.pane", {
    "aria-label": "Source text",
    ondragover: (event) => { event.preventDefault(); pane.classList.add("dropping"); },
    ondragleave: () => pane.classList.remove("dropping"),
    ondrop: (event) => { pane.classList.remove("dropping"); takeFile(view, event, event.dataTransfer); },
  },
  element("h2.language", { id: "source-language" }, "Source"),
  element("div.stack", {}, view.mirror, view.source),
  element("div.toolbar.foot", {}, view.count,
    element("span.push"), view.swap,
    element("button.quiet", { onclick: () => file.click() }, "Open a file"), file,
    element("button.quiet", { onclick: () => setText(view, "") }, "Clear")));
  return pane;
}

function targetPane(view) {
  const copy = element("button", { id: "copy", onclick: () => copyText(shownText(view), copy) }, "Copy");
  view.copy = copy;
  view.inspect = element("a.button", { id: "to-inspect" }, "Inspect");
  const toggle = element("input", {
    type: "checkbox", checked: view.showsConfidence,
    onchange: () => {
      view.showsConfidence = toggle.checked;
      drawTranslation(view);
    },
  });
  return element("section.pane.target", { "aria-label": "Translation" },
    element("h2.language", { id: "target-language" }, "Translation"),
    view.output,
    element("p.visually-hidden", { id: "word-keys" }, "The arrow keys go from word to word; Enter shows alternatives."),
    element("div.toolbar.foot", {},
      element("label.field", {}, toggle, element("span", {}, "Confidence")),
      element("span.legend.small.muted", { id: "legend" },
        element("span.fair", {}, "fairly sure"), " ", element("span.unsure", {}, "unsure")),
      element("span.push"), view.inspect, copy));
}

function keyboardHelp() {
  const keys = [
    ["Ctrl Enter", "translate now"], ["/", "go to the source text"], ["← →", "word by word through the translation"],
    ["Enter", "alternatives of the sentence"], ["Esc", "close the alternatives"], ["Alt C", "copy the translation"],
    ["Alt I", "inspect the sentence"],
  ];
  return element("details.keys.small.muted", {}, element("summary", {}, "Keyboard"),
    element("p", {}, keys.map(([key, text]) => element("span", {}, element("kbd", {}, key), ` ${text}`))));
}

async function labelLanguages(view) {
  const model = await fetchModel();
  if (!model) return;
  for (const [code, heading, area] of [
    [model.source_language, "#source-language", view.source],
    [model.target_language, "#target-language", view.output],
  ]) {
    if (!code) continue;
    view.layout[1].querySelector(heading).textContent = languageName(code);
    area.lang = code;
  }
  const examples = examplesIn(model.source_language);
  fill(view.samples, examples.length ? "Try: " : null,
    examples.map((text) => element("button", { lang: model.source_language, onclick: () => setText(view, text) }, text)));
  offerSwap(view, model, await fetchModels());
}

// Where a model translates back, its source can be the translation, once that is complete.
function offerSwap(view, model, models) {
  const back = models.find((other) => model.source_language
    && other.source_language === model.target_language && other.target_language === model.source_language);
  view.swap.hidden = !back;
  view.swap.onclick = () => {
    chooseModel(back.default ? null : back.name);
    location.hash = linkTo("translate", { text: view.translated === view.text ? shownText(view) : view.text });
  };
}

// --- from the text to the translation

function typed(view) {
  view.text = view.source.value;
  resize(view);
  fill(view.mirror);
  closeAlternatives(view);
  view.request?.abort();
  view.later();
}

function setText(view, text) {
  view.source.value = text;
  typed(view);
  view.later.cancel();
  translateNow(view);
  view.source.focus();
}

function resize(view) {
  const size = [...view.text].length;
  view.count.textContent = `${size.toLocaleString("en")} character${size === 1 ? "" : "s"}`;
  for (const area of [view.source, view.mirror, view.output]) area.classList.toggle("long", size > 400);
  view.samples.hidden = view.text !== "";
  view.source.style.height = "auto";
  view.source.style.height = `${view.source.scrollHeight}px`;
}

// Ask for the translation of the whole text. The answer to an older request is dropped.
async function translateNow(view) {
  view.request?.abort();
  rewriteAddress("translate", { text: view.text.length > LONGEST_ADDRESS ? "" : view.text });
  fill(view.messages);
  if (!view.text.trim()) {
    Object.assign(view, { sentences: [], whole: "" });
    drawTranslation(view);
    return;
  }

  const request = new AbortController();
  view.request = request;
  view.output.classList.add("waiting");
  try {
    const options = { text: view.text, alignments: true, confidences: true };
    const answer = await streamTranslation(options, (sentence) => takeSentence(view, request, sentence), request.signal);
    if (request.signal.aborted) return;
    const translation = answer.translations[0];
    view.sentences = translation.sentences;
    view.whole = translation.text;
    view.translated = view.text;
    drawTranslation(view);
    fill(view.messages, translation.notices.map((notice) => element("p.notice", {}, notice)));
    announce(`Translation: ${translation.text.slice(0, 1000)}`);
  } catch (error) {
    if (request.signal.aborted) return;
    fill(view.messages, problem(error));
  }
  view.output.classList.remove("waiting");
}

// Put one sentence in its place; what follows stays from the translation before, greyed.
function takeSentence(view, request, sentence) {
  if (request.signal.aborted) return;
  view.sentences = view.sentences.toSpliced(sentence.sentence, 1, sentence).slice(0, sentence.of);
  view.whole = null;
  view.frame ||= requestAnimationFrame(() => {
    view.frame = 0;
    drawTranslation(view, view.arrived);
  });
  view.arrived = sentence.sentence;
}

function shownText(view) {
  return view.whole ?? view.sentences.map((sentence) => sentence.before + sentence.text).join("");
}

// --- keyboard and files

function moveInOutput(view, event) {
  const place = view.words.findIndex((word) => word.node === event.target);
  if (place < 0) return;
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step) view.words[Math.min(view.words.length - 1, Math.max(0, place + step))].node.focus();
  else if (event.key === "Home") view.words[0].node.focus();
  else if (event.key === "End") view.words.at(-1).node.focus();
  else if (event.key === "Enter" || event.key === " ") openAlternatives(view, event.target);
  else return;
  event.preventDefault();
}

function shortcut(view, event) {
  const isTyping = event.target.closest?.("textarea, input, select");
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    view.later.cancel();
    translateNow(view);
  } else if (event.key === "Escape" && !view.alternatives.hidden) closeAlternatives(view, true);
  else if (event.key === "/" && !isTyping) view.source.focus();
  else if (event.altKey && event.code === "KeyC") view.copy.click();
  else if (event.altKey && event.code === "KeyI" && !view.inspect.hidden) view.inspect.click();
  else return;
  event.preventDefault();
}

function takeFile(view, event, transfer) {
  const file = transfer?.files?.[0];
  if (!file && event.type === "paste") return;
  event.preventDefault();
  if (file) readFile(view, file);
  else if (transfer) setText(view, transfer.getData("text/plain"));
}

async function readFile(view, file) {
  if (!file) return;
  const text = file.size > LARGEST_FILE ? null : await file.text();
  if (text === null || text.includes("\0")) {
    const size = `${Math.ceil(file.size / 1000).toLocaleString("en")} kB`;
    const reason = text === null ? `${size}; the page takes up to 1,000 kB` : "no text file; the page takes plain text";
    fill(view.messages, problem(`${file.name} is ${reason}`));
    return;
  }
  setText(view, text.replaceAll("\r\n", "\n"));
}
