import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';

/** A write of at most this many bytes to a pipe is atomic, also when other processes write to it (PIPE_BUF). */
const atomicBytes = 4096;
/** Most bytes of lines that wait for an output which takes no more. Further lines are dropped. */
const maxWaiting = 4 * 2 ** 20;
/** The first and the longest pause before a failed write is repeated; milliseconds. */
const firstPause = 1;
const maxPause = 100;
/** How long the end of the process waits for an output that is full; milliseconds. */
const lastWait = 200;

interface Piece {
  bytes: Buffer;
  lines: number;
}

/**
 * Lines for a file descriptor: a file, pipe, terminal or socket. A write never blocks and never throws: while the output
 * is full, slow or broken, lines wait in memory up to a bound, and further lines are dropped and counted. Lines of one turn
 * of the event loop are written together.
 */
export class LogOutput {
  readonly #fd: number;
  /** Called when writing works again, with the number of lines that were dropped. */
  readonly #onResumed: (lines: number) => void;
  /** Lines of this turn of the event loop. */
  #text = '';
  #textBytes = 0;
  #textLines = 0;
  #waiting: Piece[] = [];
  #waitingBytes = 0;
  #dropped = 0;
  #unreported = 0;
  #pause = firstPause;
  #timer: NodeJS.Timeout | undefined;

  constructor(fd: number, onResumed: (lines: number) => void) {
    this.#fd = withoutBlocking(fd);
    this.#onResumed = onResumed;
  }

  /** Number of lines that were dropped since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  /** `line` ends with a line break. */
  write(line: string): void {
    const bytes = Buffer.byteLength(line);
    if (this.#textBytes + bytes > atomicBytes) this.#endTurn();
    if (this.#textLines === 0) setImmediate(() => this.#endTurn());
    this.#text += line;
    this.#textBytes += bytes;
    this.#textLines += 1;
  }

  /** Writes the last lines before the process ends. Waits a short time for an output that is full. */
  end(): void {
    this.#endTurn();
    clearTimeout(this.#timer);
    const pause = new Int32Array(new SharedArrayBuffer(4));
    const deadline = performance.now() + lastWait;
    while (!this.#writeWaiting() && performance.now() < deadline) Atomics.wait(pause, 0, 0, 5);
  }

  #endTurn(): void {
    if (this.#textLines === 0) return;
    const piece = { bytes: Buffer.from(this.#text), lines: this.#textLines };
    this.#text = '';
    this.#textBytes = 0;
    this.#textLines = 0;
    const isFull = this.#waitingBytes > 0 && this.#waitingBytes + piece.bytes.length > maxWaiting;
    if (isFull) {
      this.#dropped += piece.lines;
      this.#unreported += piece.lines;
      return;
    }
    this.#waiting.push(piece);
    this.#waitingBytes += piece.bytes.length;
    if (!this.#timer) this.#attempt();
  }

  #attempt(): void {
    this.#timer = undefined;
    if (!this.#writeWaiting()) {
      this.#timer = setTimeout(() => this.#attempt(), this.#pause).unref();
      this.#pause = Math.min(maxPause, this.#pause * 2);
      return;
    }
    this.#pause = firstPause;
    const lines = this.#unreported;
    this.#unreported = 0;
    if (lines > 0) this.#onResumed(lines);
  }

  /** Writes what waits; returns whether all of it is written. */
  #writeWaiting(): boolean {
    let done = 0;
    try {
      for (const piece of this.#waiting) {
        const written = writeSync(this.#fd, piece.bytes);
        this.#waitingBytes -= written;
        if (written < piece.bytes.length) {
          piece.bytes = piece.bytes.subarray(written);
          return false;
        }
        done += 1;
      }
      return true;
    } catch {
      // The output is full (EAGAIN, ENOSPC), broken (EPIPE) or failing (EIO). The log is the only place to report it.
      return false;
    } finally {
      this.#waiting.splice(0, done);
      if (done > 0) this.#pause = firstPause;
    }
  }
}

/** Sockets that only hold a mode. Not collected, because that would close their descriptors. */
const held: Socket[] = [];

/**
 * A descriptor of the same output whose writes fail with EAGAIN instead of blocking. Writes to a regular file do not block,
 * and a second descriptor of it would have a position of its own, so it is used as it is.
 */
function withoutBlocking(fd: number): number {
  const stat = fstatSync(fd);
  if (stat.isFile()) return fd;
  try {
    // Opened again, so that other processes that have this pipe or terminal keep their mode.
    return openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch {
    // A socket cannot be opened again, and not every system has /proc. Node makes the descriptor of a Socket non-blocking.
    if (stat.isSocket() || stat.isFIFO()) held.push(new Socket({ fd, readable: false, writable: true }).unref());
    return fd;
  }
}
