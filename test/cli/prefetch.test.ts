import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import { run } from '../../src/cli/commands.ts';
import { binaryBytes } from '../../src/cli/progress.ts';
import { held, serve } from '../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { until } from '../support/until.ts';

async function setUp(t: ExecutionContext) {
  const folder = await folderUntilEnd(t);
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const upstreams = [feed.as('feed.test', { timeout: '30s' }), registry.settings('docker.io', { default: true })];
  const environment = { ENTREPOT_DATA: join(folder, 'data'), ENTREPOT_UPSTREAMS: JSON.stringify(upstreams) };
  const file = async (name: string, text: string) => {
    await writeFile(join(folder, name), text);
    return join(folder, name);
  };
  /** Runs the command in this process. */
  const prefetch = async (
    words: string[],
    { stdin = '', isTTY = false, onSignal = (_stop: () => void) => {} } = {},
  ) => {
    const output = { stdout: '', stderr: '' };
    const code = await run(['prefetch', ...words], environment, {
      stdin: Readable.from([stdin]),
      stdout: { write: (text: string) => (output.stdout += text) },
      stderr: { write: (text: string) => (output.stderr += text), isTTY, columns: 60 },
      once: (signal, stop) => signal === 'SIGINT' && onSignal(stop),
      on: () => {},
      exit: () => {},
    });
    return { code, ...output };
  };
  return { folder, feed, registry, file, prefetch };
}

test('several files in one command: it prints a summary, and succeeds when everything is stored', async (t) => {
  const { feed, registry, file, prefetch } = await setUp(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  registry.image('library/redis', '7');
  registry.image('team/app', '1');
  const lock = JSON.stringify({ version: 1, dependencies: { net8: { Lib: { type: 'Direct', resolved: '1.0.0' } } } });
  const files = [
    await file('packages.lock.json', lock),
    await file('compose.yaml', 'services: { a: { image: "redis:${TAG}" } }'),
    '-',
  ];
  const words = [...files, '--arg', 'TAG=7', '--no-referrers'];
  const first = await prefetch(words, { stdin: 'team/app:1\n' });
  t.deepEqual([first.code, first.stderr], [0, '']);
  t.regex(
    first.stdout,
    /^packages: 1 \([\d.]+ [KMi]*B\) fetched, 0 here already\nmanifests: 2 \(.*\nlayers: 4 \(391 KiB\) fetched, 0 here already\n$/,
  );
  const second = await prefetch(words, { stdin: 'team/app:1\n' });
  t.regex(
    second.stdout,
    /^packages: 0 fetched, 1 \(.*\nmanifests: 0 fetched, 2 .*\nlayers: 0 fetched, 4 \(391 KiB\) here already\n$/,
  );
  const dry = await prefetch([...words, '--dry-run'], { stdin: 'team/app:1\n' });
  t.regex(dry.stdout, /^packages: 0 to fetch, 1 .*\nmanifests: 0 fetched/);
});

test('missing content is listed with its location and reason, and the command fails', async (t) => {
  const { feed, file, prefetch } = await setUp(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const list = await file('list.txt', 'Lib@1.0.0\nLib@2.0.0\nteam/none:1\n');
  const { code, stdout, stderr } = await prefetch([list]);
  t.is(code, 1);
  t.regex(stdout, /^packages: 1 \(/);
  const lines = stderr.trimEnd().split('\n').sort();
  t.deepEqual(lines, [
    'entrepot: 2 missing',
    `missing: Lib 2.0.0 (${list}:2): the upstream does not have this version`,
    `missing: team/none:1 (${list}:3): docker.io does not have this image`,
  ]);
});

test('bad input is one line that names the problem, before any request to an upstream', async (t) => {
  const { feed, registry, file, prefetch, folder } = await setUp(t);
  const good = await file('good.txt', 'Lib@1.0.0\n');
  const bad = await file('packages.lock.json', '{\n "version": 1,\n "dependencies": {{\n');
  const cases: [string[], RegExp][] = [
    [[], /give a file/],
    [[good, bad], /packages\.lock\.json:3: not JSON/],
    [[join(folder, 'none.txt')], /none\.txt: cannot be read: ENOENT/],
    [[good, '--kind', 'novel'], /Use one of lock, assets/],
    [[good, '--rate', 'fast'], /bytes per second such as 20MiB\/s/],
    [[good, '--window', '22'], /hours such as 22:00-06:00/],
    [[good, '--concurrency', '0'], /whole number from 1 to 64/],
    [[good, '--rate-limit-share', '120%'], /share such as 80%/],
    [[good, '--platform', 'amd64'], /platforms such as linux\/amd64/],
    [[good, '--arg', 'X'], /NAME=VALUE/],
    [[good, '--used-within', 'long'], /duration such as/],
    [[good, '--account', 'none'], /no account "none"/],
  ];
  for (const [words, message] of cases) {
    const { code, stdout, stderr } = await prefetch(words);
    t.is(code, 1, words.join(' '));
    t.is(stdout, '');
    t.regex(stderr, message);
    t.is(stderr.trimEnd().split('\n').length, 1, stderr);
  }
  t.deepEqual([...feed.asked, ...registry.requests()], []);
});

test('an interrupted command says so and continues when it is run again; a terminal shows a progress bar', async (t) => {
  const { registry, file, prefetch } = await setUp(t);
  const { layer } = registry.image('team/a', '1');
  const other = registry.image('team/b', '1');
  const { behaviour, release } = held(serve(other.layer.bytes));
  registry.on(`/v2/team/b/blobs/${other.layer.digest}`, behaviour);
  const words = [await file('images.txt', 'team/a:1\nteam/b:1\n'), '--rate', '100MiB/s', '--rate-limit-share', '90%'];
  const isRequested = (name: string, digest: string) => registry.count(`/v2/team/${name}/blobs/${digest}`) > 0;
  const underWay = until(() => isRequested('a', layer.digest) && isRequested('b', other.layer.digest), 60_000);
  const stopped = await prefetch(words, { isTTY: true, onSignal: (stop) => void underWay.then(stop, t.fail) });
  t.is(stopped.code, 1);
  t.regex(stopped.stderr, /stopped before the end; run the same command again to continue\n$/);
  t.regex(stopped.stderr, /\r\[[#.]{24}\] \d+\/\d+ {2}/);
  for (const line of stopped.stderr.split('\r')) t.true(line.replace('\u001B[K', '').split('\n')[0]!.length < 80);
  release();
  const rest = await prefetch(words);
  t.deepEqual([rest.code, rest.stderr], [0, '']);
});

test('amounts are printed with units', (t) => {
  t.deepEqual([0, 1023, 1024, 1536, 150_000, 5 * 2 ** 30].map(binaryBytes), [
    '0 B',
    '1023 B',
    '1.0 KiB',
    '1.5 KiB',
    '146 KiB',
    '5.0 GiB',
  ]);
});
