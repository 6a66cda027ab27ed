import { fillFrom } from '../../import/fill.ts';
import type { ImportGroup, ImportItem, ImportOptions, ImportSource } from '../../import/item.ts';
import type { PlainFile } from '../../prefetch/plain.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { digestOfContent } from '../../storage/files/content.ts';
import { readIdentity } from '../format/nupkg.ts';
import { versionKey } from '../format/version.ts';
import { packageKey } from '../hosted/packages.ts';
import { versionsOfBagetter } from './bagetter.ts';
import type { PackageImport } from './packages.ts';

type Folder = Extract<ImportSource, { type: 'folder' }>;

/** A file, and what its nuspec says it is. */
interface FoundPackage {
  file: PlainFile;
  name: string;
  version: string;
}

/**
 * The packages in a folder, then their symbols. A file is what its nuspec says, whatever its name is. The time of the file is the
 * date, unless the database of BaGetter is there, which also says what is listed and was downloaded.
 */
export function packagesInFolder(
  into: PackageImport,
  { files: { files, path }, from }: Folder,
  options: ImportOptions,
  limit: number,
): AsyncIterable<ImportGroup>[] {
  const contentOf = (file: PlainFile) => ({
    size: file.size,
    digest: async () => digestOfContent(await file.open()),
    fill: async (staged: Parameters<typeof fillFrom>[0]) => fillFrom(staged, await file.open(), limit),
  });
  const known = versionsOfBagetter({ files, path });
  known.catch(() => undefined);
  const packages = groupsOf(files, /(?<!\.symbols)\.nupkg$/i, options, async function* (id, found) {
    const versions = (await known)?.get(id);
    const tells = found.map(({ version }) => versions?.get(version));
    // Also if it is not known now where the package belongs: these versions have files.
    for (const { version } of found) versions?.delete(version);
    const place = await into.decide(
      id,
      found.map(({ version }) => version),
    );
    for (const [at, { file, name, version }] of found.entries()) {
      const told = tells[at];
      const publishedAt = told?.publishedAt ?? file.changedAt;
      if (isOld(publishedAt, options)) continue;
      const { listed = true, downloads = 0 } = told ?? {};
      const earlier = { publishedAt, listed, downloads, deprecation: undefined };
      const offered = { from, id, version, tellsState: told !== undefined, ...earlier, ...contentOf(file) };
      yield { name, reference: version, run: () => into.version(offered, place) };
    }
  });
  const lost = fileless(known, options);
  const symbols = groupsOf(files, /\.snupkg$/i, options, async function* (id, found) {
    for (const { file, name, version } of found)
      if (!isOld(file.changedAt, options))
        yield { name, reference: `${version} symbols`, run: () => into.symbols(id, version, contentOf(file)) };
  });
  return [packages, lost, symbols];
}

/** The files that match, by the id that they have. */
async function* groupsOf(
  files: Folder['files']['files'],
  pattern: RegExp,
  { isWanted, names, signal }: ImportOptions,
  items: (id: string, found: readonly FoundPackage[]) => AsyncIterable<ImportItem>,
): AsyncGenerator<ImportGroup> {
  const listed = names && new Set(names.map(packageKey));
  const byId = new Map<string, FoundPackage[]>();
  for (const [path, file] of files) {
    if (signal.aborted) return;
    if (!pattern.test(path)) continue;
    await pause();
    try {
      const { nuspec, version } = await readIdentity(() => file.open());
      const id = packageKey(nuspec.id);
      if (!isWanted(id) || (listed && !listed.has(id))) continue;
      const found = { file, name: nuspec.id, version: versionKey(version) };
      const same = byId.get(id);
      if (same) same.push(found);
      else byId.set(id, [found]);
    } catch (error) {
      const item = { name: path, reference: '', run: () => Promise.reject(error) };
      yield { name: path, items: () => only(item) };
    }
  }
  for (const [id, found] of byId) yield { name: found[0]!.name, items: () => items(id, found) };
}

/** What the database lists and no file has, after all files were read. */
async function* fileless(
  known: ReturnType<typeof versionsOfBagetter>,
  { isWanted, names }: ImportOptions,
): AsyncGenerator<ImportGroup> {
  const listed = names && new Set(names.map(packageKey));
  for (const [id, versions] of (await known) ?? []) {
    if (!isWanted(id) || (listed && !listed.has(id))) continue;
    for (const [version, { name }] of versions) {
      const missing = new DomainError('NotFound', 'The database lists this version, and its file is missing.');
      const item = { name, reference: version, run: () => Promise.reject(missing) };
      yield { name, items: () => only(item) };
    }
  }
}

function isOld(time: number | undefined, { since }: ImportOptions): boolean {
  return since !== undefined && time !== undefined && time < since;
}

async function* only(item: ImportItem): AsyncGenerator<ImportItem> {
  yield item;
}
