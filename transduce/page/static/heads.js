// The heads of an inspection: their names, their measures, and what each kind of attention is for.

// Measures of a head: their titles and how their numbers are written.
export const MEASURES = {
  distance: ["Distance", (value) => `${value.toFixed(1)} tokens`],
  entropy: ["Entropy", (value) => `${value.toFixed(2)} nats`],
  previous: ["On the previous word", asShare],
  same: ["On the same word", asShare],
  next: ["On the next word", asShare],
  punctuation: ["On punctuation", asShare],
  end: ["On the end or start", asShare],
  aligned: ["On the aligned word", asShare],
};
// Titles of the rows and columns of each kind, and what it does.
export const EXPLAINED = {
  encoder: ["word", "attends to", "Self-attention of the encoder: how each source word gathers its context."],
  decoder: ["next word", "attends to", "Masked self-attention of the decoder: how the translation looks back at itself. A row is the word that is about to be written."],
  cross: ["next word", "attends to", "Encoder-decoder attention: where in the source the decoder looks as it writes each word."],
};

function asShare(value) {
  return `${Math.round(value * 100)} %`;
}

export function allHeads(view) {
  const { layers, heads } = view.attention[view.kind];
  return Array.from({ length: layers * heads }, (_, place) => {
    const layer = Math.floor(place / heads) + 1;
    const head = (place % heads) + 1;
    return { layer, head, name: `${view.kind}.${layer}.${head}` };
  });
}

export function measuresOf(view, name) {
  return view.inspection.measures.find((measure) => measure.head === name) ?? {};
}
