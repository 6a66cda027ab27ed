import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion } from '../hosted/packages.ts';
import { lineAt, malformed, firstLine, type Input } from '../../prefetch/item.ts';
import type { VersionItem } from './package-item.ts';

type Json = Record<string, unknown>;

/** A JSON file. Its errors name the line. */
export class JsonReader {
  readonly root: Json;
  readonly #input: Input;
  #lines: Map<string, number> | undefined;

  constructor(input: Input) {
    this.#input = input;
    let root: unknown;
    try {
      root = JSON.parse(input.text.replace(/^\uFEFF/, ''));
    } catch (error) {
      const { message } = error as Error;
      const position = /at position (\d+)/.exec(message)?.[1];
      const line = lineAt(input.text, position === undefined ? input.text.length : Number(position));
      throw malformed(input.file, line, `not JSON: ${message.split('\n', 1)[0]!.slice(0, 200)}`);
    }
    if (typeof root !== 'object' || root === null || Array.isArray(root)) {
      throw malformed(input.file, 1, 'expected a JSON object');
    }
    this.root = root as Json;
  }

  object(value: unknown, key: string): Json {
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Json;
    throw this.wrong(key, 'expected an object');
  }

  entries(parent: Json, key: string): [string, unknown][] {
    return this.entriesOf(parent[key], key);
  }

  entriesOf(value: unknown, key: string): [string, unknown][] {
    return Object.entries(this.object(value, key));
  }

  pin(id: string, version: unknown, key: string): VersionItem {
    const line = this.#lineOf(id || key);
    const text = typeof version === 'string' ? keyOfVersion(version) : undefined;
    if (!isPackageId(id)) throw malformed(this.#input.file, line, `${firstLine(id)} is not a package id`);
    if (text === undefined) throw malformed(this.#input.file, line, `${id} has no version under ${firstLine(key)}`);
    return { kind: 'package', id, version: text, location: { file: this.#input.file, line } };
  }

  wrong(key: string, reason: string) {
    return malformed(this.#input.file, this.#lineOf(key), `${firstLine(key)}: ${reason}`);
  }

  /** The first line with the key, or with a key such as `id/version` that begins with it; 1 if there is none. */
  #lineOf(key: string): number {
    this.#lines ??= linesOfKeys(this.#input.text);
    return this.#lines.get(key) ?? 1;
  }
}

function linesOfKeys(text: string): Map<string, number> {
  const lines = new Map<string, number>();
  let line = 1;
  for (const [found, key] of text.matchAll(/\n|"((?:[^"\\\n]|\\.)*)"/g)) {
    if (found === '\n') line += 1;
    else if (key !== undefined) {
      for (const each of [key, key.slice(0, Math.max(key.indexOf('/'), 0))])
        if (!lines.has(each)) lines.set(each, line);
    }
  }
  return lines;
}
