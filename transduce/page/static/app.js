// The shell: which view is shown, which model is asked, light or dark.

import { element, fill, problem, hideTip, choice } from "./dom.js";
import { readAddress, linkTo } from "./address.js";
import { chooseModel, chosenModel, fetchModels, standaloneData } from "./api.js";
import { textFor } from "./examples.js";
import { languageName } from "./words.js";
import { showTranslate } from "./translate.js";
import { showInspect } from "./inspect.js";
import { showLearn } from "./learn.js";
import { showRuns } from "./runs.js";

// A view fills its root from the parameters of the address, and may return a function that ends it.
const VIEWS = {
  translate: { title: "Translate", show: showTranslate },
  inspect: { title: "Inspect", show: showInspect },
  learn: { title: "Learn", show: showLearn },
  runs: { title: "Runs", show: showRuns },
};
const THEMES = [["auto", "System", "◐"], ["light", "Light", "○"], ["dark", "Dark", "●"]];

let endView = null;
let lastText = "";
let standardModel = null; // the name of the model that the server takes if none is asked for

function shownViews() {
  const data = standaloneData();
  if (!data) return Object.keys(VIEWS);
  return data.walkthrough ? ["inspect", "learn"] : ["inspect"];
}

// Each link keeps the text, so that the same sentence is translated, inspected and walked through.
function drawNavigation(current) {
  const bar = document.getElementById("views");
  if (!bar.children.length) {
    fill(bar, shownViews().map((view) => element("a", { "data-view": view }, VIEWS[view].title)));
  }
  for (const link of bar.children) {
    const view = link.dataset.view;
    link.href = linkTo(view, view === "runs" ? {} : { text: lastText });
    link.ariaCurrent = view === current ? "page" : null;
  }
}

// Draw the view that the address names. The text goes along from one view to the next.
function showView() {
  const views = shownViews();
  const { view: asked, parameters } = readAddress();
  const view = views.includes(asked) ? asked : views[0];
  if (parameters.get("text")) lastText = parameters.get("text");
  chooseModel(parameters.get("model"));
  const choices = document.querySelector("#models select");
  if (choices) choices.value = chosenModel() ?? standardModel;

  endView?.();
  hideTip();
  drawNavigation(view);
  document.title = `${VIEWS[view].title} · transduce`;
  const root = document.getElementById("view");
  fill(root);
  try {
    endView = VIEWS[view].show(root, parameters) ?? null;
  } catch (error) {
    endView = null;
    fill(root, problem(error));
    throw error;
  }
}

function readTheme() {
  try {
    return localStorage.getItem("theme") ?? "auto";
  } catch {
    return "auto"; // storage can be forbidden, as in a file
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // The choice then lasts as long as the page.
  }
  window.dispatchEvent(new Event("themechange"));
}

function themeSwitch() {
  // Other programs at this address may have stored a theme that is unknown here.
  let place = Math.max(0, THEMES.findIndex(([theme]) => theme === document.documentElement.dataset.theme));
  const button = element("button.quiet.theme");
  const draw = () => {
    const [, name, sign] = THEMES[place];
    button.textContent = sign;
    button.title = `Colours: ${name}`;
    button.ariaLabel = `${button.title}. Press to change.`;
  };
  button.addEventListener("click", () => {
    place = (place + 1) % THEMES.length;
    setTheme(THEMES[place][0]);
    draw();
  });
  draw();
  return button;
}

function modelTitle(model) {
  if (!model.source_language || !model.target_language) return model.name;
  return `${languageName(model.source_language)} → ${languageName(model.target_language)}`;
}

// Offer the server's models. The default one needs no name in the address.
async function drawModels() {
  const models = await fetchModels();
  if (!models.length) return;
  standardModel = models.find((model) => model.default).name;
  const titles = models.map(modelTitle);
  const options = models.map((model, index) => {
    const isUnique = titles.filter((title) => title === titles[index]).length === 1;
    return [model.name, isUnique ? titles[index] : `${titles[index]} (${model.name})`];
  });
  fill(document.getElementById("models"), choice("Model", options, chosenModel() ?? standardModel, (name) => {
    chooseModel(name === standardModel ? null : name);
    const { source_language: language } = models.find((model) => model.name === name);
    location.hash = linkTo(readAddress().view || "translate", { text: textFor(language, lastText) });
  }));
}

function start() {
  setTheme(readTheme());
  fill(document.getElementById("tools"), element("div", { id: "models" }), themeSwitch());
  window.addEventListener("hashchange", showView);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("themechange")));
  window.addEventListener("rewriteaddress", () => {
    const { view, parameters } = readAddress();
    if (view !== "runs") lastText = parameters.get("text") ?? "";
    drawNavigation(view);
  });
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("view").focus();
  });
  showView();
  drawModels().catch((error) => document.querySelector("header").after(problem(error)));
}

start();
