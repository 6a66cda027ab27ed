import type { Migration } from '../migrate.ts';

/** For the largest packages and images of an account. */
export const largest: Migration[] = [
  { name: '043-1-packages-size', sql: 'CREATE INDEX packages_size ON packages (account_id, size_bytes)' },
  { name: '043-2-repositories-size', sql: 'CREATE INDEX repositories_size ON repositories (account_id, size_bytes)' },
];
