import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { counterNames } from '../../src/usage/counters.ts';
import { auditOf } from '../support/audit.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { createToken, databaseOf, defaultAccountOf, flushUsage } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';

// What commands print of the accounts of an installation, as a whole.

/** A server with two versions and two tags; `run` resolves to what a command of its machine prints, or its error. */
async function setUp(t: ExecutionContext) {
  const data = await folderUntilEnd(t);
  const server = await startTestServer(t, { data, deletedFor: '7d' });
  const environment = { ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: '[]', ENTREPOT_DELETED_FOR: '7d' };
  const run = async (...words: string[]) => {
    const { code, stdout, stderr } = await entrepot(environment, ...words);
    t.is(code, stderr.startsWith('entrepot: ') ? 1 : 0, words.join(' '));
    return stdout + stderr;
  };
  await new TestFeed(server).publish({ id: 'Lib', version: '1.0.0' }, { id: 'Lib', version: '2.0.0' });
  const app = new TestRepository(server, 'team/app');
  await app.image('v1');
  const { digest } = await app.image('v2');
  return { data, server, environment, run, app, digest };
}

const columns = (text: string) =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => line.split('\t'));

const rules = (freeze: string[], packages: string[], images: string[]) =>
  `${JSON.stringify({ freeze: { images: freeze }, keep: { packages, images } })}\n`;

const wrong = (text: string) => `entrepot: ${text}: expected the number of a deletion, as "deleted list" shows it.\n`;

const limits = (scopes: string[] | null, days: number | null) => `${JSON.stringify({ scopes, longest_days: days })}\n`;

test('usage prints the totals of a month, and the division that is asked for', async (t) => {
  const { server, run, app } = await setUp(t);
  const { value, token } = await createToken(server, ['read']);
  const read = (path: string, init?: { token: string }) => server.fetch(path, init).then((each) => each.arrayBuffer());
  await read('/v3/package/lib/1.0.0/lib.1.0.0.nupkg', { token: value });
  await read('/v2/team/app/manifests/v1');
  await app.blob('other');
  await flushUsage(server);
  const month = new Date().toISOString().slice(0, 7);
  const first = ['period', 'hosted_bytes', 'mirrored_bytes', 'peak_bytes', 'average_bytes', 'byte_hours'];
  const totals = columns(await run('usage'));
  t.deepEqual(
    totals.map(([name]) => name),
    [...first, ...counterNames],
  );
  const numbers = Object.fromEntries(totals) as Record<string, string>;
  t.like(numbers, {
    period: `${month} (open)`,
    mirrored_bytes: '0',
    peak_bytes: numbers['hosted_bytes'],
    average_bytes: numbers['hosted_bytes'],
    requests: '11',
    downloads: '2',
    uploads: '4',
    cache_hits: '0',
  });
  t.true(Number(numbers['hosted_bytes']) > 1000);
  const own = counterNames.map((name) => numbers[name]!);

  const division = async (by: string) => {
    const text = await run('usage', '--by', by);
    const [report, list] = text.split('\n\n');
    t.deepEqual(columns(report!), totals, by);
    const [title, ...items] = columns(list!);
    t.deepEqual(title, [by, ...counterNames]);
    return items;
  };
  t.deepEqual(await division('day'), [[new Date().toISOString().slice(0, 10), ...own]]);
  const tokens = await division('token');
  const linesOfTokens = tokens.map(([id, requests, downloads]) => `${id === token.id} ${requests} ${downloads}`);
  t.is(tokens.length, 2);
  for (const each of ['false 10 1', 'true 1 1']) t.true(linesOfTokens.includes(each), linesOfTokens.join());
  const [[name, ...ofPackage] = [], ...packages] = await division('package');
  const [[image, ...ofImage] = [], ...images] = await division('container');
  t.deepEqual([name, packages, image, images], ['lib', [], 'team/app', []]);
  t.deepEqual(
    own,
    ofPackage.map((each, at) => String(Number(each) + Number(ofImage[at]))),
  );
  t.is(
    await run('usage', '--period', '2020-02'),
    ['period\t2020-02 (closed)', ...[...first.slice(1), ...counterNames].map((each) => `${each}\t0`), ''].join('\n'),
  );
  const account = defaultAccountOf(server);
  const row = { account_id: account, hour: Date.UTC(2020, 2, 1) - 3_600_000, hosted_bytes: 30, mirrored_bytes: 12 };
  await databaseOf(server).transaction((tx) => tx.insert('storage_samples', row));
  t.true(
    (await run('usage', '--period', '2020-02')).startsWith(
      'period\t2020-02 (closed)\nhosted_bytes\t30\nmirrored_bytes\t12\npeak_bytes\t42\naverage_bytes\t42\nbyte_hours\t42\n',
    ),
    'the last sample of the month',
  );
  for (const wrong of ['2020-13', '9998-12'])
    t.is(
      await run('usage', '--period', wrong),
      'entrepot: --period needs a month such as 2026-11 that is not in the future.\n',
    );
});

test('rules of permanence are shown, and each is changed alone', async (t) => {
  const { run } = await setUp(t);
  t.is(await run('permanence', 'show'), rules([], [], []));
  t.is(
    await run('permanence', 'set', '--freeze-images', 'team/*:v*, a', '--keep-packages', 'Kept'),
    rules(['team/*:v*', 'a'], ['Kept'], []),
  );
  t.is(await run('permanence', 'set', '--keep-images', 'x y'), rules(['team/*:v*', 'a'], ['Kept'], ['x', 'y']));
  t.is(await run('permanence', 'set', '--freeze-images', ''), rules([], ['Kept'], ['x', 'y']));
  t.is(await run('permanence', 'show'), rules([], ['Kept'], ['x', 'y']));
});

test('what was deleted is listed, restored, or deleted for good', async (t) => {
  const { server, run, app, digest } = await setUp(t);
  const before = Date.now();
  t.is((await server.fetch('/v1/packages/lib/2.0.0', { method: 'DELETE' })).status, 204);
  t.is((await app.fetch('manifests/v2', { method: 'DELETE' })).status, 202);
  const list = async () => {
    const lines = (await run('deleted', 'list')).trimEnd().split('\n').filter(Boolean);
    return lines.map((line) => {
      const [id, type, name, reference, end] = line.split('\t');
      const days = (Date.parse(end!) - before) / 86_400_000;
      return [id, type, name, reference, days >= 7 && days < 7.1];
    });
  };
  t.deepEqual(await list(), [
    ['2', 'tag', 'team/app', 'v2', true],
    ['1', 'version', 'Lib', '2.0.0', true],
  ]);
  for (const text of ['0', '1x', 'x1', '1234567890123456']) t.is(await run('deleted', 'restore', text), wrong(text));
  t.is(await run('deleted', 'restore', '1'), '');
  t.is((await server.fetch('/v3/package/lib/2.0.0/lib.2.0.0.nupkg')).status, 200);
  await app.fetch('manifests/v2', { method: 'PUT', body: await (await app.fetch('manifests/v1')).text() });
  t.deepEqual(await list(), [['2', 'tag', 'team/app', 'v2', true]]);
  t.is(await run('deleted', 'purge', '2', '--reason', ' '), 'entrepot: --reason: expected why, for the audit.\n');
  t.is(await run('deleted', 'purge', '2', '--reason', 'l'.repeat(501)), '');
  const [purged] = await auditOf(server, 'type=tag.purged');
  t.is((purged!.details as { reason?: string }).reason, 'l'.repeat(500));
  t.deepEqual(await list(), []);
  t.is(await run('deleted', 'restore', '2'), 'entrepot: This account has no deletion 2 that can be undone.\n');
  t.is((await app.fetch(`manifests/${digest}`)).status, 200, 'only its tag was deleted');
});

test('the limits of personal tokens are shown, and each is changed alone', async (t) => {
  const { run } = await setUp(t);
  t.is(await run('person', 'limit'), limits(null, null));
  t.is(await run('person', 'limit', '--longest', '30d'), limits(null, 30));
  t.is(await run('person', 'limit', '--scopes', 'read,write'), limits(['read', 'write'], 30));
  t.is(await run('person', 'limit', '--longest', '48h'), limits(['read', 'write'], 2));
  t.is(await run('person', 'limit'), limits(['read', 'write'], 2));
  t.is(await run('person', 'limit', '--longest', '-', '--scopes', '-'), limits(null, null));
  t.is(await run('person', 'limit', '--longest', '1d'), limits(null, 1));
  t.is(await run('person', 'limit', '--longest', '3650d'), limits(null, 3650));
  for (const wrong of ['1h', '36h', '0d', '3651d', 'soon'])
    t.is(
      await run('person', 'limit', '--longest', wrong),
      'entrepot: --longest: expected a time of whole days such as 30d, from 1d to 3650d.\n',
    );
  t.is(await run('person', 'limit'), limits(null, 3650), 'a wrong one changes nothing');
});

test('who pulled a content is a line with the token and the times', async (t) => {
  const { server, run, digest } = await setUp(t);
  const { value, token } = await createToken(server, ['read']);
  await (await server.fetch('/v3/package/lib/1.0.0/lib.1.0.0.nupkg', { token: value })).arrayBuffer();
  await server.fetch('/v2/team/app/manifests/v2', { token: value });
  await flushUsage(server);
  const times = String.raw`20\S+Z\t20\S+Z`;
  t.regex(
    await run('exposed', 'Lib@1.0.0'),
    new RegExp(`^lib 1\\.0\\.0\\tdefault\\ta test\\t${token.id}\\t-\\t${times}\\t1\\n$`),
  );
  t.regex(
    await run('exposed', 'team/app:v2'),
    new RegExp(`^team/app ${digest}\\tdefault\\ta test\\t${token.id}\\t-\\t${times}\\t1\\n$`),
  );
  t.is(await run('exposed', 'lib@2.0.0'), 'Nobody pulled it from this server, as far as its records show.\n');
});

test('files that have no row are shown, and deleted only with --yes', async (t) => {
  const { data, environment, run } = await setUp(t);
  t.is(await run('gc', '--files'), 'no file without a row\n');
  const stored = await readdir(join(data, 'blobs'), { recursive: true });
  const write = async (ageInDays: number) => {
    const content = randomBytes(50);
    const hex = createHash('sha256').update(content).digest('hex');
    const folder = join(data, 'blobs/sha256', hex.slice(0, 2));
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, hex), content);
    const time = new Date(Math.floor(Date.now() / 1000) * 1000 - ageInDays * 86_400_000);
    await utimes(join(folder, hex), time, time);
    return `sha256:${hex}\t50 bytes\t${time.toISOString()}\n`;
  };
  await write(0);
  const kept = 'kept: 1 files that are younger than the setting "gc.grace"\n';
  t.is(await run('gc', '--files'), `${kept}nothing to delete\n`);
  const line = await write(2);
  t.is(await run('gc', '--files'), `${line}${kept}would delete 1 files, 50 bytes. To delete them, add --yes\n`);
  for (let count = 0; count < 100; count += 1) await write(3);
  const shown = await run('gc', '--files', '--yes');
  t.is(shown.match(/^sha256:/gm)?.length, 100);
  t.true(
    shown.endsWith(`Z\n… and 1 more\n${kept}deleting 101 files, 5050 bytes\ndone: 101 files, 5050 bytes\n`),
    shown.slice(-300),
  );
  t.is(await run('gc', '--files'), `${kept}nothing to delete\n`);
  const now = await readdir(join(data, 'blobs'), { recursive: true });
  t.deepEqual(
    stored.filter((each) => !now.includes(each)),
    [],
  );
  const last = (await entrepot(environment, 'audit', '--type', 'storage.cleaned')).stdout;
  t.like(JSON.parse(last) as object, {
    account: null,
    subject: { kind: 'storage', name: 'filesystem' },
    details: { files: 101, bytes: 5050 },
  });
});

test('commands say that there is nothing, and bills of materials are turned on and off', async (t) => {
  const { data, run } = await setUp(t);
  t.is(await run('account', 'bills'), '{"enabled":false,"public_key":null}\n');
  const on = JSON.parse(await run('account', 'bills', 'on')) as { enabled: boolean; public_key: string };
  t.true(on.enabled);
  t.regex(on.public_key, /^-----BEGIN PUBLIC KEY-----\n/);
  t.deepEqual(JSON.parse(await run('account', 'bills')), on);
  t.deepEqual(JSON.parse(await run('account', 'bills', 'off')), { ...on, enabled: false });
  t.is(await run('account', 'bills', 'maybe'), 'entrepot: maybe: expected on or off.\n');
  const file = join(data, 'wanted.txt');
  t.is(await run('wanted', '--to', file), `${file}: 0 wanted\n`);
  t.false((await readFile(file, 'utf8')).includes('Lib'));
  for (const wrong of ['soon', '0s'])
    t.is(await run('wanted', '--to', file, '--since', wrong), 'entrepot: --since: expected a duration such as 7d.\n');
  const empty = join(data, 'nothing');
  await mkdir(empty);
  t.is(await run('import', 'folder', empty), `entrepot: ${empty} has nothing that can be imported\n`);
  for (const limit of ['1', '10000'])
    t.is(
      await run('webhook', 'deliveries', 'x', '--limit', limit),
      'entrepot: This account has no webhook with this ID.\n',
    );
});
