import type { Migration } from '../migrate.ts';

const packageNumbers = ['version_count', 'size_bytes', 'download_count', 'updated_at', 'last_downloaded_at'];
const repositoryNumbers = ['tag_count', 'size_bytes', 'pull_count', 'last_pulled_at'];
const entryNumbers = ['size_bytes', 'used_at', 'stored_at'];

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
];
