import type { Migration } from '../migrate.ts';

const packageNumbers = ['version_count', 'size_bytes', 'download_count', 'updated_at', 'last_downloaded_at'];
const repositoryNumbers = ['tag_count', 'size_bytes', 'pull_count', 'last_pulled_at'];
const entryNumbers = ['size_bytes', 'used_at', 'stored_at'];
const versionNumbers = ['size_bytes', 'download_count'];

/** For lists that are sorted by a number, the largest first, then by name. */
export const largest: Migration[] = [
  ...packageNumbers.map((column) => ({
    name: `043-1-packages-${column}`,
    sql: `CREATE INDEX packages_by_${column} ON packages (account_id, ${column} DESC, package_key)`,
  })),
  ...repositoryNumbers.map((column) => ({
    name: `043-2-repositories-${column}`,
    sql: `CREATE INDEX repositories_by_${column} ON repositories (account_id, ${column} DESC, name)`,
  })),
  ...entryNumbers.map((column) => ({
    name: `043-3-mirror-entries-${column}`,
    sql: `CREATE INDEX mirror_entries_by_${column} ON mirror_entries (upstream, kind, ${column} DESC, id)`,
  })),
  ...versionNumbers.map((column) => ({
    name: `043-4-package-versions-${column}`,
    sql: `CREATE INDEX package_versions_by_${column} ON package_versions (package_row, ${column} DESC, sort_key)`,
  })),
  { name: '043-5-tokens-used', sql: 'CREATE INDEX tokens_by_use ON tokens (account_id, last_used_at DESC, id)' },
  {
    name: '043-6-failed-requests-count',
    sql: 'CREATE INDEX failed_requests_count ON failed_requests (count DESC, id)',
  },
  {
    name: '043-7-failed-requests-account-count',
    sql: 'CREATE INDEX failed_requests_account_count ON failed_requests (account_id, count DESC, id)',
  },
];
