import type { Addresses } from './addresses.ts';
import type { VulnerabilityPage } from '../upstream/upstream-vulnerabilities.ts';

/** Most pages that an index may name. */
const mostPages = 16;
/** Date of the feed's own page, which is empty. Clients warn at audits if a feed has no vulnerability data. */
const updated = '2024-01-01T00:00:00.0000000Z';

/** https://learn.microsoft.com/nuget/api/vulnerability-info#vulnerability-index */
export function vulnerabilityIndex(
  addresses: Addresses,
  pages: readonly VulnerabilityPage[],
): Record<string, unknown>[] {
  return [
    {
      '@name': 'base',
      '@id': addresses.at('vulnerabilities/base.json'),
      '@updated': updated,
    },
    ...pages.slice(0, mostPages - 1).map((page) => ({
      '@name': `${page.upstream}-${page.name}`,
      '@id': addresses.at(`vulnerabilities/${encodeURIComponent(page.upstream)}/${page.name}.json`),
      '@updated': page.updated,
    })),
  ];
}

/** https://learn.microsoft.com/nuget/api/vulnerability-info#vulnerability-page */
export function vulnerabilityPage(): Record<string, unknown> {
  return {};
}
