// Elements, files and small conveniences. Text reaches the page only as text nodes.

import { sharedWords } from "./words.js";

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

// Make an element: element("button.quiet", { onclick: copy }, "Copy"). Classes follow the name, each after a dot.
// Attributes that are null or false are left out; functions become event listeners. A button submits no form.
export function element(selector, attributes = {}, ...children) {
  const [name, ...classes] = selector.split(".");
  const node = document.createElement(name);
  node.classList.add(...classes);
  if (name === "button") node.type = "button";
  return furnish(node, attributes, children);
}

// Make an SVG element in the same way.
export function svgElement(name, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null));
  return node;
}

// Put these children in place of all that a node has.
export function fill(node, ...children) {
  node.replaceChildren();
  return furnish(node, {}, children);
}

// Controls beside each other.
export function toolbar(...children) {
  return element("div.toolbar", {}, ...children);
}

// Draw something anew; the control that had the focus has it afterwards, if there still is one of its name.
export function keepFocus(root, draw) {
  const name = (node) => node.id || [node.tagName, node.dataset.value ?? node.dataset.head ?? node.getAttribute("aria-label")
    ?? (node.closest("label")?.firstChild ?? node).textContent].join();
  const wanted = root.contains(document.activeElement) ? name(document.activeElement) : null;
  draw();
  if (wanted === null || root.contains(document.activeElement)) return;
  [...root.querySelectorAll("a, button, select, input, [tabindex]")].find((node) => name(node) === wanted)?.focus({ preventScroll: true });
}

// A row of buttons of which one is chosen: options are [value, label] pairs.
export function segmented(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) =>
    element("button", {
      "aria-pressed": String(value === chosen),
      "data-value": value,
      onclick: () => {
        for (const button of buttons) button.ariaPressed = button.dataset.value === String(value);
        choose(value);
      },
    }, text));
  return element("div.segmented", { role: "group", "aria-label": label }, buttons);
}

// A labelled select: options are [value, label] pairs.
export function choice(label, options, chosen, choose) {
  const select = element("select", { onchange: () => choose(select.value) },
    options.map(([value, text]) => element("option", { value, selected: String(value) === String(chosen) }, text)));
  return element("label.field", {}, element("span", {}, label), select);
}

// A labelled slider; the output beside it shows describe(value).
export function slider(label, { min, max, step = 1, value, describe = String }, change) {
  const output = element("output", {}, describe(value));
  const input = element("input", {
    type: "range", min, max, step, value, "aria-valuetext": describe(value),
    oninput: () => {
      output.textContent = describe(Number(input.value));
      input.ariaValueText = output.textContent;
      change(Number(input.value));
    },
  });
  return element("label.field.slider", {}, element("span", {}, label), input, output);
}

// One line that says what went wrong.
export function problem(error) {
  return element("p.problem", { role: "alert" }, error instanceof Error ? error.message : String(error));
}

// Say something to a screen reader.
export function announce(text) {
  document.getElementById("live").textContent = text;
}

// Call a function once nothing has happened for some milliseconds.
export function debounce(call, milliseconds) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

// Copy a text, and say so on the button that was pressed.
export async function copyText(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const area = element("textarea.visually-hidden", { value: text });
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Not allowed here";
    area.remove();
  }
  announce(button.textContent);
  setTimeout(() => { button.textContent = before; }, 1500);
}

// Offer a blob as a file to save.
export function saveFile(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// The small box that follows the pointer or the focus. One for the whole page.
export function showTip(x, y, ...children) {
  let tip = document.getElementById("tip");
  if (!tip) {
    tip = element("div.tip", { id: "tip", "aria-hidden": "true" });
    document.body.append(tip);
  }
  fill(tip, ...children);
  tip.hidden = false;
  const left = Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8);
  const below = y + 18 + tip.offsetHeight < window.innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below ? y + 18 : Math.max(8, y - tip.offsetHeight - 12)}px`;
}

export function hideTip() {
  const tip = document.getElementById("tip");
  if (tip) tip.hidden = true;
}

// A share as "93 %"; small ones keep a digit, so that nothing but zero reads as zero.
export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

// A number with a real minus sign.
export function signed(number, digits) {
  return number.toFixed(digits).replace("-", "\u2212");
}

// The colour that a custom property of the stylesheet has in the present theme, as [r, g, b].
export function themeColor(name) {
  const probe = element("span", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const numbers = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return numbers;
}

// Two texts as nodes, with the words that only one of them has marked: <del> in the first, <ins> in the second.
export function different(first, second) {
  const texts = [first, second].map((text) => text.split(/(\s+)/));
  const shared = sharedWords(...texts);
  return texts.map((parts, side) => parts.map((part, place) =>
    shared[side][place] || !part.trim() ? part : element(side ? "ins" : "del", {}, part)));
}
