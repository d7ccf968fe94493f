// Equation 1 and the softmax of the output. Tables are flat arrays, row after row.

// The dot products of all queries and keys, vectors of `width` numbers.
export function dotProducts(queries, keys, width) {
  const scores = [];
  for (let q = 0; q < queries.length; q += width) {
    for (let k = 0; k < keys.length; k += width) {
      let sum = 0;
      for (let i = 0; i < width; i += 1) sum += queries[q + i] * keys[k + i];
      scores.push(sum);
    }
  }
  return scores;
}

// The softmax of each row of scores / divisor; the weight is 0 where `allowed` is.
export function softmaxRows(scores, columns, divisor, allowed = null) {
  const weights = new Array(scores.length).fill(0);
  for (let start = 0; start < scores.length; start += columns) {
    const open = [];
    for (let i = start; i < start + columns; i += 1) if (!allowed || allowed[i]) open.push(i);
    // Subtract the largest score, so that no exponential overflows.
    const largest = Math.max(...open.map((i) => scores[i]));
    let total = 0;
    for (const i of open) total += weights[i] = Math.exp((scores[i] - largest) / divisor);
    for (const i of open) weights[i] /= total;
  }
  return weights;
}

// The mean of the values, vectors of `width` numbers, by a row of weights.
export function weightedSum(weights, values, width) {
  const sum = new Array(width).fill(0);
  values.forEach((value, place) => { sum[place % width] += weights[Math.floor(place / width)] * value; });
  return sum;
}

// The entropy of a distribution, in nats.
export function entropyOf(shares) {
  return shares.reduce((sum, share) => (share > 0 ? sum - share * Math.log(share) : sum), 0);
}

// The probabilities of the best tokens, then of all others together. `others` is the logarithm of their sum of
// exp(logit / temperature).
export function temperedSoftmax(logits, others, temperature) {
  return softmaxRows([...logits.map((logit) => logit / temperature), others], logits.length + 1, 1);
}
