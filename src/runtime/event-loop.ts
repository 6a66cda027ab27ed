import { MessageChannel } from 'node:worker_threads';

/** How long work may last in one turn of the event loop before it pauses; milliseconds. */
const longestTurn = 8;

/** The same for the bytes of bodies that arrive: small requests should not wait for them. */
const longestBodies = 2;

/** Measures the time of work in a turn of the event loop. */
class Turn {
  readonly #longest: number;
  #startedAt: number | undefined;

  constructor(longest = longestTurn) {
    this.#longest = longest;
  }

  /** Whether the work has lasted long in this turn. Begins to measure at the first call in a turn. */
  get isLong(): boolean {
    if (this.#startedAt !== undefined) return performance.now() - this.#startedAt >= this.#longest;
    this.#startedAt = performance.now();
    setImmediate(() => (this.#startedAt = undefined));
    return false;
  }
}

/** That of all work together, that of transactions, and that of the bytes of bodies. */
const [shared, transactions, bodies] = [new Turn(), new Turn(), new Turn(longestBodies)];

/**
 * Call it between two steps of long work: `await pause()`. Resolves at once while this turn of the event loop is short, else
 * in a later turn, so that other requests run in between. A step should take less than 10 ms.
 */
export function pause(): Promise<void> | undefined {
  return shared.isLong ? later() : undefined;
}

/**
 * As `pause`, for the steps of transactions, for which all other writers wait: pauses only if transactions themselves have lasted
 * long in this turn, and continues before other work.
 */
export function pauseTransaction(): Promise<void> | undefined {
  return transactions.isLong ? later(true) : undefined;
}

/** As `pause`, between two pieces of bodies that arrive: pauses earlier, if bodies themselves have lasted long in this turn. */
export function pauseBody(): Promise<void> | undefined {
  return bodies.isLong ? later() : undefined;
}

/** The same items, with pauses between them. */
export async function* withPauses<T>(items: Iterable<T>): AsyncGenerator<T> {
  for (const item of items) {
    const pausing = pause();
    if (pausing) await pausing;
    yield item;
  }
}

// Work that pauses continues in the phase of the event loop in which Node also handles requests, after a message. After a plain
// `setImmediate`, a value that was read "in this turn" would also be used for requests that arrive later (see `versions` of SQLite).

const waiting: (() => void)[] = [];
const { port1: receiver, port2: sender } = new MessageChannel();
/** That of work which continues after a pause. */
const continued = new Turn();
/** Whether a message is under way, or about to be sent. */
let isAwaited = false;

// One after another, so that all that wait together do not make one long turn. At least one continues in each turn.
receiver.on('message', () => {
  if (continued.isLong) {
    setImmediate(send);
    return;
  }
  waiting.shift()!();
  if (waiting.length > 0) {
    send();
    return;
  }
  isAwaited = false;
  receiver.unref();
});
// Only work that waits keeps the process running.
receiver.unref();

function send(): void {
  sender.postMessage(null);
}

/** Resolves in a later turn of the event loop; if it is `urgent`, before others that wait. */
function later(urgent = false): Promise<void> {
  return new Promise((resolve) => {
    if (urgent) waiting.unshift(resolve);
    else waiting.push(resolve);
    if (isAwaited) return;
    isAwaited = true;
    receiver.ref();
    setImmediate(send);
  });
}
