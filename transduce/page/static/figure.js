// Figures: their colours and text sizes, and how they are saved as SVG or PNG.

import { element, problem, saveFile, svgElement, themeColor } from "./dom.js";

const FIGURE_FONT = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
const PNG_SCALE = 2;
let measuring = null;

// The colours of the present theme as text, for attributes: a saved figure needs no stylesheet.
export function figureColors() {
  const names = ["paper", "card", "ink", "muted", "line", "accent", "bad"];
  const colors = Object.fromEntries(names.map((name) => [name, colorText(themeColor(`--${name}`))]));
  colors.series = [1, 2, 3, 4, 5, 6].map((number) => colorText(themeColor(`--series-${number}`)));
  return colors;
}

export function colorText([red, green, blue]) {
  return `rgb(${red}, ${green}, ${blue})`;
}

// The colour of a weight from 0 to 1 between two colours, given as [r, g, b]. Small weights stay visible.
export function weightColor(weight, low, high) {
  const share = Math.min(1, Math.max(0, weight)) ** 0.65;
  return low.map((value, place) => Math.round(value + (high[place] - value) * share));
}

export function textWidth(text, size) {
  measuring ??= document.createElement("canvas").getContext("2d");
  measuring.font = `${size}px ${FIGURE_FONT}`;
  return measuring.measureText(text).width;
}

export function shorten(text, letters = 18) {
  const characters = [...text];
  return characters.length > letters ? `${characters.slice(0, letters - 1).join("")}…` : text;
}

// The attributes that every figure starts with. The label is what a screen reader says.
export function figureFrame(width, height, label) {
  return {
    viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`, width: Math.ceil(width), height: Math.ceil(height),
    role: "img", "aria-label": label, "font-family": FIGURE_FONT, "font-size": 13, class: "figure",
  };
}

// Two buttons that save a figure; find returns the SVG element of the moment.
export function saveButtons(name, find) {
  const button = (kind) => element("button.quiet", {
    "aria-label": `Save the figure as ${kind.toUpperCase()}`,
    onclick: (event) => saveFigure(find(), `${name}.${kind}`, kind).catch((error) => event.target.after(problem(error))),
  }, kind.toUpperCase());
  return element("span.save", { role: "group", "aria-label": "Save" },
    element("span.muted.small", { "aria-hidden": "true" }, "Save"), button("svg"), button("png"));
}

async function saveFigure(figure, name, kind) {
  const copy = figure.cloneNode(true);
  const { width, height } = figure.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.removeAttribute("class");
  for (const node of copy.querySelectorAll("[data-screen]")) node.remove(); // marks of the pointer
  copy.prepend(svgElement("rect", { width, height, fill: figureColors().card }));
  const text = new XMLSerializer().serializeToString(copy);
  if (kind === "svg") {
    saveFile(name, new Blob([text], { type: "image/svg+xml" }));
    return;
  }
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = element("canvas", { width: width * PNG_SCALE, height: height * PNG_SCALE });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  saveFile(name, await new Promise((done) => { canvas.toBlob(done, "image/png"); }));
}
