// The server's answers as plain objects. In a standalone file the answers are in the file itself.

const embedded = document.getElementById("data");
const standalone = embedded ? JSON.parse(embedded.textContent) : null;
let modelName = null;
let modelList = null; // a promise: the list is asked for once

// The data of a standalone file, {inspection, walkthrough}, or null when a server stands behind the page.
export function standaloneData() {
  return standalone;
}

// The name of the model that all requests ask for; null means the server's default.
export function chosenModel() {
  return modelName;
}

export function chooseModel(name) {
  modelName = name;
}

export function fetchModels() {
  modelList ??= standalone ? Promise.resolve([]) : request("v1/models").then((answer) => answer.models);
  return modelList;
}

// The model that answers all requests; undefined if the server does not say, which the shell reports.
export async function fetchModel() {
  const models = await fetchModels().catch(() => []);
  return models.find(({ name }) => name === modelName) ?? models.find((model) => model.default);
}

export async function fetchTranslation(options, signal) {
  return request("v1/translate", options, signal);
}

// The attention of one sentence: options are {text, sentence, without}.
export async function fetchInspection(options, signal) {
  return standalone ? standalone.inspection : request("v1/attention", options, signal);
}

// The walk through one translation: options are {text, layer, head}.
export async function fetchWalkthrough(options, signal) {
  return standalone ? standalone.walkthrough : request("v1/walkthrough", options, signal);
}

export async function fetchRuns(signal) {
  return (await request("v1/runs", null, signal)).runs;
}

export async function fetchRun(name, signal) {
  return request(`v1/runs/${encodeURIComponent(name)}`, null, signal);
}

// Translate sentence by sentence: call onSentence for each as it arrives; return the whole answer.
export async function streamTranslation(options, onSentence, signal) {
  const response = await send("v1/translate", { ...options, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("The server ended the translation early; try again");
    buffer = (buffer + value).replaceAll("\r\n", "\n");
    const events = buffer.split("\n\n");
    buffer = events.pop();
    for (const event of events.map(readEvent)) {
      if (event.name === "sentence") onSentence(event.data);
      if (event.name === "error") throw new Error(event.data.error);
      if (event.name === "done") return event.data;
    }
  }
}

function readEvent(text) {
  const lines = text.split("\n");
  const name = lines.find((line) => line.startsWith("event:"))?.slice(6).trim() ?? "message";
  const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
  return { name, data: data ? JSON.parse(data) : null };
}

async function request(path, body, signal) {
  return (await send(path, body, signal)).json();
}

async function send(path, body, signal) {
  let response;
  try {
    response = await fetch(path, body && {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...body, model: modelName ?? undefined }),
      signal,
    } || { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is transduce serve still running?");
  }
  if (!response.ok) throw new Error(await errorLine(response));
  return response;
}

async function errorLine(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The server answered ${response.status} ${response.statusText}`;
  }
}
