import test, { type ExecutionContext } from 'ava';
import type { Verdict } from '../../../src/mirror/policy/admission.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { createToken, databaseOf, flushUsage, tokenOf } from '../../support/inside.ts';
import { ociIndex, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

// A name behind as-of/<date>/: the repository as it was at the end of that day, under the rules of today.

const nameAt = (day: string) => `as-of/${day}/team/app`;
const noon = (day: string) => Date.parse(`${day}T12:00:00Z`);

async function digestAt(server: TestServer, day: string, name: string, reference: string) {
  const path = `/v2/as-of/${day}/${name}/manifests/${reference}`;
  const response = await server.fetch(path);
  await response.arrayBuffer();
  const head = await server.fetch(path, { method: 'HEAD' });
  if (head.status !== response.status) throw new Error(`HEAD ${head.status}, GET ${response.status}`);
  return response.status === 200 ? response.headers.get('docker-content-digest') : response.status;
}

async function tagsAt(server: TestServer, day: string, name: string, query = '') {
  const response = await server.fetch(`/v2/as-of/${day}/${name}/tags/list${query}`);
  if (response.status !== 200) return response.status;
  const { name: told, tags } = (await response.json()) as { name: string; tags: string[] };
  return { told, tags, link: response.headers.get('link') };
}

for (const dialect of dialects) {
  test(`${dialect}: hosted tags have the digests of the day, and digests that came later are not there`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'team/app');
    server.clock.now = noon('2026-03-01');
    const one = await repository.image('v1');
    await repository.image('latest');
    server.clock.now = noon('2026-03-03');
    const two = await repository.image('v1');
    await repository.image('v2');
    server.clock.now = noon('2026-03-05');
    t.is((await repository.fetch('manifests/v1', { method: 'DELETE' })).status, 202);
    server.clock.now = noon('2026-03-09');
    const at = (day: string, reference: string) => digestAt(server, day, 'team/app', reference);
    t.is(await at('2026-02-28', 'v1'), 404);
    t.is(await at('2026-03-01', 'v1'), one.digest);
    t.is(await at('2026-03-02', 'v1'), one.digest);
    t.is(await at('2026-03-03', 'v1'), two.digest);
    t.is(await at('2026-03-05', 'v1'), 404);
    t.is(await at('2026-03-02', two.digest), 404);
    t.is(await at('2026-03-03', two.digest), two.digest);
    t.is(await at('2026-03-09', one.digest), one.digest);

    const told = async (day: string, reference: string) => {
      const response = await server.fetch(`/v2/as-of/${day}/team/app/manifests/${reference}`);
      const { errors } = (await response.json()) as { errors: { code: string; message: string }[] };
      t.is(errors[0]!.code, 'MANIFEST_UNKNOWN');
      t.is(response.statusText, errors[0]!.message);
      return errors[0]!.message;
    };
    t.is(
      await told('2026-03-02', 'v2'),
      'This tag is known from 2026-03-03, and this name shows the repository of 2026-03-02.',
    );
    t.regex(await told('2026-03-02', two.digest), /^This digest is known from 2026-03-03/);
    t.notRegex(await told('2026-03-05', 'v1'), /known from/);
    t.notRegex(await told('2026-03-02', 'none'), /known from/);

    const tags = async (day: string, query?: string) => tagsAt(server, day, 'team/app', query);
    t.is(await tags('2026-02-28'), 404);
    t.deepEqual(await tags('2026-03-01'), { told: nameAt('2026-03-01'), tags: ['latest', 'v1'], link: null });
    t.deepEqual(await tags('2026-03-04'), { told: nameAt('2026-03-04'), tags: ['latest', 'v1', 'v2'], link: null });
    t.deepEqual(await tags('2026-03-05'), { told: nameAt('2026-03-05'), tags: ['latest', 'v2'], link: null });
    t.deepEqual(await tags('2026-03-05', '?n=1'), {
      told: nameAt('2026-03-05'),
      tags: ['latest'],
      link: '</v2/as-of/2026-03-05/team/app/tags/list?n=1&last=latest>; rel="next"',
    });
    t.deepEqual(await tags('2026-03-05', '?n=1&last=latest'), { told: nameAt('2026-03-05'), tags: ['v2'], link: null });
    t.deepEqual(await tags('2026-03-05', '?n=2'), { told: nameAt('2026-03-05'), tags: ['latest', 'v2'], link: null });
    t.deepEqual(await tags('2026-03-05', '?last=v3'), { told: nameAt('2026-03-05'), tags: [], link: null });
    const listed = await server.fetch('/v2/as-of/2026-03-01/team/app/tags/list');
    t.is(listed.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
    for (const reference of ['v1', one.digest]) t.is(await digestAt(server, '2026-03-02', 'none/app', reference), 404);
    t.is(await tagsAt(server, '2026-03-02', 'none/app'), 404);
    t.deepEqual(await (await server.fetch(`/v2/as-of/2026-03-02/none/app/referrers/${one.digest}`)).json(), {
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [],
    });
    // More tags than one query reads, of which some were deleted.
    const many = Array.from({ length: 550 }, (_, number) => `t${1000 + number}`);
    const large = new TestRepository(server, 'team/large');
    const image = await large.image('t1000');
    for (let start = 0; start < many.length; start += 50) {
      const more = many.slice(start, start + 50).map((tag) => `tag=${tag}`);
      t.is((await large.put(`${image.digest}?${more.join('&')}`, image.bytes)).status, 201);
    }
    t.is((await large.fetch('manifests/t1007', { method: 'DELETE' })).status, 202);
    const left = many.filter((tag) => tag !== 't1007');
    const told9 = 'as-of/2026-03-09/team/large';
    t.deepEqual(await tagsAt(server, '2026-03-09', 'team/large'), { told: told9, tags: left, link: null });
    t.deepEqual(await tagsAt(server, '2026-03-09', 'team/large', '?n=520'), {
      told: told9,
      tags: left.slice(0, 520),
      link: `</v2/${told9}/tags/list?n=520&last=${left[519]}>; rel="next"`,
    });

    const history = await server.fetch('/v2/as-of/2026-03-03/team/app/_oci/tag-history/v1?n=1');
    t.deepEqual(
      ((await history.json()) as { manifests: { digest: string }[] }).manifests.map(({ digest }) => digest),
      [two.digest],
    );
    t.true(history.headers.get('link')!.startsWith('</v2/as-of/2026-03-03/team/app/_oci/tag-history/v1?n=1&last='));

    // The last millisecond of a day belongs to it, and the next one to the next day, which may be requested from then on.
    const late = new TestRepository(server, 'team/late');
    server.clock.now = Date.parse('2026-03-10T23:59:59.999Z');
    const last = await late.image('v1');
    t.is(await digestAt(server, '2026-03-11', 'team/late', 'v1'), 400);
    server.clock.now += 1;
    const next = await late.image('v1');
    for (const [day, ...found] of [
      ['2026-03-10', last.digest],
      ['2026-03-11', next.digest, last.digest],
    ] as const) {
      t.is(await digestAt(server, day, 'team/late', 'v1'), found[0]);
      const moves = await server.fetch(`/v2/as-of/${day}/team/late/_oci/tag-history/v1`);
      const { manifests } = (await moves.json()) as { manifests: { digest: string }[] };
      t.deepEqual(
        manifests.map(({ digest }) => digest),
        found,
        day,
      );
    }

    const other = { token: await tokenOf(server, ['read'], 'other') };
    const foreign = await server.fetch('/v2/as-of/2026-03-02/team/app/manifests/v2', other);
    t.deepEqual([foreign.status, foreign.statusText.includes('known')], [404, false]);
  });

  test(`${dialect}: referrers are those of the day, and blobs those of now`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'team/app');
    server.clock.now = noon('2026-03-01');
    const { mediaType, digest, size, bytes } = await repository.image('v1');
    const subject = { mediaType, digest, size };
    const first = await repository.image('signature-1', { subject });
    server.clock.now = noon('2026-03-02');
    const second = await repository.image('signature-2', { subject });
    const referrers = async (day: string) => {
      const response = await server.fetch(`/v2/as-of/${day}/team/app/referrers/${digest}`);
      t.is(response.headers.get('content-type'), ociIndex);
      return ((await response.json()) as { manifests: { digest: string }[] }).manifests.map((each) => each.digest);
    };
    t.deepEqual(await referrers('2026-02-28'), []);
    t.deepEqual(await referrers('2026-03-01'), [first.digest]);
    t.deepEqual(await referrers('2026-03-02'), [first.digest, second.digest].toSorted());
    const { config } = JSON.parse(bytes) as { config: { digest: string } };
    t.is((await server.fetch(`/v2/as-of/2026-03-01/team/app/blobs/${config.digest}`)).status, 200);
  });
}

async function startMirror(t: ExecutionContext, more: { judge?: () => Promise<(reference: string) => Verdict> } = {}) {
  const hub = await startUpstreamRegistry(t);
  const upstreams = [hub.settings('hub.test', { freshFor: '1m', default: true })];
  const server = await startTestServer(t, { upstreams }, more);
  const pull = async (day: string, reference = 'v1') => {
    server.clock.now = noon(day);
    const response = await server.fetch(`/v2/hub.test/team/app/manifests/${reference}`);
    await response.arrayBuffer();
    t.is(response.status, 200);
  };
  return { hub, server, pull };
}

test('mirrored tags have the digests that were seen by the day, for all spellings of the name', async (t) => {
  const { hub, server, pull } = await startMirror(t);
  const one = hub.image('team/app', 'v1').manifest.digest;
  await pull('2026-03-01');
  const two = hub.image('team/app', 'v1').manifest.digest;
  await pull('2026-03-03');
  server.clock.now = noon('2026-03-09');
  const asked = hub.requests().length;
  for (const name of ['hub.test/team/app', 'team/app']) {
    t.is(await digestAt(server, '2026-02-28', name, 'v1'), 404);
    t.is(await digestAt(server, '2026-03-02', name, 'v1'), one);
    t.is(await digestAt(server, '2026-03-03', name, 'v1'), two);
    t.is(await digestAt(server, '2026-03-02', name, two), 404);
    t.deepEqual(await tagsAt(server, '2026-03-02', name), {
      told: `as-of/2026-03-02/${name}`,
      tags: ['v1'],
      link: null,
    });
    t.is(await tagsAt(server, '2026-02-28', name), 404);
    const listed = await server.fetch(`/v2/as-of/2026-03-02/${name}/tags/list`);
    t.is(listed.headers.get('cache-status'), 'entrepot; hit');
  }
  const byNamespace = await server.fetch('/v2/as-of/2026-03-02/team/app/manifests/v1?ns=hub.test');
  t.is(byNamespace.headers.get('docker-content-digest'), one);
  t.is(hub.requests().length, asked, 'the past is stored');
});

test('the images of an index are there with it, also if they were pulled later', async (t) => {
  const { hub, server, pull } = await startMirror(t);
  const images = [hub.image('team/app', 'x').manifest, hub.image('team/app', 'y').manifest];
  const manifests = images.map(({ mediaType, digest, size }) => ({ mediaType, digest, size }));
  hub.manifest('team/app', { schemaVersion: 2, mediaType: ociIndex, manifests }, 'v1');
  await pull('2026-03-01');
  server.clock.now = noon('2026-03-05');
  const [first, second] = manifests.map(({ digest }) => digest);
  t.is(await digestAt(server, '2026-03-01', 'team/app', first!), first!);
  await pull('2026-03-05', second);
  t.is(await digestAt(server, '2026-03-01', 'team/app', second!), second!);
  t.is(await digestAt(server, '2026-02-28', 'team/app', second!), 404);
  const other = hub.image('team/app', 'z').manifest.digest;
  t.is(await digestAt(server, '2026-03-01', 'team/app', other), 404, 'no index of then names it');
});

const indexOf = (...manifests: object[]) => ({ schemaVersion: 2, mediaType: ociIndex, manifests });

test('the images of an index in an index are there with the outer one, also if they were pulled later', async (t) => {
  const { hub, server, pull } = await startMirror(t);
  const { mediaType, digest, size } = hub.image('team/app', 'x').manifest;
  const inner = hub.manifest('team/app', indexOf({ mediaType, digest, size }));
  hub.manifest('team/app', indexOf(inner), 'v1');
  await pull('2026-03-01');
  server.clock.now = noon('2026-03-05');
  for (const each of [inner.digest, digest]) {
    t.is(await digestAt(server, '2026-03-01', 'team/app', each), each);
    t.is(await digestAt(server, '2026-02-28', 'team/app', each), 404);
  }
});

test('what is held and refused today is so in the past, and not told', async (t) => {
  const verdicts = new Map<string, Verdict>();
  const judge = async () => (reference: string) => verdicts.get(reference) ?? 'allow';
  const { hub, server, pull } = await startMirror(t, { judge });
  const one = hub.image('team/app', 'v1').manifest.digest;
  await pull('2026-03-01');
  server.clock.now = noon('2026-03-09');
  const path = '/v2/as-of/2026-03-01/team/app/manifests';
  for (const reference of [one, 'v1']) {
    verdicts.set(reference, { denied: 'It has known malware.' });
    for (const asked of reference === one ? ['v1', one] : ['v1']) {
      const denied = await server.fetch(`${path}/${asked}`);
      t.deepEqual([denied.status, denied.statusText], [403, 'It has known malware.'], asked);
    }
    verdicts.set(reference, 'hold');
    t.is(await digestAt(server, '2026-03-01', 'team/app', 'v1'), 404);
    const early = await server.fetch('/v2/as-of/2026-02-01/team/app/manifests/v1');
    if (reference === 'v1') t.notRegex(early.statusText, /known/);
    t.deepEqual(await tagsAt(server, '2026-03-01', 'team/app'), {
      told: 'as-of/2026-03-01/team/app',
      tags: [],
      link: null,
    });
    verdicts.clear();
  }
});

test('a name below as-of/ cannot be pushed to, and a date that is none or in the future is 400', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = noon('2026-03-05');
  const repository = new TestRepository(server, 'team/app');
  const image = await repository.image('v1');
  const base = '/v2/as-of/2026-03-05/team/app';
  const id = '01234567-89ab-cdef-0123-456789abcdef';
  for (const [method, path] of [
    ['PUT', 'manifests/v2'],
    ['DELETE', 'manifests/v1'],
    ['DELETE', `manifests/${image.digest}`],
    ['DELETE', `blobs/${image.digest}`],
    ['POST', 'blobs/uploads/'],
    ['POST', `blobs/uploads/?mount=${image.digest}&from=team/app`],
    ['GET', `blobs/uploads/${id}`],
    ['PATCH', `blobs/uploads/${id}`],
    ['PUT', `blobs/uploads/${id}`],
    ['DELETE', `blobs/uploads/${id}`],
    ['PUT', 'tags/list'],
  ] as const) {
    const body = method === 'PUT' ? image.bytes : null;
    const response = await server.fetch(`${base}/${path}`, { method, body });
    t.deepEqual([response.status, response.headers.get('allow')], [405, 'GET, HEAD'], `${method} ${path}`);
    const { errors } = (await response.json()) as { errors: { code: string; message: string }[] };
    t.is(errors[0]!.code, 'UNSUPPORTED');
    t.regex(errors[0]!.message, /past, which cannot be changed/);
  }
  t.is((await new TestRepository(server, 'as-of/app').put('v1', image.bytes)).status, 405);
  for (const day of ['2026-03-06', '2026-02-30', 'today', '2026-3-1', '']) {
    const response = await server.fetch(`/v2/as-of/${day}/team/app/manifests/v1`);
    t.is(response.status, 400, day);
    t.regex(response.statusText, /is in the future|is not a date/);
  }
  t.is((await server.fetch('/v2/as-of/2026-03-05/manifests/v1')).status, 400);
  t.is((await server.fetch('/v2/as-of/2026-03-05/Team/manifests/v1')).status, 400);
  t.is((await server.fetch('/v2/as-of%2F2026-03-05%2Fteam/app/manifests/v1')).status, 200);
  const rows = await databaseOf(server).select<{ name: string }>('SELECT name FROM repositories');
  t.deepEqual(rows, [{ name: 'team/app' }]);
});

test('rights and usage are those of the name behind the date, and each answer is asked again', async (t) => {
  const server = await startTestServer(t);
  const image = await new TestRepository(server, 'team/app').image('v1');
  const today = new Date().toISOString().slice(0, 10);
  const path = `/v2/as-of/${today}/team/app/manifests/v1`;
  t.is((await server.fetch(path, { token: null })).status, 401);
  const limited = async (pattern: string) =>
    (await createToken(server, ['read'], 'default', { containers: [pattern] })).value;
  t.is((await server.fetch(path, { token: await limited('as-of/*') })).status, 403);
  const token = await limited('team/*');
  const response = await server.fetch(path, { token });
  await response.arrayBuffer();
  t.deepEqual([response.status, response.headers.get('etag')], [200, `"${image.digest}"`]);
  t.is(response.headers.get('cache-control'), 'private, no-cache');
  t.is((await server.fetch(path, { headers: { 'if-none-match': `"${image.digest}"` } })).status, 304);
  await flushUsage(server);
  const { pull_count: pulls } = (await (await server.fetch('/v1/containers/team/app')).json()) as {
    pull_count: number;
  };
  t.true(pulls >= 1);
});
