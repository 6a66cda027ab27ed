import { addressKey } from '../limits/address.ts';
import type { AppResponse } from './request-context.ts';

/** Most bytes of answers in memory that their clients have not read. */
const maxBytes = 128 * 2 ** 20;
/** Smaller memory does not count: the operating system usually takes it at once. */
const minBytes = 64 * 1024;
/** To end an answer that takes less frees almost nothing: many others send the same memory. */
const minShare = minBytes / 2;

/** An answer in memory until its client has read it. */
interface Unread {
  address: string;
  memory: object;
}

/** Memory that answers send. */
interface Held {
  size: number;
  /** The number of the answers, such as of those that send the same kept document or parts of it. */
  users: number;
}

/** What an address has not read, where answers that send the same memory have equal shares of it. */
interface Client {
  size: number;
  /** The next one to be ended is the last. */
  answers: [response: AppResponse, share: number][];
}

/**
 * Bounds the memory of answers that clients read slowly. Above the bound, the client address with most unread bytes loses its oldest
 * answers, and those that take little, because others send the same memory, only after the others: their connections are closed.
 */
export class UnreadAnswers {
  readonly #max: number;
  readonly #answers = new Map<AppResponse, Unread>();
  readonly #held = new Map<object, Held>();
  #size = 0;

  constructor(max = maxBytes) {
    this.#max = max;
  }

  /** Counts `memory`, which has `size` bytes, until `response` is sent or closed; once for all answers that send it. */
  add(response: AppResponse, memory: object, size: number): void {
    if (size < minBytes || response.destroyed) return;
    this.#answers.set(response, { address: addressKey(response.context.remote), memory });
    const held = this.#held.get(memory);
    if (held) held.users += 1;
    else {
      this.#held.set(memory, { size, users: 1 });
      this.#size += size;
    }
    response.once('close', () => this.#remove(response));
    if (this.#size > this.#max) this.#makeRoom();
  }

  #remove(response: AppResponse): void {
    const answer = this.#answers.get(response);
    if (!answer) return;
    this.#answers.delete(response);
    const held = this.#held.get(answer.memory)!;
    held.users -= 1;
    if (held.users > 0) return;
    this.#held.delete(answer.memory);
    this.#size -= held.size;
  }

  #makeRoom(): void {
    const clients = this.#clients();
    while (this.#size > this.#max) {
      const most = clients.reduce((one, other) => (other.size > one.size ? other : one));
      const [response, share] = most.answers.pop()!;
      most.size = most.answers.length === 0 ? 0 : most.size - share;
      this.#remove(response);
      response.context.failure = {
        code: 'AnswerUnread',
        reason: 'Answers that clients did not read took too much memory, so this one was ended. Read answers faster.',
        upstream: null,
      };
      response.destroy();
    }
  }

  #clients(): Client[] {
    const clients = new Map<string, Client>();
    for (const [response, { address, memory }] of this.#answers) {
      const { size, users } = this.#held.get(memory)!;
      const client = clients.get(address) ?? { size: 0, answers: [] };
      client.size += size / users;
      client.answers.push([response, size / users]);
      clients.set(address, client);
    }
    return [...clients.values()].map(({ size, answers }) => {
      const first = answers.filter(([, share]) => share >= minShare);
      const last = answers.filter(([, share]) => share < minShare);
      return { size, answers: [...first, ...last].toReversed() };
    });
  }
}
