import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { ago, day, now, putPolicy, startMirrors, versionsOf } from '../support/policy.ts';
import { dialects } from '../support/databases.ts';
import { auditOf, said } from '../support/audit.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { createToken, flushEvents, rowsOf } from '../support/inside.ts';
import { TestFeed } from '../support/feed.ts';
import { OpenDocument } from '../support/open-document.ts';
import { ociIndex, ociManifest, TestRepository } from '../support/registry.ts';
import type { TestServer } from '../support/server.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { Visitor } from '../support/visitor.ts';

// Policies from outside: what clients of both protocols get under a minimum age and under rules.

const dayOf = (days: number) => ago(days).slice(0, 10);
const manifestPath = (reference: string) => `/v2/registry.test/team/app/manifests/${reference}`;
const png = Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), Buffer.alloc(20, 1)]);
const download = (id: string, version: string) => `/v3/package/${id}/${version}/${id}.${version}.nupkg`;

const undated = (version: string) => ({ version, entry: { published: undefined, commitTimeStamp: undefined } });

async function tagsOf(server: TestServer): Promise<string[]> {
  return ((await (await server.fetch('/v2/registry.test/team/app/tags/list')).json()) as { tags: string[] }).tags;
}

async function movedTag(t: ExecutionContext, dialect: Dialect, minimumAge: object) {
  const { registry, server } = await startMirrors(t, dialect);
  const first = registry.image('team/app', 'latest');
  const { config, manifest: subject } = first;
  const signature = registry.manifest('team/app', {
    schemaVersion: 2,
    mediaType: ociManifest,
    config,
    layers: [],
    subject,
  });
  registry.on(`/v2/team/app/referrers/${subject.digest}`, (_request, response) => {
    response.writeHead(200, { 'content-type': ociIndex });
    response.end(JSON.stringify({ schemaVersion: 2, manifests: [signature] }));
  });
  const pull = (reference: string) => server.fetch(`/v2/registry.test/team/app/manifests/${reference}`);
  const digestOf = async (reference: string) => (await pull(reference)).headers.get('docker-content-digest');
  t.is((await putPolicy(server, { minimumAge })).status, 200);

  const refused = await pull('latest');
  t.is(refused.status, 403);
  const { errors } = (await refused.json()) as { errors: { code: string; message: string }[] };
  t.is(errors[0]!.code, 'DENIED');
  t.regex(errors[0]!.message, /younger than 2 days; it can be used from 2026-11-27T12:00Z on/);
  t.is(refused.headers.get('www-authenticate'), null, 'a client that asks for a password helps nobody');
  t.is((await pull(first.manifest.digest)).status, 403, 'not by its digest either');
  const referrers = await server.fetch(`/v2/registry.test/team/app/referrers/${first.manifest.digest}`);
  t.like(await referrers.json(), { manifests: [] });
  t.is((await server.fetch(`/v2/registry.test/team/app/blobs/${first.layer.digest}`)).status, 403);
  t.is((await server.fetch('/v2/registry.test/team/app/manifests/latest', { method: 'HEAD' })).status, 403);

  server.clock.now = now + 2 * day;
  t.is(await digestOf('latest'), first.manifest.digest);
  t.is((await server.fetch(`/v2/registry.test/team/app/blobs/${first.layer.digest}`)).status, 200);

  const second = registry.image('team/app', 'latest');
  server.clock.now += 60_000;
  t.is(await digestOf('latest'), first.manifest.digest);
  t.is((await pull(second.manifest.digest)).status, 403);
  t.is((await server.fetch(`/v2/registry.test/team/app/blobs/${second.layer.digest}`)).status, 403);
  registry.image('team/app', 'new');
  t.is((await pull('new')).status, 403);
  const api = '/v1/containers/registry.test/team/app';
  const shown = await (await server.fetch(`${api}/tags`)).json();
  t.like(shown, { items: [{ name: 'latest', digest: first.manifest.digest }, undefined] }, 'no held tag');
  t.like(await (await server.fetch(`${api}/manifests/latest`)).json(), { digest: first.manifest.digest });
  t.like(await (await server.fetch('/v1/containers?tags=5')).json(), {
    items: [{ tags: [{ name: 'latest', digest: first.manifest.digest }] }],
  });
  const list = JSON.stringify({ name: 'team/app', tags: ['latest', 'new', 'other'] });
  registry.on('/v2/team/app/tags/list', (_, response) => void response.end(list));
  for (let time = 0; time < 2; time += 1)
    t.deepEqual(await tagsOf(server), ['latest', 'other'], 'a moved tag is shown, because clients get its last digest');
  registry.on('/v2/team/app/tags/list', answer(503));
  server.clock.now += 1000;
  t.deepEqual(await tagsOf(server), ['latest', 'other'], 'the stored list');
  server.clock.now += 2 * day - 1001;
  t.is(await digestOf('latest'), first.manifest.digest);
  server.clock.now += 1;
  t.is(await digestOf('latest'), second.manifest.digest);
}

async function imagesOfIndex(t: ExecutionContext, minimumAge: object) {
  const { registry, server } = await startMirrors(t);
  const child = registry.image('team/app', 'child');
  const descriptor = { mediaType: ociManifest, digest: child.manifest.digest, size: child.manifest.size };
  const index = registry.manifest(
    'team/app',
    { schemaVersion: 2, mediaType: ociIndex, manifests: [descriptor] },
    'multi',
  );
  const pull = async (reference: string) =>
    (await server.fetch(`/v2/registry.test/team/app/manifests/${reference}`)).status;
  await putPolicy(server, { minimumAge });
  t.is(await pull('multi'), 403);
  server.clock.now = now + 2 * day;
  t.is(await pull('multi'), 200);
  t.is(await pull(child.manifest.digest), 200, 'it was never requested before');
  t.is((await server.fetch(`/v2/registry.test/team/app/blobs/${child.layer.digest}`)).status, 200);
  const rules = [{ name: 'bad', digests: [child.manifest.digest], verdict: 'deny' }];
  await putPolicy(server, { minimumAge, rules });
  t.is(await pull(child.manifest.digest), 403);
  t.is(await pull(index.digest), 200);
}

for (const dialect of dialects) {
  test(`${dialect}: a young version is hidden until it is old enough`, async (t) => {
    const { feed, server } = await startMirrors(t, dialect);
    await feed.offer({
      id: 'Lib',
      versions: [
        { version: '1.0.0', published: ago(100) },
        { version: '1.1.0', published: ago(1) },
      ],
    });
    t.is((await putPolicy(server, { minimumAge: { packages: '3d' } })).status, 200);
    t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
    t.is((await server.fetch(download('lib', '1.1.0'))).status, 404);
    t.is((await server.fetch(download('lib', '1.0.0'))).status, 200);
    const registration = await (await server.fetch('/v3/registration-gz-semver2/lib/index.json')).text();
    t.true(registration.includes('1.0.0'));
    t.false(registration.includes('1.1.0'));

    server.clock.now = now + 2 * day - 1;
    t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
    server.clock.now = now + 2 * day;
    t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '1.1.0']);
    t.is((await server.fetch(download('lib', '1.1.0'))).status, 200);
  });

  test(`${dialect}: of changes of one policy at the same time, each has its own revision, and the last one is enforced`, async (t) => {
    const { feed, server } = await startMirrors(t, dialect);
    const ids = Array.from({ length: 8 }, (_, at) => `lib${at}`);
    for (const id of ids) await feed.offer({ id, versions: [{ version: '1.0.0' }] });
    const change = async (id: string) => {
      const response = await putPolicy(server, { rules: [{ name: id, packages: [id], verdict: 'deny' }] });
      return ((await response.json()) as { revision: number }).revision;
    };
    // The first ones make the policy.
    for (const before of [0, ids.length]) {
      const revisions = await Promise.all(ids.map(change));
      t.deepEqual(
        revisions.toSorted((one, other) => one - other),
        ids.map((_, at) => before + at + 1),
      );
      const denied: string[] = [];
      for (const id of ids) if ((await server.fetch(download(id, '1.0.0'))).status === 403) denied.push(id);
      t.deepEqual(denied, [ids[revisions.indexOf(before + ids.length)]!]);
    }
  });

  test(`${dialect}: a moved tag answers its last digest that is old enough`, (t) =>
    movedTag(t, dialect, { images: '2d' }));
  test(`${dialect}: a moved tag answers its last digest that is old enough, also while lists show held packages`, (t) =>
    movedTag(t, dialect, { images: '2d', held: 'list' }));
}

test('the images of an index are as old as the index, unless they are denied', (t) =>
  imagesOfIndex(t, { images: '2d' }));

test('the images of an index are as old as the index, also while lists show held packages', (t) =>
  imagesOfIndex(t, { images: '2d', held: 'list' }));

const indexOf = (...manifests: object[]) => ({ schemaVersion: 2, mediaType: ociIndex, manifests });

test('the images of an index in an index are as old as the outer one', async (t) => {
  const { registry, server } = await startMirrors(t);
  const { manifest, layer } = registry.image('team/app', 'child');
  const child = { mediaType: ociManifest, digest: manifest.digest, size: manifest.size };
  const inner = registry.manifest('team/app', indexOf(child));
  registry.manifest('team/app', indexOf(inner), 'multi');
  const status = async (path: string) => (await server.fetch(`/v2/registry.test/team/app/${path}`)).status;
  await putPolicy(server, { minimumAge: { images: '2d' } });
  t.is(await status('manifests/multi'), 403);
  server.clock.now = now + 2 * day;
  for (const path of ['manifests/multi', `manifests/${inner.digest}`, `manifests/${child.digest}`])
    t.is(await status(path), 200, path);
  t.is(await status(`blobs/${layer.digest}`), 200);
});

test('what was stored before a policy stays, and what is denied is refused at once', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', published: ago(0) },
      { version: '2.0.0', published: ago(0) },
    ],
  });
  registry.image('team/app', 'v1');
  const tag = '/v2/registry.test/team/app/manifests/v1';
  for (const path of [download('lib', '1.0.0'), tag]) t.is((await server.fetch(path)).status, 200);
  server.clock.now = now + 1000;
  const age = { packages: '3d', images: '3d' };
  await putPolicy(server, { minimumAge: age });
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0'], 'the other one was never stored');
  for (const path of [download('lib', '1.0.0'), tag]) t.is((await server.fetch(path)).status, 200);

  const rules = [
    { name: 'no-one', packages: ['lib'], versions: '[1.0.0]', verdict: 'deny', reason: 'MAL-2026-1' },
    { name: 'no-tag', images: ['registry.test/team/*'], tags: ['v1'], verdict: 'deny' },
  ];
  await putPolicy(server, { minimumAge: age, rules });
  const refused = await server.fetch(download('lib', '1.0.0'));
  t.is(refused.status, 403);
  t.true(refused.statusText.includes('MAL-2026-1'), refused.statusText);
  t.is(refused.headers.get('www-authenticate'), null);
  t.is((await server.fetch(download('lib', '1.0.0'), { method: 'HEAD' })).status, 403);
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0'], 'it stays in lists, so that no client takes another one');
  t.is((await server.fetch(tag)).status, 403);

  await putPolicy(server, { mode: 'audit', minimumAge: age, rules });
  for (const path of [download('lib', '1.0.0'), download('lib', '2.0.0'), tag]) {
    t.is((await server.fetch(path)).status, 200, 'audit refuses nothing');
  }
  const metrics = await (await server.fetch('/metrics')).text();
  t.regex(metrics, /entrepot_policy_refusals_total\{kind="package",verdict="deny",mode="audit"\} 1/);
  t.regex(metrics, /entrepot_policy_refusals_total\{kind="image",verdict="deny",mode="enforce"\} [1-9]/);

  server.clock.now += 1000;
  await putPolicy(server, { mode: 'enforce', minimumAge: { packages: '9d', images: '9d' } });
  for (const path of [download('lib', '2.0.0'), tag]) {
    t.is((await server.fetch(path)).status, 200, 'what was open is not held by a later change');
  }
  await putPolicy(server, {});
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '2.0.0']);
});

test('a tag is denied by the digest that it has now at its upstream, and one that is denied by its name is not asked for', async (t) => {
  const { registry, server } = await startMirrors(t);
  const bad = registry.image('team/app', 'latest').manifest.digest;
  const statusOf = async (reference: string) => (await server.fetch(manifestPath(reference))).status;
  for (const each of ['latest', bad]) t.is(await statusOf(each), 200);
  await putPolicy(server, { rules: [{ name: 'bad', digests: [bad], verdict: 'deny' }] });
  for (const each of ['latest', bad]) t.is(await statusOf(each), 403, each);
  const next = registry.image('team/app', 'latest').manifest.digest;
  server.clock.now = now + 2000;
  const moved = await server.fetch(manifestPath('latest'));
  t.deepEqual([moved.status, moved.headers.get('docker-content-digest')], [200, next]);
  t.is(await statusOf(bad), 403);

  await putPolicy(server, { rules: [{ name: 'named', images: ['*'], tags: ['latest'], verdict: 'deny' }] });
  const asked = registry.requests().length;
  server.clock.now += 2000;
  for (const path of [manifestPath('latest'), '/v2/team/app/manifests/latest?ns=registry.test'])
    t.is((await server.fetch(path)).status, 403, path);
  t.is(registry.requests().length, asked, 'no digest would open it');
  t.is(await statusOf(next), 200);
});

test('each pull that a policy refuses, or would refuse, counts once', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: ago(1) }] });
  const image = registry.image('team/app', 'v1');
  const age = { packages: '3d', images: '3d' };
  const counts = async () => {
    const metrics = await (await server.fetch('/metrics')).text();
    return Object.fromEntries(
      [
        ...metrics.matchAll(
          /^entrepot_policy_refusals_total\{kind="(\w+)",verdict="(\w+)",mode="(\w+)"\} ([1-9].*)$/gm,
        ),
      ].map(([, kind, verdict, mode, count]) => [`${kind} ${verdict} ${mode}`, Number(count)]),
    );
  };
  const statuses = async () => {
    const paths = [download('lib', '1.0.0'), manifestPath('v1'), manifestPath(image.manifest.digest)];
    const found: number[] = [];
    for (const path of paths) found.push((await server.fetch(path)).status);
    return found;
  };
  await putPolicy(server, { mode: 'audit', minimumAge: age });
  t.deepEqual(await statuses(), [200, 200, 200]);
  t.deepEqual(await counts(), { 'package hold audit': 1, 'image hold audit': 2 });

  await putPolicy(server, {
    mode: 'audit',
    minimumAge: age,
    rules: [{ name: 'none', images: ['registry.test/team/*'], verdict: 'deny' }],
  });
  t.deepEqual(await statuses(), [200, 200, 200]);
  t.deepEqual(await counts(), { 'package hold audit': 2, 'image hold audit': 2, 'image deny audit': 2 });

  const other = registry.image('team/app', 'v2');
  await putPolicy(server, { minimumAge: age });
  for (const each of ['v2', other.manifest.digest, 'v2']) t.is((await server.fetch(manifestPath(each))).status, 403);
  t.like(await counts(), { 'image hold enforce': 3 });
  await putPolicy(server, { rules: [{ name: 'none', images: ['registry.test/team/*'], verdict: 'deny' }] });
  for (const each of ['v2', other.manifest.digest]) t.is((await server.fetch(manifestPath(each))).status, 403);
  t.like(await counts(), { 'image hold enforce': 3, 'image deny enforce': 2 });
});

test('an account adds to the policy of all accounts, and cannot lift it', async (t) => {
  const { feed, server } = await startMirrors(t);
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', published: ago(5) },
      { version: '2.0.0', published: ago(2) },
    ],
  });
  await feed.offer({ id: 'Bad', versions: [{ version: '1.0.0', published: ago(50) }] });
  const rules = [{ name: 'bad', packages: ['bad'], verdict: 'deny' }];
  const admin = (await createToken(server, ['read', 'admin'], 'team')).value;
  const reader = (await createToken(server, ['read'], 'team')).value;
  const limited = (await createToken(server, ['read', 'admin'], 'team', { packages: ['*'] })).value;
  await putPolicy(server, { minimumAge: { packages: '1d' }, rules });
  t.is((await putPolicy(server, { minimumAge: { packages: '3d' } }, { layer: 'account', token: admin })).status, 200);
  t.deepEqual(await versionsOf(server, 'lib', reader), ['1.0.0']);
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '2.0.0'], 'another account');
  const allow = [{ name: 'mine', packages: ['*'], verdict: 'allow' }];
  await putPolicy(server, { rules: allow }, { layer: 'account', token: admin });
  t.is((await server.fetch(download('bad', '1.0.0'), { token: reader })).status, 403);

  for (const [layer, token] of [
    ['account', reader],
    ['all', admin],
    ['account', limited],
  ] as const)
    t.is((await putPolicy(server, {}, { layer, token })).status, 403, layer);
  t.is((await server.fetch('/v1/policy?layer=all', { token: admin })).status, 403);
  const own = (await (await server.fetch('/v1/policy', { token: reader })).json()) as Record<string, unknown>;
  t.like(own, { layer: 'account', policy: { rules: allow }, revision: 2 });
  const others = (await (await server.fetch('/v1/policy')).json()) as Record<string, unknown>;
  t.like(others, { policy: null, revision: 0 }, 'no account sees the one of another');
  t.is((await putPolicy(server, { foo: 1 })).status, 400);
  t.is((await server.fetch(download('bad', '1.0.0'))).status, 403, 'a refused policy changes nothing');
});

test('an upstream that does not say dates: a version is held from its first sighting on, or for ever', async (t) => {
  const { feed, server } = await startMirrors(t);
  await feed.offer({
    id: 'Lib',
    versions: [{ version: '1.0.0', entry: { published: undefined, commitTimeStamp: undefined } }],
  });
  await putPolicy(server, { minimumAge: { packages: '3d' } });
  t.deepEqual(await versionsOf(server, 'lib'), []);
  server.clock.now = now + 3 * day - 1;
  t.deepEqual(await versionsOf(server, 'lib'), []);
  server.clock.now = now + 3 * day;
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
  await putPolicy(server, { minimumAge: { packages: '3d', unknownDate: 'hold' } });
  server.clock.now = now + 100 * day;
  t.deepEqual(await versionsOf(server, 'lib'), []);
});

test('what is held because its date is not known stays held when its policy is changed', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  await feed.offer({ id: 'Lib', versions: [undated('1.0.0')] });
  registry.image('team/app', 'v1');
  const team = (await createToken(server, ['read', 'admin'], 'team')).value;
  const minimumAge = { packages: '3d', images: '3d', unknownDate: 'hold' };
  const put = async (policy: object) =>
    t.is((await putPolicy(server, policy, { layer: 'account', token: team })).status, 200);
  const statuses = async () => {
    const found: number[] = [];
    for (const path of [download('lib', '1.0.0'), manifestPath('v1')])
      found.push((await server.fetch(path, { token: team })).status);
    return found;
  };
  await put({ minimumAge });
  for (const path of [download('lib', '1.0.0'), manifestPath('v1')])
    t.is((await server.fetch(path)).status, 200, 'another account, without the policy');
  t.deepEqual(await statuses(), [404, 403]);
  for (const age of [minimumAge, { ...minimumAge, packages: '9d' }, minimumAge]) {
    server.clock.now! += 30 * day;
    await put({ minimumAge: age });
    t.deepEqual(await statuses(), [404, 403]);
  }
  // What was open while the first sighting counted stays open under later policies.
  await put({ minimumAge: { ...minimumAge, unknownDate: 'firstSeen' } });
  t.deepEqual(await statuses(), [200, 200]);
  for (let time = 0; time < 2; time += 1) {
    server.clock.now! += 1000;
    await put({ minimumAge });
    t.deepEqual(await statuses(), [200, 200]);
  }
});

for (const asked of ['under a policy', 'as of a date without a policy'])
  test(`${asked}: a version is first offered when its upstream offers it, not when somebody asks for it`, async (t) => {
    const { feed, server } = await startMirrors(t);
    await feed.offer({ id: 'Lib', versions: [undated('1.0.0')] });
    const minimumAge = { packages: '3d' };
    const isPast = asked !== 'under a policy';
    if (!isPast) await putPolicy(server, { minimumAge });
    const before = isPast ? `/as-of/${dayOf(0)}` : '';
    const statusOf = async (id: string, version: string) =>
      (await server.fetch(`${before}${download(id, version)}`)).status;
    const recorded = () =>
      rowsOf<{ name: string; reference: string }>(server, "SELECT name, reference FROM history WHERE kind = 'listed'");
    // Until then, the day is not over.
    if (isPast) server.clock.now = now + day;
    for (const [id, version] of [
      ['lib', '2.0.0'],
      ['nothing', '1.0.0'],
    ] as const)
      t.is(await statusOf(id, version), 404, id);
    t.deepEqual(await recorded(), []);
    t.is(await statusOf('lib', '1.0.0'), 404);
    t.deepEqual(await recorded(), [{ name: 'lib', reference: '1.0.0' }], 'the one that is offered');

    server.clock.now! += 4 * day;
    await feed.offer({ id: 'Lib', versions: [undated('1.0.0'), undated('2.0.0')] });
    if (isPast) await putPolicy(server, { minimumAge });
    t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
    t.is((await server.fetch(download('lib', '2.0.0'))).status, 404, 'its age has just begun');
    server.clock.now! += 3 * day;
    t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '2.0.0']);
    t.is((await server.fetch(download('lib', '2.0.0'))).status, 200);
  });

test('an upstream that lies about dates opens nothing before its first sighting here is old enough', async (t) => {
  const { feed, server } = await startMirrors(t);
  const versions = [
    { version: '1.0.0', published: '2099-01-01T00:00:00Z' },
    { version: '1.1.0', published: '1900-01-01T00:00:00+00:00' },
    { version: '1.2.0', published: '0001-01-01T00:00:00' },
    { version: '1.3.0', published: '+999999-99-99' },
    { version: '1.4.0', published: ago(-2) },
    { version: '2.0.0', published: '1900-01-01T00:00:00+00:00', changed: ago(9) },
    // As far ahead as a clock may be.
    { version: '3.0.0', published: new Date(now + 4 * 60_000).toISOString() },
  ];
  await feed.offer({ id: 'Lib', versions });
  await putPolicy(server, { minimumAge: { packages: '3d' } });
  const open = () => versionsOf(server, 'lib');
  t.deepEqual(await open(), ['2.0.0'], 'unlisted, and not changed for nine days');
  server.clock.now = now + 3 * day - 1;
  t.deepEqual(await open(), ['2.0.0']);
  server.clock.now = now + 3 * day;
  t.deepEqual(await open(), ['1.0.0', '1.1.0', '1.2.0', '1.3.0', '2.0.0'], '1.4.0 has a date by now');
  server.clock.now = now + 3 * day + 5 * 60_000;
  t.true((await open()).includes('3.0.0'));
  server.clock.now = now + 5 * day;
  t.is((await open()).length, versions.length);
  await putPolicy(server, { minimumAge: { packages: '3d', unknownDate: 'hold' } });
  t.deepEqual(await open(), ['1.4.0', '2.0.0', '3.0.0']);
});

test('a clock that was set back holds what is too young then, and forgets no date', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: ago(1) }] });
  const image = registry.image('team/app', 'v1').manifest.digest;
  await putPolicy(server, { minimumAge: { packages: '3d', images: '3d' } });
  const statuses = async () => {
    const found = [await versionsOf(server, 'lib')].flat().map(() => 200);
    for (const path of [download('lib', '1.0.0'), manifestPath(image), manifestPath('v1')])
      found.push((await server.fetch(path)).status);
    return found;
  };
  t.deepEqual(await statuses(), [404, 403, 403]);
  server.clock.now = now + 3 * day;
  t.deepEqual(await statuses(), [200, 200, 200, 200]);
  server.clock.now = now + 5000;
  t.deepEqual(await statuses(), [404, 403, 403], 'no verdict of the later time is used');
  server.clock.now = now - 30 * day;
  t.deepEqual(await statuses(), [404, 403, 403]);
  server.clock.now = now + 3 * day;
  t.deepEqual(await statuses(), [200, 200, 200, 200], 'its age counts from the first sighting of all');
});

test('a feed whose dates cannot be read is an upstream that fails, not one without versions', async (t) => {
  const { feed, server } = await startMirrors(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: ago(50) }] });
  feed.upstream.on('/registration/lib/index.json', (_request, response) => void response.writeHead(503).end());
  await putPolicy(server, { minimumAge: { packages: '3d' } });
  t.is((await server.fetch('/v3/package/lib/index.json')).status, 502);
  await putPolicy(server, { mode: 'audit', minimumAge: { packages: '3d' } });
  t.is((await server.fetch('/v3/package/lib/index.json')).status, 200);
  t.is((await server.fetch(download('lib', '1.0.0'))).status, 200);
});

test('an explanation says the verdict, the rule, until when, and what led to it', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', published: ago(5) },
      { version: '2.0.0', published: ago(1) },
      { version: '3.0.0', published: '1900-01-01T00:00:00Z' },
    ],
  });
  const { manifest } = registry.image('team/app', 'v1');
  const document = await OpenDocument.of(server);
  const explain = async (kind: string, name: string, reference: string, more = '') => {
    const path = `/v1/explain?kind=${kind}&name=${name}&reference=${encodeURIComponent(reference)}${more}`;
    return document.read('GET /explain', await server.fetch(path));
  };
  t.like(await explain('package', 'Lib', '2.0.0'), { verdict: 'allow', layer: null, until: null });
  const rules = [{ name: 'no-tag', images: ['registry.test/*'], tags: ['v1'], verdict: 'deny', reason: 'see SEC-1' }];
  await putPolicy(server, { minimumAge: { packages: '3d', images: '3d' }, rules });
  t.like(await explain('package', 'lib', '2.0'), {
    verdict: 'hold',
    layer: 'all',
    rule: 'age',
    until: '2026-11-27T12:00:00.000Z',
    evidence: ['published 2026-11-24T12:00Z'],
    facts: { published_at: ago(1), first_seen_at: null, listed: true },
  });
  t.like(await explain('package', 'Lib', '3.0.0'), { facts: { listed: false } });
  t.like(await explain('package', 'Lib', '2.0.0', '&at=2026-11-27T11:59:59Z'), { verdict: 'hold' });
  t.like(await explain('package', 'Lib', '2.0.0', '&at=2026-11-27T12:00:00Z'), { verdict: 'allow' });
  t.is((await server.fetch('/v1/explain?kind=package&name=Lib&reference=2.0.0&at=soon')).status, 400);
  t.like(await explain('package', 'Lib', '1.0.0'), { verdict: 'allow' });
  t.like(await explain('container', 'registry.test/team/app', 'v1'), {
    verdict: 'deny',
    rule: 'no-tag',
    reason: 'see SEC-1',
  });
  t.is((await server.fetch('/v2/registry.test/team/app/manifests/v1')).status, 403);
  t.is((await server.fetch(`/v2/registry.test/team/app/manifests/${manifest.digest}`)).status, 403);
  t.like(await explain('container', 'registry.test/team/app', manifest.digest), {
    verdict: 'hold',
    until: '2026-11-28T12:00:00.000Z',
    facts: { listed: null },
  });
  await putPolicy(server, { mode: 'audit', minimumAge: { packages: '3d' } });
  t.like(await explain('package', 'Lib', '2.0.0'), { verdict: 'allow', audited: { verdict: 'hold', rule: 'age' } });
  t.like(await explain('package', 'Lib', '???'), { facts: null });
  t.like(await explain('package', 'Missing', '1.0.0'), { verdict: 'allow' });
});

test('as of a date: what existed then and is old enough or allowed today', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', published: ago(9) },
      { version: '1.1.0', published: ago(8) },
      { version: '1.2.0', published: ago(2) },
    ],
  });
  const rules = [{ name: 'no-1.1', packages: ['Lib'], versions: '[1.1.0]', verdict: 'deny', reason: 'see SEC-12' }];
  await putPolicy(server, { minimumAge: { packages: '3d', images: '2d' }, rules });
  const flat = async (days: number) =>
    ((await (await server.fetch(`/as-of/${dayOf(days)}/v3/package/lib/index.json`)).json()) as { versions: string[] })
      .versions;
  t.deepEqual(await flat(9), ['1.0.0']);
  t.deepEqual(await flat(1), ['1.0.0', '1.1.0'], 'the last one is too young today');
  const denied = await server.fetch(`/as-of/${dayOf(1)}${download('lib', '1.1.0')}`);
  t.is(denied.status, 403);
  t.regex(denied.statusText, /SEC-12/);

  const pull = (name: string) => server.fetch(`/v2/${name}/manifests/latest`);
  const first = registry.image('team/app', 'latest').manifest.digest;
  t.is((await pull('registry.test/team/app')).status, 403);
  server.clock.now = now + 3 * day;
  t.is((await pull('registry.test/team/app')).status, 200);
  registry.image('team/app', 'latest');
  server.clock.now += 60_000;
  t.is((await pull('registry.test/team/app')).headers.get('docker-content-digest'), first);
  const then = await pull(`as-of/${dayOf(0)}/registry.test/team/app`);
  t.deepEqual([then.status, then.headers.get('docker-content-digest')], [200, first], 'its digest of now is held');
  t.is((await pull(`as-of/${dayOf(-3)}/registry.test/team/app`)).status, 403, 'its digest of that day is held');
});

test('what was dropped from the store keeps its age', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  const { manifest } = registry.image('team/app', 'v1');
  await feed.offer({ id: 'Undated', versions: [{ version: '1.0.0', published: 'never' }] });
  const paths = [manifestPath('v1'), download('undated', '1.0.0')];
  for (const path of paths) t.is((await server.fetch(path)).status, 200);
  server.clock.now = now + 4 * day;
  await putPolicy(server, { minimumAge: { packages: '3d', images: '3d' } });
  for (const path of [
    'containers/registry.test%2Fteam%2Fapp/v1',
    `containers/registry.test%2Fteam%2Fapp/${manifest.digest}`,
  ])
    t.is((await server.fetch(`/v1/${path}`, { method: 'DELETE' })).status, 204);
  t.is((await server.fetch('/v1/packages/Undated/1.0.0', { method: 'DELETE' })).status, 204);
  for (const path of paths) t.is((await server.fetch(path)).status, 200, path);
});

test('hosted content has no age, and a package with nothing but young prereleases is not there', async (t) => {
  const { feed, server } = await startMirrors(t);
  const young = ['1.0.0-beta.1', '1.0.0-beta.2'].map((version) => ({ version, published: ago(1) }));
  await feed.offer({ id: 'Early', versions: young });
  await putPolicy(server, { minimumAge: { packages: '3d', images: '3d' } });
  await new TestFeed(server).publish({ id: 'Own' });
  const own = await new TestRepository(server, 'team/own').image('v1');
  t.is((await server.fetch(download('own', '1.0.0'))).status, 200);
  t.is((await server.fetch(`/v2/team/own/manifests/${own.digest}`)).status, 200);
  for (const path of ['package/early/index.json', 'registration-gz-semver2/early/index.json'])
    t.is((await server.fetch(`/v3/${path}`)).status, 404, path);
  const found = await (await server.fetch('/v3/search?q=early&prerelease=true&semVerLevel=2.0.0')).json();
  t.like(found, { data: [] });
  server.clock.now = now + 3 * day;
  t.deepEqual(await versionsOf(server, 'early'), ['1.0.0-beta.1', '1.0.0-beta.2']);
});

for (const dialect of dialects) {
  test(`${dialect}: nothing is open while a policy is replaced`, async (t) => {
    const { feed, server } = await startMirrors(t, dialect);
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: ago(1) }] });
    await putPolicy(server, { minimumAge: { packages: '3d' } });
    const statuses = new Set<number>();
    let [requests, replaced] = [0, 0];
    const isDone = () => requests >= 60 && replaced >= 20;
    const replace = async () => {
      for (; !isDone(); replaced += 1)
        t.is((await putPolicy(server, { minimumAge: { packages: `${4 + (replaced % 20)}d` } })).status, 200);
    };
    const ask = async () => {
      for (; !isDone(); requests += 1) statuses.add((await server.fetch(download('lib', '1.0.0'))).status);
    };
    await Promise.all([replace(), ask(), ask(), ask()]);
    t.deepEqual([...statuses], [404]);
  });
}

test('refused requests of one client for one reference are one event a minute, with the reason', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  const versions = [
    { version: '1.0.0', published: ago(1) },
    { version: '2.0.0', published: ago(9) },
  ];
  await feed.offer({ id: 'Lib', versions });
  registry.image('team/app', 'v1');
  const rules = [{ name: 'no-two', packages: ['Lib'], versions: '[2.0.0]', verdict: 'deny', reason: 'see SEC-12' }];
  const policy = { minimumAge: { packages: '3d', images: '3d' }, rules };
  const ask = async () => {
    const paths = [download('lib', '1.0.0'), download('lib', '2.0.0'), manifestPath('v1'), download('lib', '2.0.0')];
    for (const path of paths) await (await server.fetch(path)).arrayBuffer();
  };
  const events = async () => {
    await flushEvents(server);
    return auditOf(server, 'type=policy.refused');
  };
  await putPolicy(server, policy);
  await ask();
  t.deepEqual(await events(), [], 'the minute is not over');
  server.clock.now! += 60_000;
  const found = await events();
  t.deepEqual(found.map(said).toSorted(), [
    'policy.refused lib 1.0.0',
    'policy.refused lib 2.0.0',
    'policy.refused registry.test/team/app v1',
  ]);
  t.like(
    found.find((each) => said(each).endsWith('v1')),
    {
      account: 'default',
      details: { verdict: 'hold', layer: 'all', rule: 'age', upstream: 'registry.test', count: 1 },
    },
  );
  t.like(
    found.find((each) => said(each).endsWith('2.0.0')),
    { details: { verdict: 'deny', rule: 'no-two', reason: 'see SEC-12', upstream: 'feed.test', count: 2 } },
  );

  await putPolicy(server, { ...policy, mode: 'audit' });
  await ask();
  server.clock.now! += 60_000;
  t.is((await events()).length, 3, 'a policy that only watches refuses nothing');
});

test('the files of a stored version that is denied are refused in /v1 and the console, too, while lists show it', async (t) => {
  const { feed, server } = await startMirrors(t);
  const versions = await Promise.all(
    ['1.0.0', '2.0.0'].map(async (version) => ({ version, nupkg: await makeNupkg({ id: 'Lib', version, icon: png }) })),
  );
  await feed.offer({ id: 'Lib', versions });
  for (const { version } of versions) t.is((await server.fetch(download('lib', version))).status, 200);
  const visitor = await Visitor.signedIn(server);
  const statuses = async (version: string) => {
    const found: number[] = [];
    for (const file of ['file', 'icon']) {
      const path = `/packages/Lib/${version}/${file}`;
      found.push((await server.fetch(`/v1${path}`)).status, (await visitor.fetch(`/console${path}`)).status);
    }
    return found;
  };
  t.deepEqual(await statuses('1.0.0'), [200, 200, 200, 200]);
  const rules = [{ name: 'no-one', packages: ['lib'], versions: '[1.0.0]', verdict: 'deny', reason: 'MAL-2026-1' }];
  await putPolicy(server, { rules });
  t.deepEqual(await statuses('1.0.0'), [403, 403, 403, 403]);
  t.deepEqual(await statuses('2.0.0'), [200, 200, 200, 200]);
  const refused = await server.fetch('/v1/packages/Lib/1.0.0/file');
  t.like(await refused.json(), { code: 'Denied' });
  const listed = (await (await server.fetch('/v1/packages/Lib/versions')).json()) as { items: { version: string }[] };
  t.deepEqual(
    listed.items.map(({ version }) => version),
    ['2.0.0', '1.0.0'],
  );
  t.is((await server.fetch('/v1/packages/Lib/1.0.0')).status, 200, 'what it is can be read');
  t.regex(await visitor.page('/console/packages/Lib'), /1\.0\.0/);
  await putPolicy(server, { mode: 'audit', rules });
  t.deepEqual(await statuses('1.0.0'), [200, 200, 200, 200], 'audit refuses nothing');
});
