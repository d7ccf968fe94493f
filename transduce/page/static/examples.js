// Example sentences, by the language that a model reads.

import { fetchModel } from "./api.js";
import { languageName } from "./words.js";

// Two sentences differ in a choice of words; in both, a pronoun could stand for more than one noun. Those in English are
// from the blog post about the paper; in German, "sie" is "she" for the woman and "it" for the cat. A third is different.
const EXAMPLES = {
  en: {
    pronoun: "it", nouns: ["animal", "street"], choices: ["too tired.", "too wide."],
    before: "The animal didn't cross the street because it was ", after: "", other: "Attention is all you need.",
  },
  de: {
    pronoun: "sie", nouns: ["Frau", "Katze", "Straße"], choices: ["Die Frau", "Die Katze"],
    before: "", after: " überquerte die Straße nicht, weil sie zu müde war.", other: "Die Tür stand offen. Niemand war zu Hause.",
  },
};

// The examples of a language as parts; undefined if there are none. A region makes no difference.
export function riddleIn(language) {
  return EXAMPLES[language?.split(/[-_]/)[0].toLowerCase()];
}

export function examplesIn(language) {
  const riddle = riddleIn(language);
  return riddle ? [...riddle.choices.map((words) => riddle.before + words + riddle.after), riddle.other] : [];
}

// An example gives way to the one of another language, or to none; every other text stays.
export function textFor(language, text) {
  const known = Object.keys(EXAMPLES).map(examplesIn).find((sentences) => sentences.includes(text));
  return known ? examplesIn(language)[known.indexOf(text)] : text;
}

// Ask in an empty field for a sentence in the language that the model reads; return this language.
export async function askForSentence(input) {
  const language = (await fetchModel())?.source_language;
  input.lang = language ?? "";
  input.placeholder = `A sentence in ${languageName(language) || "the language of the model"}`;
  return language;
}
