// The view Learn: one translation in the paper's order, a step at a time.

import { element, fill, problem, toolbar } from "./dom.js";
import { fetchWalkthrough, standaloneData } from "./api.js";
import { linkTo, readAddress, rewriteAddress } from "./address.js";
import { askForSentence, examplesIn } from "./examples.js";
import { drawLesson, FIGURES } from "./learn_figures.js";
import { codeNode, mathNode } from "./learn_parts.js";
import { tokenName } from "./words.js";

// Fill the view; return a function that ends it.
export function showLearn(root, parameters) {
  const embedded = standaloneData()?.walkthrough;
  const lesson = {
    text: embedded?.text || parameters.get("text"),
    layer: Number(embedded?.layer || parameters.get("layer") || 1),
    head: Number(embedded?.head || parameters.get("head") || 1),
    ending: new AbortController(),
    draws: [], // functions that draw what depends on the state
  };
  lesson.address = (changes) => ({ text: lesson.text, layer: lesson.layer, head: lesson.head, ...changes });
  lesson.open = (changes) => { location.hash = linkTo("learn", lesson.address({ step: readAddress().parameters.get("step"), ...changes })); };

  const input = element("input", { type: "text", dir: "auto", autocomplete: "off", "aria-label": "Sentence" });
  const body = element("div.lesson", {}, element("p.muted", {}, "Translating …"));
  fill(root, element("div", {}, element("h1", {}, "One translation, step by step"),
    element("p.muted", {}, "What a Transformer computes, in the paper's order, with the numbers of this sentence.")),
  standaloneData() ? null : element("form.ask-line", {
    onsubmit: (event) => { event.preventDefault(); lesson.open({ text: input.value.trim() }); },
  }, input, element("button.main", { type: "submit" }, "Explain")), body);
  startLesson(lesson, input, body, parameters.get("step")).catch((error) => error.name !== "AbortError" && fill(body, problem(error)));
  return () => lesson.ending.abort();
}

// Without a text, explain an example in the language that the model reads; without an example, ask for a sentence.
async function startLesson(lesson, input, body, step) {
  const language = await askForSentence(input);
  lesson.text ||= examplesIn(language)[0];
  if (!lesson.text) {
    fill(body, element("p.muted", {}, "Type a sentence, then press Explain."));
    return;
  }
  input.value = lesson.text;
  tellStory(lesson, body, await fetchWalkthrough(lesson.address(), lesson.ending.signal), step);
}

function tellStory(lesson, body, walk, start) {
  const data = Object.fromEntries(walk.steps.map((step) => [step.name, step.data]));
  Object.assign(lesson, { walk, data, source: walk.source.map(tokenName), target: walk.target.map(tokenName) });
  // What the reader can change. `row` and `column` are source tokens, `place` is a target token, -1 is none.
  lesson.state = {
    row: Math.min(1, walk.source.length - 1), column: 0, place: 0, leftOut: -1, hidden: -1, divisor: data.scale.divisor.data[0],
    masked: true, scaled: true, residual: true, variant: 0, wave: 0, neurons: data["feed-forward"].neurons.data.length - 1,
    temperature: data.distribution.temperatures.data.indexOf(1),
  };
  const { model } = walk;
  lesson.sections = walk.steps.map((step, index) => lessonSection(lesson, step, index));
  fill(body, lessonSteps(lesson), element("div.parts", {},
    element("div.card.bitext", {}, element("p", { lang: model.source_language, dir: "auto" }, walk.text),
      element("p", { lang: model.target_language, dir: "auto" }, element("strong", {}, walk.translation)),
      walk.notices.map((notice) => element("p.notice", {}, notice))),
    lesson.sections.map(({ node }) => node),
    element("p.muted", {}, "That was one head of one layer. ", element("a", { href: linkTo("inspect", { text: lesson.text }) }, "See all of them"))));
  drawLesson(lesson);
  followReader(lesson);
  const first = walk.steps.findIndex(({ name }) => name === start);
  if (first > 0) goToStep(lesson, first, "auto");
}

function lessonSection(lesson, step, index) {
  const heading = element("h2", { id: `step-${step.name}`, tabindex: -1 }, element("span.muted.number", {}, index + 1), ` ${step.title}`);
  const caption = element("p");
  const figure = element("div.parts");
  const draw = FIGURES[step.name](lesson, step.data, (...nodes) => figure.append(...nodes));
  lesson.draws.push((state) => { caption.textContent = draw(state) ?? ""; });
  figure.append(caption);
  const node = element("section.card", { "aria-labelledby": heading.id },
    toolbar(heading, element("span.muted.small.push", {}, `§${step.section} of the paper`)),
    element("p.lead", {}, step.explanation),
    element("div.workbench", {}, mathNode(step), codeNode(step)), figure);
  return { step, node, heading };
}

function lessonSteps(lesson) {
  const button = (label, go, ...text) => element("button.quiet", { "aria-label": label, onclick: () => goToStep(lesson, go()) }, text);
  lesson.marks = lesson.sections.map(({ step }, index) => button(null, () => index, element("span.number", {}, index + 1), step.title));
  lesson.count = element("span.muted.small");
  return element("nav.steps", { "aria-label": "Steps" }, element("ol", {}, lesson.marks.map((mark) => element("li", {}, mark))),
    toolbar(button("Previous step", () => lesson.current - 1, "← Back"), lesson.count, button("Next step", () => lesson.current + 1, "Next →")));
}

// Mark the step that is being read, and move by the arrow keys.
function followReader(lesson) {
  const { sections, ending: { signal } } = lesson;
  const look = () => {
    if (Date.now() < lesson.arrival) return;
    const passed = sections.filter(({ node }) => node.getBoundingClientRect().top < window.innerHeight / 3).length;
    const atEnd = window.scrollY > 0 && window.innerHeight + window.scrollY > document.documentElement.scrollHeight - 4;
    markStep(lesson, atEnd ? sections.length - 1 : Math.max(0, passed - 1));
  };
  window.addEventListener("scroll", look, { passive: true, signal });
  window.addEventListener("themechange", () => drawLesson(lesson), { signal });
  document.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, table, [role=group]")) return;
    event.preventDefault();
    goToStep(lesson, lesson.current + by);
  }, { signal });
  look();
}

function markStep(lesson, current) {
  lesson.current = current;
  lesson.marks.forEach((mark, index) => { mark.ariaCurrent = index === current ? "step" : null; });
  lesson.count.textContent = `${current + 1} of ${lesson.sections.length}`;
}

function goToStep(lesson, index, behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth") {
  const chosen = Math.min(lesson.sections.length - 1, Math.max(0, index));
  const { step, node, heading } = lesson.sections[chosen];
  lesson.arrival = Date.now() + 900; // until then the window scrolls
  markStep(lesson, chosen);
  rewriteAddress("learn", lesson.address({ step: step.name }));
  heading.focus({ preventScroll: true });
  node.scrollIntoView({ behavior });
}
