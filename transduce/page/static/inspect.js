// The view Inspect.

import { element, fill } from "./dom.js";

export function showInspect(root, parameters) {
  fill(root, element("h1", {}, "Inspect"), element("p", { class: "muted" }, parameters.get("text") ?? ""));
}
