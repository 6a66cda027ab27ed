import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { decodeList, type BundleEntry } from '../../src/bundle/format.ts';
import { seal } from '../../src/bundle/keys.ts';
import { planSegments } from '../../src/bundle/plan.ts';
import { readReceipt } from '../../src/bundle/receipt.ts';
import { TrustedKeys } from '../../src/bundle/trust.ts';
import { encoded } from '../../src/bundle/write.ts';
import type { BlobStore } from '../../src/storage/blobs/blob-store.ts';
import { headerOf } from '../support/bundles.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { databaseOf } from '../support/inside.ts';
import { longestAllowed, longestTurn } from '../support/longest-turn.ts';
import { startTestServer } from '../support/server.ts';

// In a process of its own: it measures the process.

// A server makes and imports bundles while it answers others: no step holds the event loop for 50 ms, however long the lists are.

const count = 20_000;
const digest = (number: number) => `sha256:${number.toString(16).padStart(64, '0')}` as const;

function entries(): BundleEntry[] {
  return Array.from({ length: count }, (_, at) => ({
    protocol: 'nuget',
    upstream: 'up.test',
    kind: 'nupkg',
    name: `lib.${at % 1000}`,
    reference: `1.0.${at}`,
    digest: digest((at * 7919) % 1_000_003),
    size: 100,
    type: 'application/octet-stream',
    etag: null,
    modified: null,
    attributes: { id: `Lib.${at}`, version: `1.0.${at}` },
    validated_at: 1,
    seen: [{ kind: 'version', reference: `1.0.${at}`, digest: digest(at), seenAt: 1 }],
  }));
}

test('a long list is planned, written and read in short turns', async (t) => {
  const all = entries();
  const contents = all.map(({ digest: each, size }) => ({ digest: each, size }));
  const none = {} as BlobStore;
  const plan = () => planSegments(none, contents, all, { limit: 2 ** 31, base: new Set() });
  const planned = await plan();
  const { segments, bytes } = planned;
  const header = headerOf({ segments, blob_count: count, entry_count: count, bytes });
  const list = { header, blobs: planned.blobs, entries: all };
  const { pieces, size, digest: found } = await encoded(list);
  const text = Buffer.concat(pieces);
  t.is(size, text.length);
  t.is(found, `sha256:${createHash('sha256').update(text).digest('hex')}`);
  const lines = text.toString().trimEnd().split('\n');
  t.deepEqual(await decodeList(lines), list);
  const works: [string, () => Promise<unknown>][] = [
    ['plan', plan],
    ['write', () => encoded(list)],
    ['read', () => decodeList(lines)],
  ];
  for (const [name, work] of works) {
    const longest = await longestTurn(work);
    t.true(longest < longestAllowed, `${name}: ${longest} ms`);
  }
  const long = [...lines.slice(0, 2), JSON.stringify({ digest: 'x'.repeat(3_000_000) })];
  await t.throwsAsync(decodeList(long), { message: 'line 3 of bundle.json is too long' });
});

test('a large receipt is read in short turns', async (t) => {
  const server = await startTestServer(t);
  const trust = new TrustedKeys(databaseOf(server), Date.now);
  const file = join(await folderUntilEnd(t), 'receipt');
  const digests = Array.from({ length: 300_000 }, (_, at) => digest(at));
  const header = {
    format: 'entrepot-receipt',
    version: 1,
    installation: '00000000-0000-4000-8000-000000000000',
    created_at: 1,
    digests: digests.length,
  };
  const body = `${[JSON.stringify(header), ...digests].join('\n')}\n`;
  const id = `sha256:${createHash('sha256').update(body).digest('hex')}` as const;
  const statement = Buffer.from(JSON.stringify({ receipt: id }));
  await writeFile(file, seal('application/vnd.entrepot.receipt.v1+json', statement, undefined) + body);
  const read = await readReceipt(trust, file);
  t.is(read.id, id);
  t.is(read.digests.size, digests.length);
  const longest = await longestTurn(() => readReceipt(trust, file));
  t.true(longest < longestAllowed, `${longest} ms`);
});
