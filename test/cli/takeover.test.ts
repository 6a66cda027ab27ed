import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, rowsOf, runJob } from '../support/inside.ts';
import { startMoving } from '../support/takeover.ts';
import type { TestServer } from '../support/server.ts';

// What `entrepot takeover` prints. test/takeover/ has what it compares.

/** Runs `entrepot takeover` on the data of a server. */
const takeoverOn =
  ({ data, installation }: TestServer) =>
  (...words: string[]) =>
    entrepot(
      {
        ENTREPOT_DATA: data,
        ENTREPOT_PREDECESSORS: JSON.stringify(installation.core.config.predecessors),
        ENTREPOT_UPSTREAMS: '[]',
      },
      'takeover',
      ...words,
    );

const counted = (same: number, mirrored: number, different: number, failed: number, extra: number) =>
  `same\t${same}\nmirrored\t${mirrored}\ndifferent\t${different}\nfailed\t${failed}\nonly here\t${extra}\n`;

const changed = (server: TestServer, sql: string) => databaseOf(server).transaction((tx) => tx.run(sql, []));

const versions = (major: number, count: number) =>
  Array.from({ length: count }, (_, at) => ({ id: 'Many', version: `${major}.${at}.0` }));

test('a report counts the names by their result, and tells some differences of each', async (t) => {
  const { old, here } = await startMoving(t);
  const takeover = takeoverOn(here);
  const from = new TestFeed(old);
  const others = ['Broken', 'Left', 'Same', 'Second'].map((id) => ({ id, version: '1.0.0' }));
  await from.publish(...versions(1, 21), ...versions(2, 21), ...others);
  await runJob(here, 'takeover');
  t.deepEqual(await takeover('report', 'old-feed'), { code: 0, stdout: counted(5, 0, 0, 0, 0), stderr: '' });

  for (const { id, version } of versions(1, 21))
    await here.fetch(`/v1/packages/${id}/${version}`, { method: 'DELETE' });
  await from.publish(...versions(3, 21));
  const own = new TestFeed(here);
  for (const version of ['7.0.0', '8.0.0']) for (const id of ['Same', 'Second']) await own.publish({ id, version });
  await changed(here, "UPDATE package_versions SET published_at = 1 WHERE version LIKE '2.%'");
  const broken = "package_row = (SELECT id FROM packages WHERE package_key = 'broken')";
  await changed(here, `UPDATE package_versions SET metadata = '{' WHERE ${broken}`);
  await changed(here, "UPDATE takeover_names SET state = 'mirrored', note = 'x' WHERE name_key = 'left'");
  const file = join(here.data, 'report');
  const { code, stdout, stderr } = await takeover('report', 'old-feed', '--report', file);
  t.is(code, 1);
  t.is(stdout, counted(2, 1, 1, 1, 4));
  const told = stderr.split('\n');
  t.regex(told.shift()!, /^failed\tbroken\t./);
  const many = (what: string, major: number, end = '') =>
    versions(major, 20).map(({ version }) => `${what}\tmany\t${version}${end}`);
  const differences = [...many('missing', 3), ...many('deleted here', 1), ...many('different', 2, '\tdate')];
  t.deepEqual(told, [...differences, 'entrepot: 2 names differ, or could not be compared', ''], 'not all of them');
  const lines = (await readFile(file, 'utf8'))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  t.deepEqual(
    lines.map(({ name, result, missing }) => [name, result, missing.length]),
    [
      ['broken', 'failed', 0],
      ['left', 'mirrored', 0],
      ['many', 'different', 21],
      ['same', 'same', 0],
      ['second', 'same', 0],
    ],
  );

  const early = await takeover('finish', 'old-feed', '--accept', 'MANY');
  t.deepEqual([early.code, early.stdout], [1, counted(2, 1, 1, 1, 4)]);
  t.is(
    early.stderr.split('\n').at(-2),
    'entrepot: old-feed is not taken over: broken differ. Bring them, or name them with --accept.',
  );
  const end = await takeover('finish', 'old-feed', '--accept', 'MANY', 'Broken');
  t.deepEqual([end.code, end.stdout], [0, `${counted(2, 1, 1, 1, 4)}accepted\tMANY\naccepted\tBroken\n`]);
  t.deepEqual(end.stderr.split('\n').slice(1), [...differences, ''], 'what differs is told, and is no failure');
});

const row = (name: string, state: string, note: string | null = null) => ({
  predecessor: 'old-feed',
  name,
  name_key: name.toLowerCase(),
  state,
  note,
});

const numbers = (mirrored: number, conflicts: number) =>
  [
    'to come\t2',
    'incomplete\t2',
    'here\t1',
    'mirrored in part\t1',
    `mirrored\t${mirrored}`,
    `conflicts\t${conflicts}`,
  ].map((each) => `old-feed\t${each}`);

test('the status of takeovers has the numbers of their names, and each that needs a person', async (t) => {
  const { here } = await startMoving(t, {}, { exclude: ['Excluded'] });
  const takeover = takeoverOn(here);
  t.deepEqual(await takeover('status'), {
    code: 0,
    stdout:
      'old-feed\tnuget\tdefault\tthe list of its names was not read yet\nold-images\tregistry\tdefault\tthe list of its names was not read yet\n',
    stderr: '',
  });
  await databaseOf(here).transaction(async (tx) => {
    await tx.insertNew('takeovers', [
      { predecessor: 'old-feed', source: 's', read_at: 1000, warning: 'it was short', finished_at: null },
      { predecessor: 'old-images', source: 's', read_at: 1000, warning: null, finished_at: 2000 },
    ]);
    await tx.insertNew('takeover_names', [
      row('New', 'new'),
      row('Failed', 'new', 'it is down'),
      row('Excluded', 'new', 'it is excluded'),
      row('Part', 'partial'),
      row('Some', 'partial', 'one is too large'),
      row('Whole', 'whole'),
      row('Alike', 'alike', 'not told'),
      row('Mirrored', 'mirrored'),
      row('Left', 'mirrored', 'not told'),
      row('One', 'conflict', 'up.test has others'),
      row('Two', 'conflict', 'up.test has others'),
    ]);
  });
  await databaseOf(here).transaction((tx) =>
    tx.insertNew(
      'adopted_credentials',
      ['ann', 'ben'].map((name) => ({
        predecessor: 'old-feed',
        kind: 'user',
        name,
        scopes: 'read',
        secret: null,
        token_id: name,
        checked_at: 1,
      })),
    ),
  );
  const rest = ['old-feed\tadopted credentials\t2', 'old-feed\twarning\tit was short'];
  const status = async () => (await takeover('status')).stdout.split('\n');
  const images = 'old-images\tregistry\tdefault\tfinished at 1970-01-01T00:00:02.000Z';
  const needs = [
    'conflicts\tone\tup.test has others',
    'conflicts\ttwo\tup.test has others',
    'incomplete\tpart\t',
    'incomplete\tsome\tone is too large',
    'to come\tfailed\tit is down',
  ].map((each) => `old-feed\t${each}`);
  const first = 'old-feed\tnuget\tdefault\tread at 1970-01-01T00:00:01.000Z';
  t.deepEqual(await status(), [first, ...numbers(2, 2), ...rest, ...needs, images, '']);

  const none = await takeover('mirror', 'old-feed', 'ONE', 'Whole', 'Two');
  t.deepEqual(none, {
    code: 1,
    stdout: '',
    stderr: 'entrepot: old-feed has no name Whole of which an upstream has other content.\n',
  });
  t.deepEqual(await status(), [first, ...numbers(3, 1), ...rest, ...needs.slice(1), images, '']);
  t.deepEqual(await takeover('mirror', 'old-feed', 'Two'), { code: 0, stdout: '', stderr: '' });
  t.is((await takeover('mirror', 'old-feed', 'Two')).code, 1, 'it is left already');
  for (const words of [
    ['mirror', 'none', 'Two'],
    ['report', 'none'],
    ['finish', 'none'],
  ])
    t.deepEqual(await takeover(...words), {
      code: 1,
      stdout: '',
      stderr: 'entrepot: The settings have no predecessor none; there are old-feed, old-images.\n',
    });
  t.deepEqual(await rowsOf(here, "SELECT type FROM events WHERE type LIKE 'takeover.%'"), [
    { type: 'takeover.left' },
    { type: 'takeover.left' },
  ]);
});
