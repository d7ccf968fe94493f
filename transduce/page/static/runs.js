// The view Runs.

import { element, fill } from "./dom.js";

export function showRuns(root, parameters) {
  fill(root, element("h1", {}, "Runs"), element("p", { class: "muted" }, parameters.get("text") ?? ""));
}
