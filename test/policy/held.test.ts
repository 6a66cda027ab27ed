import test from 'ava';
import { ago, day, now, putPolicy, startMirrors, versionsOf } from '../support/policy.ts';
import { createToken, databaseOf, rowsOf, tokenOf } from '../support/inside.ts';
import { dialects } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import type { TestServer } from '../support/server.ts';

// What policies hold or deny of what clients have asked for, as a list.

interface Held {
  kind: string;
  name: string;
  reference: string;
  verdict: string;
  layer: string;
  rule: string;
  until: string | null;
  below_visible: boolean | null;
}

async function heldPage(server: TestServer, query = '', token = server.token) {
  const response = await server.fetch(`/v1/held?${query}`, { token });
  const { items, next_cursor: next } = (await response.json()) as { items: Held[]; next_cursor: string | null };
  return { status: response.status, items, next };
}

async function held(server: TestServer, query = '', token = server.token): Promise<string[]> {
  const { items } = await heldPage(server, query, token);
  return items.map(({ name, reference, verdict, rule }) => `${name} ${reference} ${verdict} ${rule}`);
}

for (const dialect of dialects) {
  test(`${dialect}: what is held or denied is listed until it is open, the newest first, without a request to an upstream`, async (t) => {
    const { feed, registry, server } = await startMirrors(t, dialect);
    await feed.offer({
      id: 'Lib',
      versions: [
        { version: '1.0.0', published: ago(100) },
        { version: '1.0.1', published: ago(1) },
        { version: '2.0.0', published: ago(90) },
        { version: '2.1.0', published: ago(2) },
      ],
    });
    await feed.offer({ id: 'Old', versions: [{ version: '1.0.0', published: ago(100) }] });
    await feed.offer({ id: 'Unasked', versions: [{ version: '1.0.0', published: ago(1) }] });
    registry.image('team/app', 'latest');
    registry.image('team/app', 'v1');
    const pull = (tag: string) => server.fetch(`/v2/registry.test/team/app/manifests/${tag}`);
    t.is((await pull('v1')).status, 200);
    server.clock.now! += 1000;
    const rules = [{ name: 'no-lib-1', packages: ['lib'], versions: '[1.0.0]', verdict: 'deny', reason: 'see SEC-12' }];
    await putPolicy(server, { minimumAge: { packages: '3d', images: '2d' }, rules });
    t.deepEqual(await held(server), []);
    t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '2.0.0']);
    await versionsOf(server, 'old');
    server.clock.now! += 1000;
    t.is((await pull('latest')).status, 403);

    const asked = feed.upstream.asked.length + registry.requests().length;
    const { items } = await heldPage(server);
    t.deepEqual(
      items.map(({ name, reference, verdict, rule, layer, until, below_visible: below }) => [
        `${name} ${reference} ${verdict} ${rule} ${layer}`,
        until,
        below,
      ]),
      [
        ['registry.test/team/app latest hold age all', new Date(now + 2000 + 2 * day).toISOString(), null],
        ['lib 2.1.0 hold age all', new Date(now + day).toISOString(), false],
        ['lib 1.0.1 hold age all', new Date(now + 2 * day).toISOString(), true],
        ['lib 1.0.0 deny no-lib-1 all', null, true],
      ],
    );
    t.is(feed.upstream.asked.length + registry.requests().length, asked);
    t.deepEqual(await held(server, 'kind=container'), ['registry.test/team/app latest hold age']);
    t.deepEqual(await held(server, 'q=TEAM/'), ['registry.test/team/app latest hold age']);
    t.deepEqual(await held(server, 'kind=package&q=team'), []);

    const pages: string[] = [];
    for (let cursor = ''; ;) {
      const page = await heldPage(server, `limit=1${cursor}`);
      t.true(page.items.length <= 1);
      pages.push(...page.items.map(({ reference }) => reference));
      if (page.next === null) break;
      cursor = `&cursor=${encodeURIComponent(page.next)}`;
    }
    t.deepEqual(pages, ['latest', '2.1.0', '1.0.1', '1.0.0']);
    t.is((await server.fetch('/v1/held?cursor=x')).status, 400);

    server.clock.now = now + day;
    t.deepEqual(await held(server, 'q=lib'), ['lib 1.0.1 hold age', 'lib 1.0.0 deny no-lib-1']);
    server.clock.now = now + 3 * day;
    t.deepEqual(await held(server), ['lib 1.0.0 deny no-lib-1'], 'also for documents that are no longer fresh');
    await putPolicy(server, { mode: 'audit', minimumAge: { packages: '9d' }, rules });
    t.deepEqual(await held(server), [], 'nothing waits for a policy that only counts');
    await putPolicy(server, { rules });
    t.deepEqual(await held(server), ['lib 1.0.0 deny no-lib-1']);
    await new TestFeed(server).publish({ id: 'Lib', version: '9.0.0' });
    t.deepEqual(await held(server), [], 'clients get a package of the account itself under this name');
  });
}

test('a page decides a bounded number of names, and the next one goes on', async (t) => {
  const { registry, server } = await startMirrors(t);
  registry.image('team/app', 'v1');
  await putPolicy(server, {
    minimumAge: { images: '2d' },
    rules: [{ name: 'no-last', images: ['*/last'], verdict: 'deny' }],
  });
  t.is((await server.fetch('/v2/registry.test/team/app/manifests/v1')).status, 403);
  const [entry] = await rowsOf<Record<string, string | number>>(
    server,
    "SELECT * FROM mirror_entries WHERE reference = 'v1'",
  );
  // They were never seen, so that only the rule refuses one.
  const rows = Array.from({ length: 1001 }, (_, at) => ({
    ...entry,
    id: `0${String(at).padStart(63, '0')}`,
    name: at === 1000 ? 'team/last' : `team/n${at}`,
    stored_at: now - at - 1,
  }));
  await databaseOf(server).transaction((tx) => tx.insertNew('mirror_entries', rows));
  let pages = 0;
  const found: string[] = [];
  for (let cursor = ''; ; pages += 1) {
    const { items, next } = await heldPage(server, `limit=200${cursor}`);
    found.push(...items.map(({ name }) => name));
    if (next === null) break;
    cursor = `&cursor=${encodeURIComponent(next)}`;
  }
  t.is(pages, 5, '200 names on a page');
  t.deepEqual(found, ['registry.test/team/app', 'registry.test/team/last']);
  const other = await heldPage(server, 'q=last');
  t.deepEqual([other.items.length, other.next === null], [0, false], '1000 entries for a page');
});

for (const dialect of dialects) {
  test(`${dialect}: refused requests are counted by token, for the account of the tokens only`, async (t) => {
    const { feed, registry, server } = await startMirrors(t, dialect);
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: ago(100) }] });
    registry.image('team/app', 'v1');
    const rules = [{ name: 'no-lib', packages: ['lib'], verdict: 'deny' }];
    await putPolicy(server, { minimumAge: { images: '2d' }, rules });
    const [build, other] = [await createToken(server, ['read']), await createToken(server, ['read'], 'team')];
    const file = '/v3/package/lib/1.0.0/lib.1.0.0.nupkg';
    const statusOf = async (path: string, token: string) => (await server.fetch(path, { token })).status;
    for (let at = 0; at < 2; at += 1) t.is(await statusOf(file, build.value), 403);
    t.is(await statusOf('/v2/registry.test/team/app/manifests/v1', build.value), 403);
    t.is(await statusOf('/v3/package/none/1.0.0/none.1.0.0.nupkg', build.value), 404, 'no refusal');
    t.is(await statusOf(file, server.token), 403);
    t.is(await statusOf(file, other.value), 403);
    const refusals = async (query = '', token = server.token) => {
      const response = await server.fetch(`/v1/held/refusals${query}`, { token });
      return (await response.json()) as { items: object[]; next_cursor: string | null };
    };
    const first = {
      token_id: build.token.id,
      token_name: 'a test',
      count: 3,
      names: 2,
      last_at: new Date(now).toISOString(),
    };
    const { items } = await refusals();
    t.is(items.length, 2);
    t.deepEqual(items[0], first);
    t.like(items[1], { count: 1, names: 1 });
    const page = await refusals('?limit=1');
    t.deepEqual(page.items, [first]);
    const rest = await refusals(`?limit=1&cursor=${encodeURIComponent(page.next_cursor!)}`);
    t.deepEqual([rest.items, rest.next_cursor], [items.slice(1), null]);
    const admin = await tokenOf(server, ['read', 'admin'], 'team');
    t.like((await refusals('', admin)).items, [{ token_id: other.token.id, count: 1 }]);
    t.is((await server.fetch('/v1/held/refusals', { token: build.value })).status, 403);
    const limited = await createToken(server, ['read', 'admin'], 'team', { packages: ['lib'], containers: [] });
    t.is((await server.fetch('/v1/held/refusals', { token: limited.value })).status, 403);
    server.clock.now = now + 3 * day;
    t.deepEqual((await refusals()).items, []);
  });
}

test('a version without a date waits from its first sighting on, and a list of what waits is no sighting', async (t) => {
  const { feed, server } = await startMirrors(t);
  const undated = { version: '1.0.0', entry: { published: undefined, commitTimeStamp: undefined } };
  await feed.offer({ id: 'Lib', versions: [undated] });
  await feed.offer({ id: 'Stored', versions: [undated] });
  t.deepEqual(await versionsOf(server, 'stored'), ['1.0.0']);
  t.is((await server.fetch('/v3/registration-gz-semver2/stored/index.json')).status, 200);
  await putPolicy(server, { minimumAge: { packages: '3d' } });
  t.deepEqual(await versionsOf(server, 'lib'), []);
  const sightings = () => rowsOf(server, "SELECT name FROM history WHERE kind = 'listed'");
  t.deepEqual(await sightings(), [{ name: 'lib' }]);
  server.clock.now = now + 1000;
  const { items } = await heldPage(server);
  const found = new Map(items.map(({ name, until }) => [name, until]));
  t.is(found.get('lib'), new Date(now + 3 * day).toISOString());
  t.is(found.get('stored'), null, 'no client has asked for it under the policy');
  t.deepEqual(await sightings(), [{ name: 'lib' }]);
});

test('an account sees what its own policy holds, and a token what its patterns match', async (t) => {
  const { feed, server } = await startMirrors(t);
  for (const id of ['Lib', 'Other']) await feed.offer({ id, versions: [{ version: '1.0.0', published: ago(1) }] });
  const token = await tokenOf(server, ['read', 'operate', 'admin'], 'team');
  await putPolicy(server, { minimumAge: { packages: '3d' } }, { layer: 'account', token });
  for (const id of ['lib', 'other']) t.deepEqual(await versionsOf(server, id, token), []);
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
  t.deepEqual(await held(server), [], 'the other account has no policy');
  t.deepEqual((await held(server, '', token)).toSorted(), ['lib 1.0.0 hold age', 'other 1.0.0 hold age']);
  const { items } = await heldPage(server, 'q=lib', token);
  t.is(items[0]!.layer, 'account');
  await feed.offer({ id: 'Two', versions: ['1.0.0', '2.0.0'].map((version) => ({ version, published: ago(1) })) });
  server.clock.now! += 1000;
  t.deepEqual(await versionsOf(server, 'two', token), []);
  const two = ['two 2.0.0 hold age', 'two 1.0.0 hold age'];
  t.deepEqual((await held(server, '', token)).slice(0, 2), two);
  const first = await heldPage(server, 'limit=1', token);
  const second = await heldPage(server, `limit=1&cursor=${encodeURIComponent(first.next!)}`, token);
  const third = await heldPage(server, `limit=9&cursor=${encodeURIComponent(second.next!)}`, token);
  t.deepEqual(
    [first, second, third].map((page) => page.items.map(({ name, reference }) => `${name} ${reference}`).toSorted()),
    [['two 2.0.0'], ['two 1.0.0'], ['lib 1.0.0', 'other 1.0.0']],
    'the second page goes on within the first name',
  );
  const limited = await createToken(server, ['read', 'operate'], 'team', { packages: ['li*'], containers: [] });
  t.deepEqual(await held(server, '', limited.value), ['lib 1.0.0 hold age']);
  const reader = await tokenOf(server, ['read'], 'team');
  t.is((await server.fetch('/v1/held', { token: reader })).status, 403);
  t.is((await server.fetch('/v1/held', { token: null })).status, 401);
});
