// The address of a view: "#inspect?text=Hello&layer=5". What it names can be shared as a link.

import { chosenModel } from "./api.js";

// The view and its parameters (URLSearchParams) that the address names.
export function readAddress() {
  const [, view, query] = location.hash.match(/^#?([^?]*)(.*)/);
  return { view, parameters: new URLSearchParams(query) };
}

// The link to a view: parameters that are null or empty are left out.
export function linkTo(view, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...parameters, model: chosenModel() })) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `#${view}?${text}` : `#${view}`;
}

// Show these parameters in the address without drawing the view again.
export function rewriteAddress(view, parameters) {
  try {
    history.replaceState(null, "", linkTo(view, parameters));
  } catch {
    // A page inside a notebook has no address of its own.
  }
  window.dispatchEvent(new Event("rewriteaddress"));
}
