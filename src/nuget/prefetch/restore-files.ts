import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion } from '../hosted/packages.ts';
import { parseRange } from '../format/range.ts';
import { versionKey } from '../format/version.ts';
import { lineAt, malformed, quoted, type Input } from '../../prefetch/requirement.ts';
import type { VersionRequirement } from './requirement.ts';

// Files that a restore writes: every package with its exact version.

type Json = Record<string, unknown>;

/** `packages.lock.json`. https://learn.microsoft.com/nuget/consume-packages/package-references-in-project-files#locking-dependencies */
export function readLockFile(input: Input): VersionRequirement[] {
  const reader = new JsonReader(input);
  const { root } = reader;
  if (root['version'] !== 1 && root['version'] !== 2) throw reader.wrong('version', 'expected 1 or 2');
  const requirements: VersionRequirement[] = [];
  for (const [framework, packages] of reader.entries(root, 'dependencies')) {
    for (const [id, entry] of reader.entriesOf(packages, framework)) {
      const { type, resolved } = reader.object(entry, id);
      if (type === 'Project') continue;
      requirements.push(reader.pin(id, resolved, 'resolved'));
    }
  }
  return requirements;
}

/** `project.assets.json`: the libraries, and the packs that the SDK downloads besides them (runtime, targeting). */
export function readAssetsFile(input: Input): VersionRequirement[] {
  const reader = new JsonReader(input);
  const { root } = reader;
  if (root['version'] !== 2 && root['version'] !== 3 && root['version'] !== 4) {
    throw reader.wrong('version', 'expected 2, 3 or 4');
  }
  const requirements: VersionRequirement[] = [];
  for (const [name, entry] of reader.entries(root, 'libraries')) {
    if (reader.object(entry, name)['type'] !== 'package') continue;
    const slash = name.indexOf('/');
    requirements.push(reader.pin(name.slice(0, Math.max(slash, 0)), name.slice(slash + 1), name));
  }
  const project = root['project'] === undefined ? {} : reader.object(root['project'], 'project');
  if (project['frameworks'] === undefined) return requirements;
  for (const [framework, entry] of reader.entries(project, 'frameworks')) {
    const { downloadDependencies: list = [] } = reader.object(entry, framework);
    if (!Array.isArray(list)) throw reader.wrong('downloadDependencies', 'expected a list');
    for (const each of list as unknown[]) {
      const { name, version } = reader.object(each, 'downloadDependencies');
      if (typeof name !== 'string') throw reader.wrong('downloadDependencies', 'expected a "name"');
      const range = typeof version === 'string' ? parseRange(version) : undefined;
      if (!range?.min) throw reader.wrong(name, 'expected a "version" such as [8.0.0, 8.0.0]');
      requirements.push(reader.pin(name, versionKey(range.min), name));
    }
  }
  return requirements;
}

/** A JSON file. Its errors name the line. */
class JsonReader {
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

  pin(id: string, version: unknown, key: string): VersionRequirement {
    const line = this.#lineOf(id || key);
    const text = typeof version === 'string' ? keyOfVersion(version) : undefined;
    if (!isPackageId(id)) throw malformed(this.#input.file, line, `${quoted(id)} is not a package id`);
    if (text === undefined) throw malformed(this.#input.file, line, `${id} has no version under ${quoted(key)}`);
    return { kind: 'package', id, version: text, location: { file: this.#input.file, line } };
  }

  wrong(key: string, reason: string) {
    return malformed(this.#input.file, this.#lineOf(key), `${quoted(key)}: ${reason}`);
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
