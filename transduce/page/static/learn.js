// The view Learn.

import { element, fill } from "./dom.js";

export function showLearn(root, parameters) {
  fill(root, element("h1", {}, "Learn"), element("p", { class: "muted" }, parameters.get("text") ?? ""));
}
