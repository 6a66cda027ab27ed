import { lstat, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { startAirGap } from '../support/bundles.ts';
import { openFifo } from '../support/processes/fifo.ts';

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
