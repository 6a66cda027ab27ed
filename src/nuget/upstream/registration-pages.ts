import { pause } from '../../runtime/event-loop.ts';
import type { RegisteredVersion, SizedVersion } from '../format/pages.ts';
import { compareVersions, parseVersion, type Version } from '../format/version.ts';
import type { PageLine } from './reading/registration.ts';
import type { Made } from './documents.ts';

/** A version of a registration, whose metadata is read only where it is shown. */
export interface ListedVersion extends SizedVersion {
  /** When the upstream says that it was published; undefined if it does not say so. */
  publishedAt: number | undefined;
  /** A `RegisteredVersion`. */
  json: string;
}

/** A page of an upstream's registration. */
export interface ListedPage {
  lower: string;
  upper: string;
  first: Version;
  last: Version;
  count: number;
  /** When the page was changed last; undefined if it does not say so. */
  changedAt?: number;
  /** Of a page that is a document of its own. */
  address?: string;
  /** In order. */
  versions?: readonly ListedVersion[];
  /** Stored versions that the upstream's page lacks, perhaps. */
  kept?: ListedVersion[];
}

/** Lines between two pauses. */
const step = 500;

/** The pages in the lines of the reader of registrations (`nuget/upstream/reading/registration.ts`). */
export async function pagesIn(lines: readonly string[]): Promise<Made<readonly ListedPage[]>> {
  const pages: ListedPage[] = [];
  for (let at = 0; at < lines.length;) {
    const { versions: count, ...page } = JSON.parse(lines[at]!) as PageLine;
    const [first, last] = [parseVersion(page.lower)!, parseVersion(page.upper)!];
    const versions = count === undefined ? undefined : await listed(lines, at + 1, at + 1 + count);
    pages.push({ ...page, first, last, ...(versions && { versions }) });
    at += 1 + (count ?? 0);
    await pause();
  }
  return { value: pages, items: lines.length + 4 * pages.length };
}

/** The versions in those lines of one page. */
export async function versionsIn(lines: readonly string[]): Promise<Made<readonly ListedVersion[]>> {
  return { value: await listed(lines, 0, lines.length), items: lines.length };
}

/** The pages with stored versions that they lack, each on the page where it belongs. The bounds `first` and `last` include them. */
export async function withKept(pages: readonly ListedPage[], kept: readonly ListedVersion[]): Promise<ListedPage[]> {
  const found: ListedPage[] = pages.map((page) => ({ ...page }));
  for (const each of kept) {
    await pause();
    const version = parseVersion(each.version)!;
    let page = found.find(({ last }) => compareVersions(version, last) <= 0) ?? found.at(-1);
    if (!page) {
      const { version: bound } = each;
      found.push((page = { lower: bound, upper: bound, first: version, last: version, count: 0, versions: [] }));
    }
    if (compareVersions(version, page.first) < 0) page.first = version;
    if (compareVersions(version, page.last) > 0) page.last = version;
    (page.kept ??= []).push(each);
  }
  return found;
}

export function registeredOf({ json }: ListedVersion): RegisteredVersion {
  return JSON.parse(json) as RegisteredVersion;
}

async function listed(lines: readonly string[], from: number, to: number): Promise<ListedVersion[]> {
  const versions: ListedVersion[] = [];
  for (let at = from; at < to; at += 1) {
    const line = lines[at]!;
    const bytes = line.indexOf(' ');
    const version = line.indexOf(' ', bytes + 1);
    const published = line.indexOf(' ', version + 1);
    versions.push({
      bytes: Number(line.slice(0, bytes)),
      version: line.slice(bytes + 1, version),
      publishedAt: published === version + 1 ? undefined : Number(line.slice(version + 1, published)),
      json: line.slice(published + 1),
    });
    if (at % step === 0) await pause();
  }
  return versions;
}
