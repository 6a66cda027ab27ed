import type { Migration } from '../migrate.ts';

/** For the history of the tags of an image, which may have very many manifests. */
export const historyKinds: Migration[] = [
  { name: '048-1-history-kind', sql: 'CREATE INDEX history_kind ON history (account_id, upstream, name, kind, id)' },
];
