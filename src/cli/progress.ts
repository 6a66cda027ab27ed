import type { Terminal } from './with-installation.ts';

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `1.5 MiB` */
export function binaryBytes(bytes: number): string {
  const power = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const amount = bytes / 1024 ** power;
  return `${power === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${units[power]}`;
}

interface ShownProgress {
  /** Number of things that are known so far, and of those that are done. */
  known: number;
  ended: number;
  /** Bytes that came. */
  received: number;
  /** Why the work waits. */
  waiting?: string | undefined;
}

/** One line on a terminal that is updated in place; prints nothing if stderr is not a terminal. */
export class ProgressBar {
  readonly #screen: Terminal['screen'];
  readonly #startedAt = performance.now();
  #shownAt = 0;

  constructor(screen: Terminal['screen']) {
    this.#screen = screen;
  }

  show({ known, ended, received, waiting }: ShownProgress): void {
    if (!this.#screen?.isTTY) return;
    const seconds = Math.max(0.001, (performance.now() - this.#startedAt) / 1000);
    const rate = waiting ?? `${binaryBytes(received / seconds)}/s`;
    this.#write(known === 0 ? 0 : ended / known, `${ended}/${known}  ${binaryBytes(received)}  ${rate}`);
  }

  /** Shows how many bytes are done. */
  bytes(done: number, of: number): void {
    if (!this.#screen?.isTTY) return;
    const now = performance.now();
    if (done < of && now - this.#shownAt < 200) return;
    this.#shownAt = now;
    const seconds = Math.max(0.001, (now - this.#startedAt) / 1000);
    this.#write(
      of === 0 ? 1 : done / of,
      `${binaryBytes(done)} of ${binaryBytes(of)}  ${binaryBytes(done / seconds)}/s`,
    );
  }

  #write(share: number, text: string): void {
    const width = 24;
    const filled = Math.floor(share * width);
    const line = `[${'#'.repeat(filled)}${'.'.repeat(width - filled)}] ${text}`;
    this.#screen!.write(`\r${line.slice(0, (this.#screen!.columns ?? 80) - 1)}\u001B[K`);
  }

  /** Removes the line. */
  clear(): void {
    if (this.#screen?.isTTY) this.#screen.write('\r\u001B[K');
  }
}
