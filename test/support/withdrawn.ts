import { auditOf } from './audit.ts';
import { rowsOf } from './inside.ts';
import type { TestServer } from './server.ts';

// What is known of content that upstreams do not offer any more.

/** The references that an upstream does not offer, and whether they are marked. */
export async function missingIn(server: TestServer): Promise<string[]> {
  const sql = 'SELECT reference, withdrawn_at FROM mirror_withdrawn ORDER BY kind, name, reference';
  const rows = await rowsOf<{ reference: string; withdrawn_at: number | null }>(server, sql);
  return rows.map((each) => `${each.reference}${each.withdrawn_at === null ? '' : ' marked'}`);
}

/** The events about it, the earliest first. */
export async function toldOf(server: TestServer): Promise<string[]> {
  return (await auditOf(server))
    .filter(({ type }) => type === 'upstream.withdrawn' || type === 'upstream.restored')
    .map(({ type, subject, details, actor, account }) => {
      const reference = subject.version ?? subject.reference;
      if (actor.kind !== 'system' || account !== null) throw new Error('an event of a client');
      return `${type} ${subject.kind} ${subject.name} ${reference} ${String(details['upstream'])}`;
    });
}
