import { readFile, writeFile } from 'node:fs/promises';
import type { ExecutionContext } from 'ava';

/** Compares what commands printed with a file, by lines. With `ENTREPOT_TEST_SHOWN=write`, writes the file before. */
export async function comparePrinted(t: ExecutionContext, file: string, printed: readonly string[]): Promise<void> {
  const text = printed.join('\n');
  if (process.env['ENTREPOT_TEST_SHOWN'] === 'write') await writeFile(file, text);
  t.deepEqual(text.split('\n'), (await readFile(file, 'utf8')).split('\n'));
}

/** Names for what differs in each run: the same name for the same value. */
export class Mask {
  readonly #folder: string;
  readonly #known = new Map<string, string>();

  /** `folder` holds all files of the test. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  of(text: string): string {
    return text
      .replaceAll(`${this.#folder}/`, '')
      .replaceAll(/sha256:[0-9a-f]{64}/g, (each) => this.#named('digest', each.slice(7, 23)))
      .replaceAll(/\b[0-9a-f]{64}\b/g, (each) => this.#named('key', each.slice(0, 16)))
      .replaceAll(/\b[0-9a-f]{16}\b/g, (each) => `${this.#named('key', each)}…`)
      .replaceAll(/\b[0-9a-f]{8}-[0-9a-f-]{27}\b/g, (each) => this.#named('id', each))
      .replaceAll(/\bent_[\w-]+/g, (each) => this.#named('token', each))
      .replaceAll(/"(payload|sig)":"[^"]*"/g, '"$1":"…"')
      .replaceAll(/-----BEGIN PUBLIC KEY-----[^-]*-----END PUBLIC KEY-----/g, 'PEM')
      .replaceAll(/127\.0\.0\.1:\d+/g, 'upstream')
      .replaceAll(/\b20\d\d-\d\d-\d\dT[\d:.]+Z/g, (each) => {
        const days = Math.round((Date.parse(each) - Date.now()) / 86_400_000);
        return days === 0 ? 'NOW' : `NOW${days > 0 ? '+' : ''}${days}d`;
      });
  }

  #named(kind: string, value: string): string {
    const known = this.#known.get(value);
    if (known !== undefined) return known;
    const count = [...this.#known.values()].filter((each) => each.startsWith(`${kind}-`)).length;
    const name = `${kind}-${count + 1}`;
    this.#known.set(value, name);
    return name;
  }
}
