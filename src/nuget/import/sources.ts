import type { ComparedName, ComparingOptions, ImportGroup, ImportOptions, ImportSource } from '../../import/item.ts';
import type { ExportOptions, ExportTarget } from '../../import/target.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import type { FeedViews } from '../upstream/feed-view.ts';
import { packagesCompared, packagesInFeed } from './feed.ts';
import { packagesInFolder } from './folder.ts';
import { PackageExport } from './package-export.ts';
import { PackageImport } from './packages.ts';

/** The packages of a source, to be brought in as hosted content. */
export function importPackages(
  { feed, views }: { feed: FeedContext; views: FeedViews },
  source: ImportSource,
  options: ImportOptions,
): readonly AsyncIterable<ImportGroup>[] {
  const into = new PackageImport(feed, views, options);
  const { nupkg: limit } = feed.limits;
  if (source.type === 'folder') return packagesInFolder(into, source, options, limit);
  return source.remote.config.kind === 'nuget' ? [packagesInFeed(into, source, options, limit)] : [];
}

/** The packages of an account, to be pushed to a feed. */
export function exportPackages(
  context: FeedContext,
  target: ExportTarget,
  options: ExportOptions,
): readonly AsyncIterable<ImportGroup>[] {
  if (target.remote.config.kind !== 'nuget') return [];
  return [new PackageExport(context, target, options).groups()];
}

/** The packages of a feed beside those here. */
export function comparePackages(
  { feed, views }: { feed: FeedContext; views: FeedViews },
  source: ImportSource,
  options: ImportOptions,
  how: ComparingOptions,
): readonly AsyncIterable<ComparedName>[] {
  if (source.type === 'folder' || source.remote.config.kind !== 'nuget') return [];
  return [packagesCompared(new PackageImport(feed, views, options), source, options, feed.limits.nupkg, how)];
}
