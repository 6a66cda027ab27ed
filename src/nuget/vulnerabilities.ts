import type { Addresses } from './addresses.ts';

/** A hosted feed knows no advisories; that it says so keeps the clients' audit quiet. */
const updated = '2024-01-01T00:00:00.0000000Z';

/** https://learn.microsoft.com/nuget/api/vulnerability-info#vulnerability-index */
export function vulnerabilityIndex(addresses: Addresses): Record<string, unknown>[] {
  return [
    {
      '@name': 'base',
      '@id': addresses.at('vulnerabilities/base.json'),
      '@updated': updated,
    },
  ];
}

/** https://learn.microsoft.com/nuget/api/vulnerability-info#vulnerability-page */
export function vulnerabilityPage(): Record<string, unknown> {
  return {};
}
