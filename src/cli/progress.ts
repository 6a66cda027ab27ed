import type { Progress } from '../prefetch/prefetch.ts';
import type { Terminal } from './with-installation.ts';

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `1.5 MiB` */
export function binaryBytes(bytes: number): string {
  const power = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const amount = bytes / 1024 ** power;
  return `${power === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${units[power]}`;
}

/** One line on a terminal that is updated in place; prints nothing if stderr is not a terminal. */
export class ProgressBar {
  readonly #screen: Terminal['screen'];
  readonly #startedAt = performance.now();

  constructor(screen: Terminal['screen']) {
    this.#screen = screen;
  }

  show({ known, ended, received, waiting }: Progress): void {
    if (!this.#screen?.isTTY) return;
    const width = 24;
    const filled = known === 0 ? 0 : Math.floor((ended / known) * width);
    const seconds = Math.max(0.001, (performance.now() - this.#startedAt) / 1000);
    const rate = waiting ?? `${binaryBytes(received / seconds)}/s`;
    const line = `[${'#'.repeat(filled)}${'.'.repeat(width - filled)}] ${ended}/${known}  ${binaryBytes(received)}  ${rate}`;
    this.#screen.write(`\r${line.slice(0, (this.#screen.columns ?? 80) - 1)}\u001B[K`);
  }

  /** Removes the line. */
  clear(): void {
    if (this.#screen?.isTTY) this.#screen.write('\r\u001B[K');
  }
}
