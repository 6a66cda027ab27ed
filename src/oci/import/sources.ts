import type { ComparedName, ComparingOptions, ImportGroup, ImportOptions, ImportSource } from '../../import/item.ts';
import type { ExportOptions, ExportTarget } from '../../import/target.ts';
import { layoutOrArchive, registryFolder } from './files-origin.ts';
import { HarborOrigin } from './harbor-origin.ts';
import { ImageExport } from './image-export.ts';
import { ImageImport, type ImageImportParts } from './image-import.ts';
import { RegistryOrigin } from './registry-origin.ts';

/** The images of a source, to be brought in as hosted content. */
export function importImages(
  parts: ImageImportParts & { manifestLimit: number },
  source: ImportSource,
  options: ImportOptions,
): readonly AsyncIterable<ImportGroup>[] {
  return [groupsOf(parts, source, options)];
}

async function* groupsOf(
  parts: ImageImportParts & { manifestLimit: number },
  source: ImportSource,
  options: ImportOptions,
): AsyncGenerator<ImportGroup> {
  const { manifestLimit } = parts;
  if (source.type === 'server') {
    if (source.remote.config.kind !== 'registry') return;
    const { signal, warn } = options;
    const registry = new RegistryOrigin(source.remote, manifestLimit, signal);
    const origin = source.harbor ? new HarborOrigin({ api: source.harbor, registry, signal, warn }) : registry;
    yield* new ImageImport(parts, origin, options).groups();
    return;
  }
  const origin =
    (await registryFolder(source.files, manifestLimit)) ??
    (await layoutOrArchive(source.files, options.name, manifestLimit));
  if (origin) yield* new ImageImport(parts, origin, options).groups();
}

/** The images of an account, to be pushed to a registry. */
export function exportImages(
  parts: ConstructorParameters<typeof ImageExport>[0],
  target: ExportTarget,
  options: ExportOptions,
): readonly AsyncIterable<ImportGroup>[] {
  return target.remote.config.kind === 'registry' ? [new ImageExport(parts, target, options).groups()] : [];
}

/** The images of a registry beside those here. */
export function compareImages(
  parts: ImageImportParts & { manifestLimit: number },
  source: ImportSource,
  options: ImportOptions,
  { withUpstreams }: ComparingOptions,
): readonly AsyncIterable<ComparedName>[] {
  if (source.type === 'folder' || source.remote.config.kind !== 'registry') return [];
  const origin = new RegistryOrigin(source.remote, parts.manifestLimit, options.signal);
  return [new ImageImport(parts, origin, options).compared(withUpstreams)];
}
