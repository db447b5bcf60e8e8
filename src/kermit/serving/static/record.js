// The record of a decode, as sent by the service: the canvas after each round, and the insertion tree.
//
// A record has `start` and `start_text`, the given tokens by side, `open_slots`, and `rounds`, the insertions of each.
// Slot k is left of token k of `[CLS] x [SEP] y [SEP]` before the round.

/** The whole row after some rounds, frame tokens included. */
export function rowAfter(record, rounds = record.rounds.length) {
  let row = [{ side: 0, frame: true, round: 0 }];
  record.start_text.forEach((texts, side) => {
    row.push(...texts.map((text) => ({ side, text, round: 0 })), { side, frame: true, round: 0 });
  });
  record.rounds.slice(0, rounds).forEach((insertions, index) => {
    const coming = new Map(insertions.map((insertion) => [insertion.slot, insertion]));
    row = row.flatMap((token, slot) => {
      const found = coming.get(slot);
      if (found === undefined) return [token];
      const { text, token_id: tokenId, log_prob: logProb } = found;
      return [{ side: token.side, text, tokenId, logProb, slot, round: index + 1 }, token];
    });
  });
  return row;
}

/** The tokens of one side after some rounds. */
export function tokensAfter(record, side, rounds) {
  return rowAfter(record, rounds).filter((token) => token.side === side && !token.frame);
}

/** Whether anything may be inserted into a side. */
export function isOpen(record, side) {
  const end = record.start[0].length + 1; // the slot left of the first [SEP]
  return record.open_slots.some((slot) => (slot <= end ? 0 : 1) === side);
}

/** Number of inserted tokens. */
export function inserted(record) {
  return record.rounds.reduce((sum, insertions) => sum + insertions.length, 0);
}

/** The place of each token's parent in the row, or null; the parent is the newer of the two original neighbours. */
export function parents(row) {
  return row.map((token, place) => {
    if (token.round === 0) return null;
    const older = (step) => {
      let at = place + step;
      while (row[at].round >= token.round) at += step;
      return at;
    };
    const [left, right] = [older(-1), older(1)];
    const newer = row[left].round > row[right].round ? left : right;
    return row[newer].round > 0 ? newer : null;
  });
}

/** A token for display: white space and partial characters become visible. */
export function visible(text) {
  const bare = text.trim();
  return bare === "" ? "␣" : bare.replaceAll("\uFFFD", "·");
}

/** The white space before a token. */
export function spaceBefore(text) {
  return text.slice(0, text.length - text.trimStart().length);
}

/** A probability in percent. */
export function percent(logProb) {
  const value = 100 * Math.exp(logProb);
  return value >= 99.95 ? "100 %" : value < 0.1 ? "under 0.1 %" : `${value.toFixed(1)} %`;
}
