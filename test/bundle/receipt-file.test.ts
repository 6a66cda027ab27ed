import { lstat, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { writeReceipt } from '../../src/bundle/receipt.ts';
import { rowOf } from '../../src/mirror/store/entries.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import { startAirGap } from '../support/bundles.ts';
import { changedDatabase } from '../support/databases.ts';
import { databaseOf } from '../support/inside.ts';
import { openFifo } from '../support/processes/fifo.ts';
import { startTestServer } from '../support/server.ts';

// Where `bundle receipt --to` writes: never in place of what is no receipt.

test('a receipt replaces an earlier receipt or an empty file, and nothing else', async (t) => {
  const { far, file, path, folder } = await startAirGap(t);
  await far.ok('token', 'create', '--name', 'x');
  await far.ok('bundle', 'keygen', '--to', path('far.key'));
  const receipt = (to: string) => ['bundle', 'receipt', '--key', path('far.key'), '--to', to];
  const before = await readFile(path('far.key'));
  await symlink('far.key', path('link.key'));
  await file('statement', `${JSON.stringify({ payloadType: 'text/plain', payload: '', signatures: [] })}\n`);
  for (const each of ['far.key', 'link.key', 'far.key.pub', 'statement'])
    t.is(
      await far.fails(...receipt(path(each))),
      `entrepot: ${path(each)} exists and is no receipt. Name a new file\n`,
    );
  t.regex(await far.fails(...receipt(folder)), /exists and is no receipt/);
  t.true((await readFile(path('far.key'))).equals(before));
  t.true((await lstat(path('link.key'))).isSymbolicLink());

  await far.ok(...receipt(path('receipt')));
  const first = await readFile(path('receipt'), 'utf8');
  await symlink('receipt', path('latest'));
  await far.ok(...receipt(path('latest')));
  t.true((await lstat(path('latest'))).isSymbolicLink(), 'the file to which it leads is replaced');
  t.not(await readFile(path('receipt'), 'utf8'), first);
  await far.ok(...receipt(path('receipt')));
  await far.ok(...receipt(await file('empty', '')));
  t.true((await readFile(path('empty'), 'utf8')).startsWith('{"payloadType":"application/vnd.entrepot.receipt'));
});

test('a receipt is written to a pipe, which stays one', async (t) => {
  const { far, folder } = await startAirGap(t);
  await far.ok('token', 'create', '--name', 'x');
  const fifo = openFifo(folder);
  t.teardown(() => {
    fifo.closeWriteEnd();
    fifo.closeReader();
  });
  await far.ok('bundle', 'receipt', '--to', join(folder, 'output'));
  t.true((await lstat(join(folder, 'output'))).isFIFO());
  t.regex(fifo.read(), /^\{"payloadType":.*\n\{"format":"entrepot-receipt",.*"digests":0\}\n$/);
});

test('a receipt names nothing that was evicted while it was written', async (t) => {
  const server = await startTestServer(t);
  const database = databaseOf(server);
  const [stays, goes] = [digestOf('stays'), digestOf('goes')];
  const rows = [stays, goes].map((digest) => {
    const metadata = { digest, size: 1, type: 'x', etag: null, lastModified: null, attributes: {} };
    const key = { upstream: 'u', kind: 'manifest', name: 'app', reference: digest };
    return rowOf(key, { ...metadata, storedAt: 1, validatedAt: 1 }, 1);
  });
  await database.transaction((tx) => tx.insertNew('mirror_entries', rows));
  let isEvicted = false;
  const evicting = changedDatabase(database, {
    transaction: async (work, options) => {
      if (!isEvicted) await database.transaction((tx) => tx.run('DELETE FROM mirror_entries WHERE digest = ?', [goes]));
      isEvicted = true;
      return database.transaction(work, options);
    },
  });
  let text = '';
  const write = async (pieces: readonly Buffer[]) => void (text = Buffer.concat(pieces).toString());
  const accounts = { named: () => Promise.resolve(undefined) };
  const upstreams = [{ id: 'u' }] as unknown as Upstream[];
  const parts = { database: evicting, upstreams, now: Date.now, accounts, protocols: [] };
  t.like(await writeReceipt(parts, write, { key: undefined }), { digests: 1 });
  t.true(text.endsWith(`"digests":1}\n${stays}\n`));
});
