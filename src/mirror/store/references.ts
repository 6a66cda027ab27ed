import type { Upstream } from '../../upstream/upstream.ts';
import type { BlobReferences } from '../../storage/blobs/references.ts';

/**
 * The blobs that were fetched from upstreams. All accounts share them, except those from an upstream that serves only some:
 * they count for the first of these accounts. `accounts` has the IDs of the accounts by name.
 */
export function mirrorReferences(
  upstreams: readonly Upstream[],
  accounts: ReadonlyMap<string, number>,
): BlobReferences {
  const cases = upstreams.flatMap(({ id, config }) => {
    if (!config.accounts) return [];
    const owner = config.accounts.map((name) => accounts.get(name)).find((each) => each !== undefined);
    // The schema allows no quote in an ID. Bytes of an upstream without an account count for none.
    return [`WHEN '${id}' THEN ${owner ?? 0}`];
  });
  const offline = upstreams.flatMap(({ id, isOffline }) => (isOffline ? [`'${id}'`] : []));
  const account = cases.length > 0 ? `CASE upstream ${cases.join(' ')} END` : 'NULL';
  return {
    origin: 'mirrored',
    tables: ['mirror_entries', 'mirror_staged'],
    // All content of a name: what a withdrawn tag needs is among it.
    lasting: {
      mirror_entries: `mirror_entries.upstream IN (${offline.join(', ') || "''"})
        OR (mirror_entries.upstream, mirror_entries.name) IN (SELECT upstream, name FROM mirror_withdrawn)`,
    },
    owned: [`SELECT ${account} AS account_id, digest FROM mirror_entries WHERE digest > ? AND digest <= ?`],
    async forget(tx, digest) {
      const entries = 'SELECT id FROM mirror_entries WHERE digest = ?';
      await tx.run(`DELETE FROM mirror_withdrawn WHERE id IN (${entries})`, [digest]);
      await tx.run('DELETE FROM mirror_entries WHERE digest = ?', [digest]);
      await tx.run('DELETE FROM mirror_staged WHERE digest = ?', [digest]);
    },
  };
}
