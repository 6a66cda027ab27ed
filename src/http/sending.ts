import type { ServerResponse } from 'node:http';
import { SharedReads } from '../storage/blobs/shared-reads.ts';
import { UnreadAnswers } from './unread-answers.ts';

/** What the answers of one installation share. */
export class Sending {
  readonly reads = new SharedReads();
  readonly unread: UnreadAnswers;
  /** Contents that are being sent piece by piece. */
  streams = 0;
  readonly #endings: [ServerResponse, Buffer | undefined][] = [];

  constructor(unread = new UnreadAnswers()) {
    this.unread = unread;
  }

  /**
   * Ends an answer together with all others of this turn of the event loop. Each write wakes its reader, and writing to a
   * reader that is already awake is much cheaper.
   */
  end(response: ServerResponse, bytes?: Buffer): void {
    if (this.#endings.push([response, bytes]) === 1) setImmediate(() => this.#endAll());
  }

  #endAll(): void {
    for (const [response, bytes] of this.#endings.splice(0)) response.end(bytes);
  }
}
