import { parseRange } from '../format/range.ts';
import { versionKey } from '../format/version.ts';
import type { Input } from '../../prefetch/item.ts';
import { JsonReader } from './json-reader.ts';
import type { VersionItem } from './package-item.ts';

// Files that a restore writes: every package with its exact version.

/** `packages.lock.json`. https://learn.microsoft.com/nuget/consume-packages/package-references-in-project-files#locking-dependencies */
export function readLockFile(input: Input): VersionItem[] {
  const reader = new JsonReader(input);
  const { root } = reader;
  if (root['version'] !== 1 && root['version'] !== 2) throw reader.wrong('version', 'expected 1 or 2');
  const items: VersionItem[] = [];
  for (const [framework, packages] of reader.entries(root, 'dependencies')) {
    for (const [id, entry] of reader.entriesOf(packages, framework)) {
      const { type, resolved } = reader.object(entry, id);
      if (type === 'Project') continue;
      items.push(reader.pin(id, resolved, 'resolved'));
    }
  }
  return items;
}

/** `project.assets.json`: the libraries, and the packs that the SDK downloads besides them (runtime, targeting). */
export function readAssetsFile(input: Input): VersionItem[] {
  const reader = new JsonReader(input);
  const { root } = reader;
  if (root['version'] !== 2 && root['version'] !== 3 && root['version'] !== 4) {
    throw reader.wrong('version', 'expected 2, 3 or 4');
  }
  const items: VersionItem[] = [];
  for (const [name, entry] of reader.entries(root, 'libraries')) {
    if (reader.object(entry, name)['type'] !== 'package') continue;
    const slash = name.indexOf('/');
    items.push(reader.pin(name.slice(0, Math.max(slash, 0)), name.slice(slash + 1), name));
  }
  const project = root['project'] === undefined ? {} : reader.object(root['project'], 'project');
  if (project['frameworks'] === undefined) return items;
  for (const [framework, entry] of reader.entries(project, 'frameworks')) {
    const { downloadDependencies: list = [] } = reader.object(entry, framework);
    if (!Array.isArray(list)) throw reader.wrong('downloadDependencies', 'expected a list');
    for (const each of list as unknown[]) {
      const { name, version } = reader.object(each, 'downloadDependencies');
      if (typeof name !== 'string') throw reader.wrong('downloadDependencies', 'expected a "name"');
      const range = typeof version === 'string' ? parseRange(version) : undefined;
      if (!range?.min) throw reader.wrong(name, 'expected a "version" such as [8.0.0, 8.0.0]');
      items.push(reader.pin(name, versionKey(range.min), name));
    }
  }
  return items;
}
