// The view Translate.

import { element, fill } from "./dom.js";

export function showTranslate(root, parameters) {
  fill(root, element("h1", {}, "Translate"), element("p", { class: "muted" }, parameters.get("text") ?? ""));
}
