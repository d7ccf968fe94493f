// Words in texts: where they stand, how sure the model was of them, and what two texts share.

// Where each word stands in a text, as [start, end]. A word that is not found is empty.
export function locateWords(text, words) {
  let position = 0;
  return words.map((word) => {
    const start = text.indexOf(word, position);
    if (start < 0) return [position, position];
    position = start + word.length;
    return [start, position];
  });
}

// The lowest probability of the tokens that a word consists of, for each span of locateWords.
export function wordConfidences(text, spans, tokens) {
  const lowest = spans.map(() => 1);
  let position = 0;
  for (const token of tokens) {
    const letters = token.text.replaceAll("\u2581", " ").trim();
    const start = letters ? text.indexOf(letters, position) : -1;
    if (start < 0 || text.slice(position, start).trim()) continue; // a byte, or the end of the sentence
    position = start + letters.length;
    spans.forEach(([from, to], word) => {
      if (from < position && start < to) lowest[word] = Math.min(lowest[word], token.probability);
    });
  }
  return lowest;
}

// How a token is shown: the end of the sentence by its name, and a lone space by a sign.
export function tokenName(text) {
  return text === "</s>" ? "‹end›" : text.replaceAll("\u2581", " ").trim() || "␣";
}

// For each word of two lists, whether it belongs to their longest common subsequence.
export function sharedWords(first, second) {
  const lengths = Array.from({ length: first.length + 1 }, () => new Uint16Array(second.length + 1));
  for (let i = first.length - 1; i >= 0; i -= 1) {
    for (let j = second.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = first[i] === second[j]
        ? lengths[i + 1][j + 1] + 1
        : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const shared = [first.map(() => false), second.map(() => false)];
  for (let i = 0, j = 0; i < first.length && j < second.length;) {
    if (first[i] === second[j]) {
      shared[0][i] = true;
      shared[1][j] = true;
      i += 1;
      j += 1;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return shared;
}

// The name of a language in English; a code that is unknown stands for itself.
export function languageName(code) {
  if (!code) return "";
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}
