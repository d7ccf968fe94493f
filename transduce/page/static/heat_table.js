// A table of numbers as coloured cells. Pointer and arrow keys read the numbers; wide cells show them.

import { element, showTip, hideTip } from "./dom.js";

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Make a table. `rows` are labels; `columns` are labels too, or only their number. `signed` numbers may be negative, others
// are shares. draw(values, {allowed, chosen}) colours it: cells that are not allowed are crossed out, one row is chosen.
export function heatTable(title, rows, columns, { signed = false, pick = null } = {}) {
  const names = Array.isArray(columns) ? columns : null;
  const count = names?.length ?? columns;
  let numbers = [];
  const cells = rows.flatMap(() => Array.from({ length: count }, () => element("td", { tabindex: -1 })));
  cells[0].tabIndex = 0;
  const lines = rows.map((label, row) => element("tr", {}, element("th", { scope: "row" }, label), cells.slice(row * count, (row + 1) * count)));
  const table = element("table", { role: "grid", "aria-label": title, class: names && count < 26 ? "heat" : "heat narrow" },
    names && element("thead", {}, element("tr", {}, element("td"), names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, lines));

  const tell = ({ target }) => {
    const cell = cells.indexOf(target);
    if (cell < 0) return hideTip();
    const { left, top } = target.getBoundingClientRect();
    return showTip(left, top, `${rows[Math.floor(cell / count)]}, ${names?.[cell % count] ?? (cell % count) + 1}: ${numbers[cell].toFixed(3)}`);
  };
  const choose = ({ target }) => cells.includes(target) && pick?.(Math.floor(cells.indexOf(target) / count), cells.indexOf(target) % count);
  for (const name of ["pointerover", "focusin"]) table.addEventListener(name, tell);
  for (const name of ["pointerleave", "focusout"]) table.addEventListener(name, hideTip);
  table.addEventListener("click", choose);
  table.addEventListener("keydown", (event) => {
    if (event.key === "Enter") choose(event);
    const [down, right] = MOVES[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    const cell = cells.indexOf(event.target);
    const column = (cell % count) + right;
    if (column >= 0 && column < count) cells[cell + right + down * count]?.focus();
  });

  function draw(values, { allowed = null, chosen = -1 } = {}) {
    numbers = values;
    const largest = signed ? Math.max(1e-9, ...values.map(Math.abs)) : 1;
    values.forEach((value, place) => {
      const isOpen = !allowed || allowed[place];
      cells[place].style.setProperty("--share", `${Math.round((Math.abs(value) / largest) ** 0.65 * 100)}%`);
      cells[place].className = isOpen ? (value < 0 ? "negative" : "") : "masked";
      cells[place].textContent = isOpen ? shortNumber(value) : "";
    });
    lines.forEach((line, row) => line.classList.toggle("chosen", row === chosen));
  }
  return { node: element("div", {}, element("h3.small.muted", {}, title), element("div.scroll", {}, table)), draw };
}

function shortNumber(value) {
  const size = Math.abs(value);
  return size < 0.995 ? value.toFixed(2).replace("0.", ".") : value.toFixed(size < 9.95 ? 1 : 0);
}
