import { addressKey } from '../limits/address.ts';
import type { AppResponse } from './request-context.ts';

/** Most bytes of answers in memory that their clients have not read. */
const maxBytes = 128 * 2 ** 20;
/** Smaller answers do not count: the operating system takes them at once. */
const minBytes = 64 * 1024;

/** An answer in memory until its client has read it. */
interface Unread {
  address: string;
  memory: object;
  size: number;
}

/**
 * Bounds the memory of answers that clients read slowly. Above the bound, the client address with most unread bytes loses its oldest
 * answers: their connections are closed.
 */
export class UnreadAnswers {
  readonly #max: number;
  readonly #answers = new Map<AppResponse, Unread>();
  /** The number of answers that send the same memory, such as a kept document. */
  readonly #users = new Map<object, number>();
  #size = 0;

  constructor(max = maxBytes) {
    this.#max = max;
  }

  /** Counts the `size` bytes of `memory` until `response` is sent or closed; those of several answers once. */
  add(response: AppResponse, memory: object, size: number): void {
    if (size < minBytes || response.destroyed) return;
    this.#answers.set(response, { address: addressKey(response.context.remote), memory, size });
    const users = this.#users.get(memory) ?? 0;
    this.#users.set(memory, users + 1);
    if (users === 0) this.#size += size;
    response.once('close', () => this.#remove(response));
    while (this.#size > this.#max) this.#endOldest();
  }

  #remove(response: AppResponse): void {
    const answer = this.#answers.get(response);
    if (!answer) return;
    this.#answers.delete(response);
    const users = this.#users.get(answer.memory)! - 1;
    if (users > 0) {
      this.#users.set(answer.memory, users);
      return;
    }
    this.#users.delete(answer.memory);
    this.#size -= answer.size;
  }

  #endOldest(): void {
    const sizes = new Map<string, number>();
    for (const { address, size } of this.#answers.values()) sizes.set(address, (sizes.get(address) ?? 0) + size);
    const most = Math.max(...sizes.values());
    for (const [response, { address }] of this.#answers) {
      if (sizes.get(address) !== most) continue;
      this.#remove(response);
      response.context.failure = {
        code: 'AnswerUnread',
        reason: 'Answers that clients did not read took too much memory, so this one was ended. Read answers faster.',
        upstream: null,
      };
      response.destroy();
      return;
    }
  }
}
