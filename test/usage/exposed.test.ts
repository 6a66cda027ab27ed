import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { Principal } from '../../src/accounts/principal.ts';
import { batches } from '../../src/database/batches.ts';
import type { Row } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { noteContent, Pulls, type UsedContents } from '../../src/usage/pulls.ts';
import { createRule, exchange, fromRepository, sendJson, startPair, type Json } from '../identity/support.ts';
import { auditOf } from '../support/audit.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import {
  applyPolicy,
  createToken,
  databaseOf,
  defaultAccountOf,
  flushUsage,
  makeBills,
  rowsOf,
  runJob,
  tokenOf,
} from '../support/inside.ts';
import { linesOf } from '../support/known-bad.ts';
import { TestRepository, type Descriptor, type Manifest } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';

// exposed.long.test.ts and observed-bills.long.test.ts have the rest, also on MySQL.

const day = 86_400_000;
const settled = 31_000;
const nupkg = (id: string, version: string) => `/v3/package/${id}/${version}/${id}.${version}.nupkg`;
const bills = '/v1/account/observed-bills';
const bundleType = 'application/vnd.dev.sigstore.bundle.v0.3+json';

interface Answer {
  items: (Json & { user: Json; reference: string; count: number; pushed: Json[] })[];
  contents: number;
  next_cursor: string | null;
}

function digestOf(at: number): string {
  return `sha256:${String(at).padStart(64, '0')}`;
}

/** An image, which its tag makes different from others. */
async function push(to: TestRepository, tag: string, more: Json = {}): Promise<Descriptor> {
  const config = await to.blob('{}', 'application/vnd.oci.image.config.v1+json');
  return to.image(tag, { config, annotations: { note: tag }, ...more });
}

test('who pulled and pushed what on which day is told to administrators, billed for jobs, and deleted in time', async (t) => {
  const { server, issuer } = await startPair(t, { usage: { keepPulls: '30d' }, anonymousRead: true });
  const start = Date.UTC(2026, 10, 25, 12);
  server.clock.now = start;
  const pass = (milliseconds: number) => (server.clock.now! += milliseconds);
  await createRule(server);
  const giveToken = async (run: string) => {
    const { body } = await exchange(server, await issuer.sign({ ...fromRepository, run_id: run }));
    return body['access_token'] as string;
  };
  const get = async (path: string, token: string | null) => {
    const response = await server.fetch(path, { token });
    t.is(response.status, 200, path);
    await response.arrayBuffer();
  };
  const statusOf = async (path: string, init: RequestInit & { token?: string }) =>
    (await server.fetch(path, init)).status;
  const ask = async (what: string, query = '', token = server.token) => {
    const response = await server.fetch(`/v1/exposed?what=${encodeURIComponent(what)}${query}`, { token });
    t.is(response.status, 200, what);
    return (await response.json()) as Answer;
  };
  await new TestFeed(server).publish({ id: 'Lib', version: '1.0.0' }, { id: 'Lib', version: '2.0.0' });
  const { value, token: known } = await createToken(server, ['read']);
  const second = await createToken(server, ['read']);
  const other = await tokenOf(server, ['read', 'write', 'admin'], 'other');
  await new TestFeed(server, other).publish({ id: 'Lib', version: '1.0.0', description: 'theirs' });
  await get(nupkg('lib', '1.0.0'), other);

  await get(nupkg('lib', '1.0.0'), value);
  pass(1000);
  await get(nupkg('lib', '1.0.0'), value);
  await get(nupkg('lib', '1.0.0'), null);
  await flushUsage(server);
  pass(1000);
  await get(nupkg('lib', '1.0.0'), value);
  await get(nupkg('lib', '2.0.0'), second.value);
  const times = async () => {
    const { items } = await ask('Lib@2.0.0');
    const found = items.find(({ user }) => user['id'] === second.token.id)!;
    return [found['first_at'], found['last_at']];
  };
  pass(1000);
  await get(nupkg('lib', '2.0.0'), second.value);
  await flushUsage(server);
  t.deepEqual(await times(), ['2026-11-25T12:00:02.000Z', '2026-11-25T12:00:03.000Z']);
  pass(1000);
  await get(nupkg('lib', '2.0.0'), second.value);
  const part = { headers: { range: 'bytes=0-9' }, token: second.value };
  t.is(await statusOf(nupkg('lib', '1.0.0'), part), 206);
  await flushUsage(server);
  t.deepEqual(await times(), ['2026-11-25T12:00:02.000Z', '2026-11-25T12:00:04.000Z']);
  pass(day);
  await get(nupkg('lib', '1.0.0'), value);
  await flushUsage(server);

  const shown = ({ items }: Answer) =>
    items.map(({ reference, user, count }) => `${reference} ${String(user['kind'])} ${count}`).toSorted();
  const ofAll = await ask('Lib@1.0.0');
  t.deepEqual(shown(ofAll), ['1.0.0 anonymous 1', '1.0.0 token 1', '1.0.0 token 4'], 'operators see all accounts');
  const by = ofAll.items.find(({ user }) => user['id'] === known.id)!;
  t.like(by, { first_at: '2026-11-25T12:00:00.000Z', last_at: '2026-11-26T12:00:04.000Z', account: 'default' });
  const mine = await tokenOf(server, ['read', 'admin']);
  const all = ['1.0.0 anonymous 1', '1.0.0 token 4', '2.0.0 token 3'];
  t.deepEqual(shown(await ask('LIB@*', '', mine)), all);
  t.is((await ask('LIB@*', '', mine)).contents, 2);
  t.deepEqual(shown(await ask('Lib@*', '&account=other')), ['1.0.0 token 1']);
  t.deepEqual(shown(await ask('Lib@*', '', other)), ['1.0.0 token 1'], 'its own account alone');
  t.deepEqual(shown(await ask('Lib@*', '&since=2026-11-26T18:00:00Z', mine)), ['1.0.0 token 1']);
  const pages: Answer[] = [];
  for (let cursor = ''; ; cursor = `&cursor=${pages.at(-1)!.next_cursor!}`) {
    pages.push(await ask('Lib@*', `&limit=1${cursor}`, mine));
    if (pages.at(-1)!.next_cursor === null) break;
  }
  t.deepEqual(pages.flatMap(shown).toSorted(), all);
  const limited = await createToken(server, ['read', 'admin'], 'default', { packages: ['Lib'] });
  for (const [token, query] of [
    [value, ''],
    [limited.value, ''],
    [other, '&account=default'],
  ] as const)
    t.is(await statusOf(`/v1/exposed?what=Lib@*${query}`, { token }), 403);

  // A job pulls before its account wants bills, and after it.
  t.is((await sendJson(server, 'PUT', bills, { enabled: true }, value)).status, 403);
  const before = new TestRepository(server, 'team/app', await giveToken('6'));
  const unbilled = await push(before, 'v0');
  await flushUsage(server);
  t.is((await sendJson(server, 'PUT', bills, { enabled: true }, mine)).status, 200);
  t.like(await auditOf(server, 'type=account.bills_changed'), [{ details: { enabled: true } }]);
  const job = await giveToken('7');
  const app = new TestRepository(server, 'team/app', await giveToken('7'));
  const early = await push(app, 'early');
  pass(1000);
  await get(nupkg('lib', '1.0.0'), job);
  pass(1000);
  const image = await push(app, 'v1');
  const { mediaType, digest, size } = image;
  const others = [
    unbilled,
    await push(new TestRepository(server, 'team/app'), 'by-token'),
    await push(app, 'sha256-0.sig'),
    await push(app, 'attestation', { layers: [await app.blob('{}', 'application/vnd.in-toto+json')] }),
    await push(app, 'artifact', { artifactType: 'application/x.artifact' }),
    await push(app, 'about', { subject: { mediaType, digest, size } }),
  ];
  pass(1000);
  for (const version of ['1.0.0', '2.0.0']) await get(nupkg('lib', version), job);
  const reader = new TestRepository(server, 'team/app', value);
  const billsOf = async ({ digest }: Descriptor) => {
    const list = await reader.fetch(`referrers/${digest}?artifactType=${encodeURIComponent(bundleType)}`);
    return ((await list.json()) as { manifests: Descriptor[] }).manifests;
  };
  await flushUsage(server);
  await makeBills(server);
  t.is((await billsOf(image)).length, 0, 'other instances may not have written all pulls');
  pass(settled);
  // As two instances do.
  await Promise.all([makeBills(server), makeBills(server)]);
  const [bill, ...more] = await billsOf(image);
  t.is(more.length, 0);
  const { layers } = (await (await reader.fetch(`manifests/${bill!.digest}`)).json()) as Manifest & {
    layers: Descriptor[];
  };
  const bundle = (await (await reader.fetch(`blobs/${layers[0]!.digest}`)).json()) as {
    dsseEnvelope: { payload: string };
  };
  const statement = JSON.parse(Buffer.from(bundle.dsseEnvelope.payload, 'base64').toString()) as {
    subject: { digest: { sha256: string } }[];
    predicate: { components: { purl: string }[] };
  };
  t.is(`sha256:${statement.subject[0]!.digest.sha256}`, image.digest);
  t.deepEqual(
    statement.predicate.components.map(({ purl }) => purl),
    ['pkg:nuget/lib@1.0.0'],
    'what came before the push',
  );
  for (const each of others) t.is((await billsOf(each)).length, 0, JSON.stringify(each));
  t.is((await billsOf(early)).length, 1, 'also where it pulled nothing before');
  const pushes = await rowsOf(server, 'SELECT is_due, COUNT(*) AS number FROM observed_pushes GROUP BY is_due');
  t.deepEqual(pushes, [{ is_due: 0, number: 6 }], 'those of the job alone');
  const byJob = (await ask('Lib@1.0.0', '&account=default')).items.find(({ user }) => user['kind'] === 'job');
  t.like(byJob, { job: { issuer: 'github', repository: 'team/app', run: '7' }, user: { name: 'main of app' } });
  t.deepEqual(
    byJob!.pushed.map((each) => JSON.stringify([each['kind'], each['name'], each['reference']])).toSorted(),
    [image, ...others.slice(2)].map((each) => JSON.stringify(['image', 'team/app', each.digest])).toSorted(),
    'after its pull',
  );
  await get('/v2/team/app/manifests/v1', value);
  await flushUsage(server);
  for (const what of [image.digest, 'team/app:v1']) {
    t.deepEqual(shown(await ask(what, '', mine)), [`${image.digest} token 1`], 'a push is no pull');
    t.deepEqual(shown(await ask(what, '', other)), []);
  }

  // Pulls go 30 days after their day. What was used later stays.
  const count = async (table: string) => (await rowsOf(server, `SELECT * FROM ${table}`)).length;
  server.clock.now = start + 30 * day;
  t.is((await runJob(server, 'exposure'))['deleted'], 0);
  server.clock.now = start + 31 * day;
  t.true((await runJob(server, 'exposure'))['deleted']! > 0);
  t.deepEqual(shown(await ask('Lib@1.0.0', '', mine)), ['1.0.0 job 2', '1.0.0 token 1']);
  t.is(await count('pull_users'), 4, 'the token, the job of each run and the administrator');
  server.clock.now = start + 40 * day;
  await runJob(server, 'exposure');
  for (const table of ['pulls', 'pull_contents', 'pull_users', 'observed_pushes']) t.is(await count(table), 0, table);
});

test('operators learn who pulled what any account hosts, and readers of shared images who of them pulled these', async (t) => {
  const server = await startTestServer(t);
  const [a, b] = [
    await tokenOf(server, ['read', 'write', 'admin'], 'a'),
    await tokenOf(server, ['read', 'write', 'admin'], 'b'),
  ];
  const theirs = new TestRepository(server, 'team/app', a);
  const image = await push(theirs, 'v1');
  const { digest: ofB } = await push(new TestRepository(server, 'team/app', b), 'v1', { annotations: { of: 'b' } });
  const shared = await push(new TestRepository(server, 'base/os', a), 'v1');
  await new TestFeed(server, a).publish({ id: 'Own', version: '1.0.0' });
  // The account of the operator has a package of the same name, which is another one.
  await new TestFeed(server).publish({ id: 'Own', version: '1.0.0', description: 'ours' });
  const grant = { subject: { kind: 'account', id: 'b' }, verbs: ['read'], images: ['base/*'] };
  const { id } = (await (await sendJson(server, 'POST', '/v1/grants', grant, a)).json()) as Json;
  t.is((await sendJson(server, 'POST', `/v1/grants/${id as string}/accept`, {}, b)).status, 200);
  const advisory = { package: 'Own', versions: '[1.0.0]', severity: 2, url: 'https://a.test/CVE-2026-7' };
  t.is((await sendJson(server, 'POST', '/v1/advisories', advisory, a)).status, 201);
  for (const [path, token] of [
    ['/v2/team/app/manifests/v1', a],
    ['/v2/team/app/manifests/v1', b],
    ['/v2/base/os/manifests/v1', b],
    [nupkg('own', '1.0.0'), a],
    [nupkg('own', '1.0.0'), server.token],
  ] as const)
    await (await server.fetch(path, { token })).arrayBuffer();
  const ask = async (what: string, token = server.token) => {
    const response = await server.fetch(`/v1/exposed?what=${encodeURIComponent(what)}`, { token });
    t.is(response.status, 200, what);
    const { items } = (await response.json()) as Answer;
    return items.map((each) => `${String(each['account'])} ${each.reference}`).toSorted();
  };
  t.deepEqual(await ask('team/app:v1'), [`a ${image.digest}`, `b ${ofB}`], 'as each account has the tag');
  t.deepEqual(await ask(`team/app@${image.digest}`), [`a ${image.digest}`]);
  t.deepEqual(await ask('CVE-2026-7'), ['a 1.0.0'], 'the advisory of the account is about its own package');
  t.deepEqual(await ask('team/app:v1', a), [`a ${image.digest}`], 'an account learns nothing of others');
  for (const what of ['base/os:v1', `base/os@${shared.digest}`]) {
    t.deepEqual(await ask(what), [`b ${shared.digest}`]);
    t.deepEqual(await ask(what, b), [`b ${shared.digest}`]);
    t.deepEqual(await ask(what, a), []);
  }
});

test('pulls of several tokens of a job in one flush are all counted, from the first to the last', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const user = { id: 'job', kind: 'job', name: 'a rule', ruleId: 'rule', person: null, job: null } as const;
  const used = (...pulled: [string, number, number, number][]) => ({
    by: 'token' as const,
    user,
    pulled: new Map(pulled.map(([version, count, firstAt, lastAt]) => [version, { count, firstAt, lastAt }])),
    pushed: new Map(),
  });
  const name = { accountId: 1, kind: 'package', name: 'lib', day: 0 };
  const entries = [
    { ...name, contents: [used(['1.0.0', 2, 20, 30], ['2.0.0', 1, 25, 25])] },
    { ...name, contents: [used(['1.0.0', 3, 10, 28])] },
    { ...name, contents: [used(['1.0.0', 1, 15, 40])] },
  ];
  await database.transaction((tx) => new Pulls(database, day).write(tx, entries));
  t.deepEqual(
    await database.select(
      `SELECT reference, count, first_at AS firstAt, last_at AS lastAt FROM pulls p
       JOIN pull_contents c ON c.id = p.content_id ORDER BY reference`,
    ),
    [
      { reference: '1.0.0', count: 6, firstAt: 10, lastAt: 40 },
      { reference: '2.0.0', count: 1, firstAt: 25, lastAt: 25 },
    ],
  );
});

test('a client that got the end of a file after its download broke off has pulled it', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Lib', version: '1.0.0' });
  const usersOf = async () => {
    const { items } = (await (await server.fetch('/v1/exposed?what=Lib@1.0.0')).json()) as Answer;
    return items.map(({ user, count }) => [user['name'], count]);
  };
  const get = async (range: string, token: string) => {
    const response = await server.fetch(nupkg('lib', '1.0.0'), { headers: { range }, token });
    t.is(response.status, 206, range);
    await response.arrayBuffer();
    await flushUsage(server);
  };
  const { value } = await createToken(server, ['read']);
  await get('bytes=0-9', value);
  t.deepEqual(await usersOf(), [], 'a part without the end');
  await get('bytes=10-', value);
  t.deepEqual(await usersOf(), [['a test', 1]]);
  await get('bytes=-1', value);
  t.deepEqual(await usersOf(), [['a test', 2]]);
});

test('clients without a credential are one user of an account, and people in the console another one', (t) => {
  const contents: UsedContents[] = [];
  const use = { at: 1, act: 'download', status: 200, complete: true } as const;
  for (const [kind, reference] of [
    ['anonymous', '1.0.0'],
    ['person', '2.0.0'],
    ['anonymous', '3.0.0'],
  ] as const)
    noteContent(contents, { kind, accountId: 7 } as Principal, use, reference);
  t.deepEqual(
    contents.map(({ user, pulled }) => [user.id, user.kind, [...pulled.keys()]]),
    [
      ['anonymous-7', 'anonymous', ['1.0.0', '3.0.0']],
      ['console-7', 'console', ['2.0.0']],
    ],
  );
});

for (const dialect of dialects) {
  test(`${dialect}: an answer about few contents is whole, however many others have the same name, digest or tag`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const start = Date.UTC(2026, 10, 25, 12);
    server.clock.now = start;
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    await writeFile(file, linesOf([{ id: 'BAD-1', images: ['team/z*'] }]));
    await applyPolicy(server, { knownBad: { lists: [{ name: 'own', file, mode: 'audit' }] } });
    await runJob(server, 'known-bad');
    let made = 0;
    const content = (kind: string, name: string, reference: string, accountId = defaultAccountOf(server)) => {
      const row = { id: String((made += 1)).padStart(32, '0'), account_id: accountId, kind, name, reference };
      return { ...row, last_day: start - day, is_compared: 1 };
    };
    const many = Array.from({ length: 2100 }, (_, at) => at);
    const database = databaseOf(server);
    const write = (table: string, rows: readonly Row[]) =>
      database.transaction(async (tx) => {
        for (const some of batches(rows)) await tx.insertNew(table, some);
      });
    const first = content('package', 'lib', '0.0.1-first');
    const wanted = [
      content('package', 'lib', '9.0.0', 999),
      content('container', 'wanted', digestOf(0), 999),
      content('container', 'team/zebra', digestOf(1), 999),
      content('container', 'team/app', digestOf(many.length - 900), 999),
    ];
    await write('pull_contents', [
      first,
      ...many.map((at) => content('package', 'lib', `1.0.${at}`)),
      ...many.map((at) => content('container', `other/${at}`, digestOf(0))),
      ...wanted,
    ]);
    const pull = { act: 'pull', user_id: 'user', day: start - day, count: 1, first_at: start - day, last_at: start };
    await write(
      'pulls',
      [first, ...wanted].map(({ id }) => ({ ...pull, content_id: id })),
    );
    const owner = { account_id: defaultAccountOf(server), upstream: '', name: 'team/app', kind: 'tag' };
    // The tag has moved 900 times since it had the wanted digest.
    await write(
      'history',
      many.map((at) => ({ ...owner, reference: 'v1', digest: digestOf(at), seen_at: at })),
    );
    const ask = async (what: string) => {
      const response = await server.fetch(`/v1/exposed?what=${encodeURIComponent(what)}`);
      t.is(response.status, 200, what);
      const { items, contents, is_complete: isComplete } = (await response.json()) as Answer & { is_complete: boolean };
      return [items.map((each) => each.reference), contents, isComplete];
    };
    t.deepEqual(await ask('Lib@9.0.0'), [['9.0.0'], 1, true], 'a version after many others');
    t.deepEqual(await ask('Lib@[0.0.1-first]'), [['0.0.1-first'], 1, true]);
    t.deepEqual(await ask('Lib@[0.0.1-first,9.0.0]'), [['0.0.1-first'], 2000, false], 'too many are meant');
    t.deepEqual(await ask(`wanted@${digestOf(0)}`), [[digestOf(0)], 1, true], 'a digest that has many other names');
    t.deepEqual(await ask('BAD-1'), [[digestOf(1)], 1, true], 'a pattern that many names do not match');
    t.deepEqual(await ask('team/app:v1'), [[digestOf(many.length - 900)], 1, true], 'a tag that has moved often');
  });
}
