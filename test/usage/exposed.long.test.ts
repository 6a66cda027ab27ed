import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { applyPolicy, createToken, databaseOf, rowsOf, runJob, tokenOf } from '../support/inside.ts';
import { hour, linesOf, osv } from '../support/known-bad.ts';
import { OpenDocument } from '../support/open-document.ts';
import { ociIndex, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { until } from '../support/until.ts';
import { Visitor } from '../support/visitor.ts';
import { createRule, exchange, fromRepository, startPair, type Json } from '../identity/support.ts';

const day = 86_400_000;
const json = (value: unknown) => answer(200, { 'content-type': 'application/json' }, JSON.stringify(value));
const nupkg = (id: string, version: string) => `/v3/package/${id}/${version}/${id}.${version}.nupkg`;

/** A feed that has `Lib`, and warns of it as `advise` says. */
async function warningFeed(t: Parameters<typeof UpstreamFeed.start>[0]) {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Lib', versions: ['1.0.0', '1.1.0', '2.0.0'].map((version) => ({ version })) });
  let updates = 0;
  const advise = (list: readonly object[]) => {
    updates += 1;
    const updated = new Date(Date.UTC(2026, 0, 1) + updates * 1000).toISOString();
    const page = { '@name': 'base', '@id': `${up.url}/known/base.json`, '@updated': updated };
    up.upstream.on('/vulnerabilities/index.json', json([page]));
    up.upstream.on('/known/base.json', json({ lib: list }));
  };
  advise([{ severity: 2, url: 'https://advisories.test/GHSA-aaaa-bbbb-cccc', versions: '(, 1.1.0)' }]);
  return { up, advise };
}

/** The content, the kind of user, the account and the pulls of each item. */
function shown(items: readonly Json[]): string[] {
  return items
    .map(
      (each) =>
        `${String(each['reference'])} ${(each['user'] as Json)['kind'] as string} ${String(each['account'])} ${String(each['count'])}`,
    )
    .toSorted();
}

for (const dialect of dialects) {
  test(`${dialect}: who pulled a version, an image, or what an advisory is about, is told to those who may know it`, async (t) => {
    const { up } = await warningFeed(t);
    const { server, issuer } = await startPair(t, {
      upstreams: [up.as('feed.test')],
      database: { url: await temporaryDatabase(t, dialect) },
    });
    server.clock.now = Date.UTC(2026, 10, 25, 12);
    const rule = await createRule(server);
    const giveToken = async (claims: Json) => {
      const { body } = await exchange(server, await issuer.sign({ ...fromRepository, ...claims }));
      return body['access_token'] as string;
    };
    const { value, token: known } = await createToken(server, ['read']);
    const other = await tokenOf(server, ['read', 'admin'], 'other');
    const get = async (path: string, token: string) => {
      const response = await server.fetch(path, { token });
      t.is(response.status, 200, path);
      await response.arrayBuffer();
    };
    await get(nupkg('lib', '1.0.0'), value);
    server.clock.now += day;
    await get(nupkg('lib', '1.0.0'), value);
    await get(nupkg('lib', '2.0.0'), value);
    await get(nupkg('lib', '1.0.0'), other);
    // A job gets two tokens, pulls with one and pushes with the other.
    await get(nupkg('lib', '1.0.0'), await giveToken({ run_id: 7 }));
    server.clock.now += 1000;
    const app = new TestRepository(server, 'team/app', await giveToken({ run_id: '7' }));
    const image = await app.image('v1');
    await get(nupkg('lib', '1.1.0'), await giveToken({ run_id: 8 }));

    const document = await OpenDocument.of(server);
    const read = async (what: string, query = '', token = server.token) =>
      (await document.read(
        'GET /exposed',
        await server.fetch(`/v1/exposed?what=${encodeURIComponent(what)}${query}`, { token }),
      )) as Json & { items: Json[] };
    const all = await read('GHSA-AAAA-bbbb-cccc');
    t.like(all, { contents: 2, is_complete: true, next_cursor: null });
    t.deepEqual(shown(all.items), ['1.0.0 job default 1', '1.0.0 token default 2', '1.0.0 token other 1']);
    const byToken = all.items.find((each) => (each['user'] as Json)['id'] === known.id)!;
    t.like(byToken, {
      kind: 'package',
      name: 'lib',
      user: { kind: 'token', name: 'a test', rule_id: null, person: null },
      job: null,
      first_at: '2026-11-25T12:00:00.000Z',
      last_at: '2026-11-26T12:00:00.000Z',
      pushed: [],
    });
    const byJob = all.items.find((each) => (each['user'] as Json)['kind'] === 'job')!;
    t.like(byJob, {
      user: { name: 'main of app', rule_id: rule['id'], person: null },
      job: { issuer: 'github', repository: 'team/app', ref: 'refs/heads/main', run: '7' },
      pushed: [{ kind: 'image', name: 'team/app', reference: image.digest, at: '2026-11-26T12:00:01.000Z' }],
    });

    // Only an administrator of the account, and an operator all accounts.
    t.deepEqual(shown((await read('Lib@1.0.0', '', other)).items), ['1.0.0 token other 1']);
    t.deepEqual(shown((await read('Lib@1.0.0', '&account=other')).items), ['1.0.0 token other 1']);
    const statusOf = async (token: string, query = '') =>
      (await server.fetch(`/v1/exposed?what=Lib@*${query}`, { token })).status;
    t.deepEqual([await statusOf(value), await statusOf(other, '&account=default')], [403, 403]);
    const limited = await createToken(server, ['read', 'admin'], 'default', { packages: ['Lib'] });
    t.is(await statusOf(limited.value), 403);

    t.is((await read('Lib@[1.0,2.0)')).items.length, 4);
    t.is((await read('LIB@*')).items.length, 5);
    t.deepEqual(shown((await read('Lib@1.0', '&since=2026-11-26T00:00:00Z')).items), [
      '1.0.0 job default 1',
      '1.0.0 token default 1',
      '1.0.0 token other 1',
    ]);
    const first = await read('Lib@*', '&limit=2');
    const second = await read('Lib@*', `&limit=200&cursor=${String(first['next_cursor'])}`);
    t.deepEqual(shown([...first.items, ...second.items]), shown((await read('Lib@*')).items));
    t.is((await read('Absent@1.0.0')).items.length, 0);
    for (const [what, status] of [
      ['GHSA-none-none-none', 404],
      ['Lib@a b', 400],
      ['@', 400],
    ] as const)
      t.is((await server.fetch(`/v1/exposed?what=${encodeURIComponent(what)}`)).status, status, what);

    // Images: by tag, also after it moved, by digest, and below an index.
    const reader = new TestRepository(server, 'team/app', value);
    await (await reader.fetch('manifests/v1')).arrayBuffer();
    const index = {
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [{ mediaType: image.mediaType, digest: image.digest, size: image.size }],
    };
    t.is((await app.put('multi', index)).status, 201);
    await (await reader.fetch('manifests/multi')).arrayBuffer();
    await app.image('v1', { annotations: { moved: 'yes' } });
    const imageUsers = async (what: string) => (await read(what)).items.map((each) => each['reference']);
    t.deepEqual(await imageUsers('team/app:v1'), [image.digest]);
    t.deepEqual(await imageUsers(image.digest), [image.digest]);
    t.deepEqual(await imageUsers(`team/app@${image.digest}`), [image.digest]);
    t.is((await imageUsers('team/app:multi')).length, 1);
    t.deepEqual([await imageUsers('team/none:v1'), await imageUsers(`team/none@${image.digest}`)], [[], []]);

    const visitor = await Visitor.signedIn(server);
    const page = await visitor.page('/console/exposed?what=GHSA-aaaa-bbbb-cccc');
    for (const text of ['main of app', 'refs/heads/main', 'a test', '/console/packages/lib/1.0.0'])
      t.true(page.includes(text), text);
    t.regex(await visitor.page('/console/exposed?what=GHSA-none'), /no advisory that this server knows/);
    t.true((await visitor.page('/console/packages/lib/1.0.0')).includes('/console/exposed?what=Lib%401.0.0'));
    t.true((await visitor.page(`/console/images/team%2Fapp/${image.digest}`)).includes('/console/exposed?what='));
  });

  test(`${dialect}: what becomes known of content that was pulled before is told once, and old pulls are deleted`, async (t) => {
    const { up, advise } = await warningFeed(t);
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    const { server } = await startPair(t, {
      upstreams: [up.as('feed.test', { freshFor: '1s' })],
      database: { url: await temporaryDatabase(t, dialect) },
      usage: { keepPulls: '30d' },
    });
    server.clock.now = Date.UTC(2026, 10, 25, 12);
    await applyPolicy(server, { knownBad: { lists: [{ name: 'osv', file, mode: 'audit' }] } });
    await writeFile(file, '[]');
    await runJob(server, 'known-bad');
    const own = new TestFeed(server);
    await own.publish({ id: 'Own', version: '1.0.0' });
    for (const path of [nupkg('lib', '1.0.0'), nupkg('lib', '1.1.0'), nupkg('own', '1.0.0')])
      await (await server.fetch(path)).arrayBuffer();
    await server.installation.core.usage.flush();
    const found = async () => {
      server.clock.now! += hour;
      const counts = await runJob(server, 'exposure');
      const events = await auditOf(server, 'type=exposure.found');
      return [
        counts['exposures'],
        events.map(({ subject, details }) => [subject.name, details['id'], details['references'], details['list']]),
      ] as const;
    };
    t.deepEqual(await found(), [0, []], 'what was known before is not news');
    const next = [
      { severity: 2, url: 'https://advisories.test/GHSA-aaaa-bbbb-cccc', versions: '(, 1.1.0)' },
      { severity: 3, url: 'https://advisories.test/GHSA-dddd-eeee-ffff', versions: '(, 2.0.0)' },
    ];
    advise(next);
    server.clock.now += hour;
    const told = ['lib', 'GHSA-dddd-eeee-ffff', ['1.0.0', '1.1.0'], null];
    let result = await found();
    // What was read of a feed is used for 10 seconds.
    await until(async () => (result[0] === 0 ? (result = await found()) : result)[0] !== 0, 60_000);
    t.deepEqual(
      [
        result[0],
        result[1].map(([name, id, references, list]) => [name, id, (references as string[]).toSorted(), list]),
      ],
      [1, [told]],
    );
    t.is((await found())[0], 0, 'told once');
    const advisory = { package: 'Own', versions: '[1.0.0]', severity: 2, url: 'https://a.test/CVE-2026-1' };
    const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(advisory) };
    t.is((await server.fetch('/v1/advisories', init)).status, 201);
    await writeFile(
      file,
      linesOf([
        osv('MAL-2026-9', 'Lib', { affected: [{ package: { ecosystem: 'NuGet', name: 'Lib' }, versions: ['1.1.0'] }] }),
      ]),
    );
    server.clock.now += 7 * hour;
    await runJob(server, 'known-bad');
    const [count, events] = await found();
    t.is(count, 2);
    t.deepEqual(
      events.slice(-2).toSorted(([one], [other]) => (String(one) < String(other) ? -1 : 1)),
      [
        ['lib', 'MAL-2026-9', ['1.1.0'], 'osv'],
        ['own', 'CVE-2026-1', ['1.0.0'], null],
      ],
    );
    const ask = async (what: string) =>
      ((await (await server.fetch(`/v1/exposed?what=${what}`)).json()) as Json)['items'] as Json[];
    t.deepEqual(
      (await ask('MAL-2026-9')).map((each) => each['reference']),
      ['1.1.0'],
    );
    t.deepEqual(
      (await ask('CVE-2026-1')).map((each) => each['name']),
      ['own'],
    );

    server.clock.now += 20 * day;
    await (await server.fetch(nupkg('lib', '2.0.0'))).arrayBuffer();
    await server.installation.core.usage.flush();
    server.clock.now += 20 * day;
    t.is((await runJob(server, 'exposure'))['deleted'], 4, 'three pulls and a push');
    const left = ['pulls', 'pull_contents', 'pull_users', 'exposures'].map(
      async (table) => (await rowsOf(server, `SELECT * FROM ${table}`)).length,
    );
    t.deepEqual(await Promise.all(left), [1, 1, 1, 0]);
    t.deepEqual(
      (await ask('Lib@*')).map((each) => each['reference']),
      ['2.0.0'],
    );
  });
}

test('pulls are deleted by the clock for deletions, in small steps, and those of other accounts do not hide a digest', async (t) => {
  let passed = 0;
  const server = await startTestServer(t, { usage: { keepPulls: '30d' } }, { watch: () => passed });
  const start = Date.UTC(2026, 10, 25, 12);
  server.clock.now = start;
  const { digest } = await new TestRepository(server, 'app').image('v1');
  const other = (id: number) => ({ account_id: 999, last_day: start - 60 * day, id: String(id).padStart(32, '0') });
  const contents = Array.from({ length: 2100 }, (_, id) => ({
    ...other(id),
    kind: 'container',
    name: 'other',
    reference: digest,
    is_compared: 1,
  }));
  const database = databaseOf(server);
  await database.transaction(async (tx) => {
    await tx.insertNew('pull_contents', contents);
    const users = Array.from({ length: 1100 }, (_, id) => ({ ...other(id), facts: '{}' }));
    await tx.insertNew('pull_users', users);
  });
  await (await server.fetch('/v2/app/manifests/v1')).arrayBuffer();
  await server.installation.core.usage.flush();
  const token = await tokenOf(server, ['read', 'admin']);
  const found = (await (await server.fetch(`/v1/exposed?what=${digest}`, { token })).json()) as Json;
  t.deepEqual(
    (found['items'] as Json[]).map((each) => each['name']),
    ['app'],
  );

  const deletions: number[] = [];
  const transaction = database.transaction.bind(database);
  database.transaction = (work, options) =>
    transaction(
      (tx) =>
        work(
          new Proxy(tx, {
            get: (target, name) => {
              const value: unknown = Reflect.get(target, name);
              if (name !== 'run' || typeof value !== 'function')
                return typeof value === 'function' ? (value.bind(target) as unknown) : value;
              return async (sql: string, values?: never[]) => {
                const rows = await target.run(sql, values);
                if (sql.includes('DELETE FROM pull_users')) deletions.push(rows);
                return rows;
              };
            },
          }),
        ),
      options,
    );
  server.clock.now += 40 * day;
  t.is((await runJob(server, 'exposure'))['deleted'], 0, 'the clock was set forward');
  t.deepEqual(deletions, [500, 500, 100]);
  t.is((await rowsOf(server, 'SELECT * FROM pulls')).length, 2, 'a push and a pull');
  passed += 40 * day;
  t.is((await runJob(server, 'exposure'))['deleted'], 2);
});

test('entrepot exposed prints who pulled a version, also beside a running server, and nothing is recorded with keepPulls 0d', async (t) => {
  const data = await folderUntilEnd(t);
  const { server } = await startPair(t, { data });
  await new TestFeed(server).publish({ id: 'Own', version: '1.0.0' }, { id: 'Own', version: '1.1.0' });
  const { value, token } = await createToken(server, ['read']);
  await (await server.fetch(nupkg('own', '1.0.0'), { token: value })).arrayBuffer();
  await server.installation.core.usage.flush();
  const exposed = (...words: string[]) => entrepot({ ENTREPOT_DATA: data }, 'exposed', ...words);
  const lines = await exposed('Own@1.0.0', '--since', '1d');
  t.is(lines.code, 0, lines.stderr);
  t.regex(lines.stdout, new RegExp(`^own 1\\.0\\.0\\tdefault\\ta test\\t${token.id}\\t-\\t\\S+Z\\t\\S+Z\\t1\\n$`));
  const item = JSON.parse((await exposed('Own@*', '--json', '--account', 'default')).stdout) as Json;
  t.like(item, { name: 'own', user: { id: token.id }, count: 1 });
  t.regex((await exposed('Own@1.1.0')).stderr, /Nobody pulled it/);
  t.is((await exposed('MAL-2026-1')).code, 1);

  const { server: silent } = await startPair(t, { usage: { keepPulls: '0d' } });
  await new TestFeed(silent).publish({ id: 'Own' });
  await silent.installation.core.usage.flush();
  t.deepEqual(await rowsOf(silent, 'SELECT * FROM pulls'), []);
});
