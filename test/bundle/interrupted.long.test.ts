import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import test from 'ava';
import { importBundle } from '../../src/bundle/import.ts';
import { openBundle } from '../../src/bundle/read.ts';
import { TrustedKeys } from '../../src/bundle/trust.ts';
import { linesOf, osv } from '../support/known-bad.ts';
import { startAirGap, trustedKey, type Site } from '../support/bundles.ts';
import { TestDisk } from '../support/test-disk.ts';

// A command that is killed at any instant leaves nothing half-visible, and the next one goes on.

const main = join(import.meta.dirname, '../../bin/entrepot.js');

/** Runs a command of a site in its own process, and kills it after `milliseconds`; resolves to whether it had succeeded before. */
async function killedAfter(site: Site, milliseconds: number, ...words: string[]): Promise<boolean> {
  const env = {
    PATH: process.env['PATH'],
    ENTREPOT_DATA: site.data,
    ENTREPOT_UPSTREAMS: JSON.stringify(site.upstreams),
  };
  const child = spawn(process.execPath, [main, ...words], { env, stdio: ['ignore', 'ignore', 'inherit'] });
  const ended = once(child, 'close');
  const controller = new AbortController();
  await Promise.race([ended, sleep(milliseconds, undefined, { signal: controller.signal }).catch(() => undefined)]);
  controller.abort();
  child.kill('SIGKILL');
  const [code] = (await ended) as [number | null];
  return code === 0;
}

/** The number of entries that are shown. */
function shownIn({ data }: Site): number {
  const database = new DatabaseSync(join(data, 'entrepot.db'), { readOnly: true });
  const row = database.prepare('SELECT COUNT(*) AS count FROM mirror_entries').get() as { count: number };
  database.close();
  return row.count;
}

test('an import that is killed again and again shows nothing before it shows all', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const images = Array.from({ length: 60 }, (_, at) => registry.image(`team/app${at}`, '1'));
  const list = await file('list.txt', images.map((_, at) => `docker.io/team/app${at}:1`).join('\n'));
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key);
  const entries = (await far.ok('bundle', 'inspect', path('bundle'), '--list')).match(
    /^(?:docker\.io|feed\.test)\t/gm,
  )!;
  let [kills, isDone] = [0, false];
  // The time in which a process does all of it differs between machines.
  for (let milliseconds = 300; !isDone; milliseconds *= 1.3) {
    isDone = await killedAfter(far, milliseconds, 'bundle', 'import', path('bundle'));
    const shown = shownIn(far);
    t.true(shown === 0 || shown === entries.length, `${shown} entries after ${milliseconds} ms`);
    if (shown === 0) kills += 1;
    if (milliseconds > 120_000) break;
  }
  t.true(isDone);
  t.true(kills > 0);
  const server = await far.serve();
  for (const [at, { layer }] of images.entries()) {
    const body = await (await server.fetch(`/v2/team/app${at}/blobs/${layer.digest}`)).arrayBuffer();
    t.true(Buffer.from(body).equals(layer.bytes));
  }
  await server.close();
});

test('a bundle whose making was killed goes on, and is the same as one that was made at once', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const images = Array.from({ length: 20 }, (_, at) => registry.image(`team/app${at}`, '1'));
  const list = await file('list.txt', images.map((_, at) => `docker.io/team/app${at}:1`).join('\n'));
  const words = ['bundle', 'create', list, '--to', path('bundle'), '--key', key, '--segment', '1MiB'];
  let isDone = false;
  for (let milliseconds = 300; !isDone && milliseconds < 120_000; milliseconds *= 1.4) {
    isDone = await killedAfter(near, milliseconds, ...words);
    // What has its name is whole.
    for (const name of (await readdir(path('bundle')).catch(() => [])).filter((each) => each.endsWith('.tar')))
      t.true((await stat(join(path('bundle'), name))).size % 512 === 0, name);
  }
  t.true(isDone);
  t.deepEqual(
    (await readdir(path('bundle'))).filter((name) => !/^\d{4}\.tar$/.test(name)),
    [],
  );
  t.regex(await far.ok('bundle', 'import', path('bundle')), /manifests: 40/);
});

for (const [what, flags] of [
  ['', []],
  [', with lists of known bad content and a new key', ['--known-bad', '--new-key', 'next.signed']],
] as const)
  test(`the segments of the same content are the same bytes${what}`, async (t) => {
    const gap = await startAirGap(t);
    const { registry, near, path, file } = gap;
    registry.image('library/redis', '7');
    const list = await file('list.txt', 'redis:7');
    const bad = await file(
      'bad.jsonl',
      linesOf([osv('MAL-2', 'Bad'), { digests: [`sha256:${'0'.repeat(64)}`], id: 'SEC-1' }]),
    );
    await near.ok('token', 'create', '--name', 'x');
    const lists = [{ name: 'bad', file: bad }];
    await near.ok('policy', 'apply', await file('policy.yaml', JSON.stringify({ knownBad: { lists } })));
    await near.ok('jobs', 'run', 'known-bad');
    await near.ok('bundle', 'keygen', '--to', path('near.key'));
    await near.ok('bundle', 'keygen', '--to', path('next'), '--signed-by', path('near.key'));
    const more = flags.map((each) => (each.startsWith('--') ? each : path(each)));
    const make = () => near.ok('bundle', 'create', list, '--to', path('bundle'), ...more);
    await make();
    const first = await readFile(join(path('bundle'), '0001.tar'));
    // As an attempt that ended before its only segment was complete.
    const text = first.toString('latin1');
    const start = text.indexOf('{"format":"entrepot-bundle"');
    const end = text.indexOf('\n]\n}\n', start) + '\n]\n}\n'.length;
    await rm(join(path('bundle'), '0001.tar'));
    await writeFile(join(path('bundle'), 'bundle.json.part'), first.subarray(start, end));
    await make();
    t.true(first.equals(await readFile(join(path('bundle'), '0001.tar'))));
  });

test('a full disk ends an import, which goes on when there is room', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const images = Array.from({ length: 8 }, (_, at) => registry.image(`team/app${at}`, '1'));
  const list = await file('list.txt', images.map((_, at) => `docker.io/team/app${at}:1`).join('\n'));
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key);
  const disk = new TestDisk();
  const server = await far.serve({}, { disk });
  const { core, protocols } = server.installation;
  const trust = new TrustedKeys(core.database, core.now);
  const describe: Parameters<typeof importBundle>[0]['describe'] = (upstream, ...rest) =>
    protocols.find(({ upstreams }) => upstreams.kind === upstream.config.kind)!.upstreams.describe!(upstream, ...rest);
  const options = {
    unsigned: false,
    older: false,
    hosted: false,
    watch: () => undefined,
    signal: new AbortController().signal,
  };
  const imported = async () => {
    await using bundle = await openBundle([path('bundle')]);
    return await importBundle({ ...core, protocols, describe, trust }, bundle, options);
  };
  disk.left = 700_000;
  await t.throwsAsync(imported(), { name: 'StorageFull' });
  t.is(shownIn(far), 0);
  disk.left = Number.POSITIVE_INFINITY;
  const done = await imported();
  t.deepEqual(done.lacking, []);
  t.is((await server.fetch('/v2/team/app7/manifests/1')).status, 200);
  await server.close();
});
