/** The most milliseconds that one turn of the event loop may take: see SECURITY.md. */
export const longestAllowed = 50;

/**
 * The processor time that the longest turn of this process's event loop took while `work` ran, in milliseconds. That is how long
 * one request holds all others. A collection of garbage may fall into one run, and a busy machine makes each slower: so
 * `work` runs until a result is allowed, at most ten times, and the least result counts. A client in the same process counts
 * too, so `work` should send bytes that were made before, by `inParts` if they are many.
 */
export async function longestTurn(work: () => Promise<unknown>): Promise<number> {
  let least = Infinity;
  for (let run = 0; run < 10 && least >= longestAllowed; run += 1) least = Math.min(least, await longestTurnOf(work));
  return least;
}

/** `bytes` as a stream. `fetch` would copy them at once. */
export function inParts(bytes: Buffer): ReadableStream<Buffer> {
  const size = 64 * 1024;
  return ReadableStream.from(
    Array.from({ length: Math.ceil(bytes.length / size) }, (_, part) => bytes.subarray(part * size, (part + 1) * size)),
  );
}

/** As above, but in one run, for work that cannot be repeated. */
export async function longestTurnOf(work: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let last = threadTime();
  let running = true;
  const endTurn = () => {
    const now = threadTime();
    longest = Math.max(longest, now - last);
    last = now;
    if (running) setImmediate(endTurn);
  };
  setImmediate(endTurn);
  try {
    await work();
    // The last turn of `work` has not ended yet.
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  } finally {
    running = false;
  }
  return longest;
}

function threadTime(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
