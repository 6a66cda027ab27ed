import { digestOf, hexOf } from '../../runtime/digest.ts';
import type { Advisory } from '../hosted/advisories.ts';
import { packageKey } from '../hosted/packages.ts';
import type { VulnerabilityPage } from '../upstream/upstream-vulnerabilities.ts';
import type { Addresses } from './addresses.ts';

/** Most pages that an index may name. */
const maxPages = 16;
/** The names of pages that NuGet's client takes. It reports others, such as those with a dot, as a failure of the source (NU1900). */
const validName = /^[0-9A-Za-z-]{1,32}$/;
/** Date of the account's page while it never had an advisory. Clients warn at audits if a feed has no vulnerability data. */
const oldest = Date.UTC(2024, 0, 1);

/** The advisories of an account that a client may see. */
export interface OwnAdvisories {
  page: Record<string, unknown[]>;
  /** When they last changed, in milliseconds since 1970; undefined if there was never one. */
  changedAt: number | undefined;
}

/** https://learn.microsoft.com/nuget/api/vulnerability-info#vulnerability-index */
export function vulnerabilityIndex(
  addresses: Addresses,
  own: OwnAdvisories,
  pages: readonly VulnerabilityPage[],
): Record<string, unknown>[] {
  return [
    {
      '@name': nameOf(own),
      '@id': addresses.at('vulnerabilities/base.json'),
      '@updated': new Date(own.changedAt ?? oldest).toISOString().replace('Z', '0000Z'),
    },
    ...pages.slice(0, maxPages - 1).map((page) => ({
      '@name': valid(`${page.upstream}-${page.name}`),
      '@id': addresses.at(`vulnerabilities/${encodeURIComponent(page.upstream)}/${page.name}.json`),
      '@updated': page.updated,
    })),
  ];
}

/**
 * Clients keep a page under its name, also for other accounts and tokens at the same address, and compare `@updated` with
 * their own clock. So the name has a digest of what the page shows.
 */
function nameOf({ page }: OwnAdvisories): string {
  if (Object.keys(page).length === 0) return 'base';
  return `base-${shortDigest(JSON.stringify(page))}`;
}

function valid(name: string): string {
  return validName.test(name) ? name : shortDigest(name);
}

function shortDigest(text: string): string {
  return hexOf(digestOf(text)).slice(0, 24);
}

/** https://learn.microsoft.com/nuget/api/vulnerability-info#vulnerability-page */
export function vulnerabilityPage(advisories: readonly Advisory[]): OwnAdvisories['page'] {
  const byId = Object.groupBy(advisories, ({ packageId }) => packageKey(packageId));
  return Object.fromEntries(
    Object.entries(byId).map(([id, list]) => [
      id,
      list!.map(({ severity, url, versions }) => ({ severity, url, versions })),
    ]),
  );
}
