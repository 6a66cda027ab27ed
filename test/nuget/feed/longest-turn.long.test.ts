import test, { type ExecutionContext } from 'ava';
import type { Database } from '../../../src/database/database.ts';
import { makeNupkg, makeNuspec, makePdb, makeSnupkg } from '../../support/builders/nupkg.ts';
import { writeZip } from '../../support/builders/zip.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { packageForm, TestFeed } from '../../support/feed.ts';
import { databaseOf } from '../../support/inside.ts';
import { inParts, longestTurn, longestTurnOf } from '../../support/longest-turn.ts';
import { prefetchInto, wishesIn } from '../../support/prefetch.ts';
import { raw } from '../../support/raw.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { answer, serve } from '../../support/upstreams/faulty-upstream.ts';
import { startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';

// In a process of its own: it measures the process.

// No request to the feed holds all others for long, however many items it is about: the largest accepted ones are sent.

/** Milliseconds of processor time. */
const bound = 50;

async function isShort(
  t: ExecutionContext,
  name: string,
  work: (run: number) => Promise<unknown>,
  measure = longestTurn,
): Promise<void> {
  let run = 0;
  const turn = await measure(() => work((run += 1)));
  t.log(`${name}: ${turn.toFixed(1)} ms`);
  t.true(turn < bound, `${name}: ${turn} ms`);
}

/** Reads the answer as it arrives: to parse it would be a long turn of this process. */
async function answers(
  t: ExecutionContext,
  server: TestServer,
  path: string,
  { status = 200, ...init }: RequestInit & { status?: number } = {},
): Promise<number> {
  const response = await server.fetch(path, init);
  let length = 0;
  for await (const piece of response.body ?? []) length += (piece as Uint8Array).length;
  t.is(response.status, status, path);
  return length;
}

const digits = `(SELECT 0 AS d ${Array.from({ length: 9 }, (_, each) => `UNION ALL SELECT ${each + 1}`).join(' ')})`;
/** Selects the numbers from 0 to 99,999 as `n`. */
const numbersSql = `SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS n
  FROM ${digits} a, ${digits} b, ${digits} c, ${digits} e, ${digits} f`;

/** Adds the versions 1.0.1 to 1.0.99999, or to 1.0.9999, in one statement. */
async function addMany(database: Database, id: string, count: 10_000 | 100_000): Promise<void> {
  await database.transaction(async (tx) => {
    const { id: row, ...first } = (await tx.get(
      'SELECT v.* FROM packages p JOIN package_versions v ON v.package_row = p.id WHERE p.package_key = ?',
      [id.toLowerCase()],
    ))!;
    const columns = Object.keys(first);
    const copied = columns.map((each) => {
      if (each === 'sort_key') return `CONCAT('0100', LENGTH(n.n) - 1, n.n, '00~')`;
      return ['version', 'version_key', 'full_version'].includes(each) ? `CONCAT('1.0.', n.n)` : `v.${each}`;
    });
    await tx.run(
      `INSERT INTO package_versions (${columns.join(', ')}) SELECT ${copied.join(', ')}
       FROM package_versions v JOIN (${numbersSql}) AS n WHERE v.id = ? AND n.n > 0 AND n.n < ?`,
      [row!, count],
    );
    await tx.run(
      'UPDATE packages SET version_count = ?, metadata_bytes = metadata_bytes * ?, revision = revision + 1 WHERE id = ?',
      [count, count, first['package_row']!],
    );
  });
}

for (const dialect of dialects) {
  test.serial(`a hosted package with very many versions (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Vast' });
    // To insert more takes MariaDB many seconds, and its rows arrive in pieces.
    await addMany(databaseOf(server), 'Vast', dialect === 'sqlite' ? 100_000 : 10_000);
    // Documents have absolute addresses, so each host has its own, which is made anew.
    const read = (path: string) => async (run: number) => {
      const { status } = await raw(server, path, { headers: { host: `run-${run}.test` } });
      t.is(status, 200, path);
    };
    await isShort(t, 'registration index', read('/v3/registration-gz-semver2/vast/index.json'));
    await isShort(t, 'flat container index', read('/v3/package/vast/index.json'));
    await isShort(t, 'page', read('/v3/registration-gz-semver2/vast/page/1.0.64/1.0.127.json'));
    await isShort(t, 'largest range', read('/v3/registration/vast/page/1.0.1000/1.0.2023.json'));
    await isShort(t, 'autocompletion', read('/v3/autocomplete?id=vast'));
    await isShort(t, 'search', read('/v3/search?q=vast'));
    await isShort(t, 'details', read('/v1/packages/vast'));
    await isShort(t, 'versions', read('/v1/packages/vast/versions?limit=200'));
    await isShort(t, 'unlist', async (run) => {
      await answers(t, server, `/v3/push/vast/1.0.${run}`, { method: 'DELETE', status: 204 });
    });
    await isShort(t, 'relist', async (run) => {
      await answers(t, server, `/v3/push/vast/1.0.${run}`, { method: 'POST' });
    });
    await isShort(t, 'delete', async (run) => {
      await answers(t, server, `/v1/packages/vast/1.0.${run}`, { method: 'DELETE', status: 204 });
    });
    await isShort(t, 'deprecate and unlist 1,000', async (run) => {
      const versions = Array.from({ length: 1000 }, (_, each) => `1.0.${run * 1000 + each}`);
      const body = JSON.stringify({ versions, isLegacy: true, listedVerb: 'Unlist' });
      const headers = { 'content-type': 'application/json' };
      await answers(t, server, '/v3/push/Vast/deprecations', { method: 'PUT', headers, body });
    });
    const nupkg = packageForm(await makeNupkg({ id: 'Vast', version: '2.0.0' }));
    const push = (body: Buffer, type: string, path = '/v3/push', status = 201) =>
      answers(t, server, path, {
        method: 'PUT',
        headers: { 'content-type': type },
        body: new Uint8Array(body),
        status,
      });
    await isShort(t, 'push', () => push(nupkg.body, nupkg.type), longestTurnOf);
  });

  test.serial(`the largest packages (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    const send = ({ body, type }: ReturnType<typeof packageForm>, path = '/v3/push') => {
      const headers = { 'content-type': type };
      return answers(t, server, path, { method: 'PUT', headers, body: inParts(body), duplex: 'half', status: 201 });
    };
    const dependencies = Array.from({ length: 9900 }, (_, each) => ({
      id: `Some.Dependency.${each}.`.padEnd(100, 'x'),
      version: '1.0.0',
    }));
    const long = await Promise.all(
      ['1.0.1', '1.0.2', '1.0.3'].map((version) =>
        makeNupkg({ id: 'Long', version, dependencies: dependencies.slice(0, 6000) }).then(packageForm),
      ),
    );
    await isShort(t, 'push with a long nuspec', (run) => send(long[run - 1]!));
    await isShort(t, 'details with a long nuspec', () => answers(t, server, '/v1/packages/Long/1.0.1'));
    await feed.publish({ id: 'Symbols' });
    const pdbs = Object.fromEntries(Array.from({ length: 2000 }, (_, each) => [`lib/${each}.pdb`, makePdb()]));
    const snupkg = packageForm(await makeSnupkg({ id: 'Symbols', files: pdbs }));
    await isShort(t, 'symbols', () => send(snupkg, '/v3/symbols'), longestTurnOf);
    const large = makePdb(Buffer.alloc(16, 1), 60_000);
    const inflated = Object.fromEntries(Array.from({ length: 400 }, (_, each) => [`${each}.pdb`, large]));
    const small = await makeSnupkg({ id: 'Symbols', version: '1.0.0', files: inflated });
    t.true(small.length <= 128 * 1024, `${small.length} bytes, which are read into memory`);
    const form = packageForm(small);
    await isShort(t, 'small symbols of large files', () => send(form, '/v3/symbols'), longestTurnOf);
    const files = Array.from({ length: 65_534 }, (_, each) => ({ name: `lib/net8.0/some/folder/f${each}`, method: 0 }));
    const many = packageForm(writeZip([{ name: 'Many.nuspec', data: makeNuspec({ id: 'Many' }) }, ...files]));
    await isShort(t, 'push with 65,535 entries', () => send(many), longestTurnOf);
  });
}

function leaf(version: string): object {
  return { catalogEntry: { id: 'Vast', version, listed: true, description: 'Some text' } };
}

function page(items: unknown[], lower: string, upper: string): object {
  return { count: items.length, lower, upper, items };
}

test.serial('a mirrored package with 20,000 stored versions', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Stored', versions: [{ version: '1.0.0' }] });
  const numbers = Array.from({ length: 20_000 }, (_, patch) => `1.0.${patch}`);
  const unlisted = numbers.map((version) => ({
    catalogEntry: { id: 'Stored', version, listed: version.endsWith('7'), description: 'x'.repeat(200) },
  }));
  const registration = { items: [page(unlisted, numbers[0]!, numbers.at(-1)!)] };
  up.upstream.on('/registration/stored/index.json', serve(Buffer.from(JSON.stringify(registration))));
  const server = await startMirrorOf(t, [up.as('up.test')]);
  await answers(t, server, '/v3/package/stored/1.0.0/stored.1.0.0.nupkg');
  await answers(t, server, '/v3/registration-gz-semver2/stored/index.json');
  await databaseOf(server).transaction(async (tx) => {
    const columns = Object.keys((await tx.get("SELECT * FROM mirror_entries WHERE kind = 'nupkg'"))!);
    const copied = columns.map((each) => (['id', 'reference'].includes(each) ? `CONCAT('1.0.', n.n)` : `m.${each}`));
    await tx.run(
      `INSERT INTO mirror_entries (${columns.join(', ')}) SELECT ${copied.join(', ')}
       FROM mirror_entries m JOIN (${numbersSql}) AS n WHERE m.kind = 'nupkg' AND n.n > 0 AND n.n < 20000`,
    );
  });
  const first = () => answers(t, server, '/v1/packages/stored');
  await isShort(t, 'the first reading of what is unlisted', first, longestTurnOf);
  const details = (await (await server.fetch('/v1/packages/stored')).json()) as {
    version_count: number;
    versions: { listed: boolean }[];
  };
  t.is(details.version_count, 20_000);
  t.is(details.versions.filter(({ listed }) => listed).length, 100);
  for (const path of ['/v1/packages', '/v1/packages/stored', '/v1/packages/stored/versions?limit=200']) {
    await isShort(t, path, () => answers(t, server, path));
  }
});

test.serial('the longest documents of an upstream', async (t) => {
  const up = await UpstreamFeed.start(t);
  const numbers = Array.from({ length: 100_000 }, (_, patch) => `1.0.${patch}`);
  const offer = (path: string, document: unknown) => up.upstream.on(path, serve(Buffer.from(JSON.stringify(document))));
  offer('/flat/vast/index.json', { versions: numbers });
  offer('/registration/vast/index.json', { items: [page(numbers.map(leaf), numbers[0]!, numbers.at(-1)!)] });
  // The value of this one is short enough to be kept.
  const some = numbers.slice(0, 30_000).map((version) => ({ catalogEntry: { id: 'Large', version } }));
  offer('/registration/large/index.json', { items: [page(some, '1.0.0', '1.0.29999')] });
  const pages = Array.from({ length: 1563 }, (_, each) => {
    const some = numbers.slice(64 * each, 64 * each + 64);
    return { '@id': `${up.url}/pages/${each}`, count: some.length, lower: some[0], upper: some.at(-1) };
  });
  offer('/registration/paged/index.json', { items: pages });
  const few = numbers
    .slice(0, 64)
    .map((version) => ({ catalogEntry: { id: 'Paged', version, description: 'x'.repeat(4000) } }));
  offer('/pages/0', { items: few });
  const versions = numbers.slice(0, 200).map((version) => ({ version, downloads: 1 }));
  const hits = Array.from({ length: 1000 }, (_, each) => ({
    id: `Vast.${each}`,
    version: '1.0.199',
    description: 'word '.repeat(200),
    versions,
  }));
  offer('/query', { totalHits: 5000, data: hits });
  offer('/autocomplete', { totalHits: 100_000, data: numbers });
  const advisories = { '@name': 'base', '@updated': '2024-01-01T00:00:00Z', '@id': `${up.url}/advisories.json` };
  offer('/vulnerabilities/index.json', [advisories]);
  const advisory = [{ severity: 1, url: 'https://advisories.test/1', versions: '(, 2.0.0)' }];
  offer('/advisories.json', Object.fromEntries(numbers.map((each) => [`p${each}`, advisory])));
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const read = (path: string) => async () => {
    await answers(t, server, path);
  };
  await isShort(t, 'registration', read('/v3/registration-gz-semver2/vast/index.json'), longestTurnOf);
  for (const [name, path] of [
    ['flat container index', '/v3/package/vast/index.json'],
    ['registration index with versions', '/v3/registration-gz-semver2/large/index.json'],
    ['page of it', '/v3/registration-gz-semver2/large/page/1.0.64/1.0.127.json'],
    ['largest range of it', '/v3/registration-gz-semver2/large/page/1.0.1000/1.0.2023.json'],
    ['leaf of it', '/v3/registration-gz-semver2/large/1.0.500.json'],
    ['registration index with pages', '/v3/registration-gz-semver2/paged/index.json'],
    ['page', '/v3/registration-gz-semver2/paged/page/1.0.0/1.0.63.json'],
    ['search', '/v3/search?q=vast&take=1000'],
    ['autocompletion', '/v3/autocomplete?q=vast&take=1000'],
    ['autocompletion of versions', '/v3/autocomplete?id=vast'],
    ['vulnerability index', '/v3/vulnerabilities/index.json'],
    ['vulnerability page', '/v3/vulnerabilities/up.test/base.json'],
  ] as const) {
    await isShort(t, `${name}, first`, read(path), longestTurnOf);
    await isShort(t, `${name}, again`, read(path));
  }
  // The versions are parsed one by one.
  const labelled = numbers.map((number) => `${number}-alpha.1.beta.2.gamma.3.${number}`);
  offer('/flat/labelled/index.json', { versions: [...labelled.slice(1), '2.0.0'] });
  up.upstream.on(
    '/flat/labelled/2.0.0/labelled.2.0.0.nupkg',
    serve(await makeNupkg({ id: 'Labelled', version: '2.0.0' })),
  );
  await answers(t, server, '/v3/package/labelled/2.0.0/labelled.2.0.0.nupkg');
  up.upstream.on('/autocomplete', answer(500));
  await isShort(t, 'autocompletion that the upstream refuses', read('/v3/autocomplete?id=labelled&semVerLevel=2.0.0'));
  const floating = '<Project><ItemGroup><PackageReference Include="Labelled" Version="2.*" /></ItemGroup></Project>';
  for (const [what, wishes, inUse] of [
    ['a range', wishesIn('app.csproj', floating), undefined],
    ['what is in use', [], { newest: 2, since: 0 }],
  ] as const) {
    await isShort(t, `prefetch of ${what}`, async () => {
      const report = await prefetchInto(server, wishes, { dryRun: true, inUse });
      t.deepEqual([report.missing, report.present.package.count], [[], 1]);
    });
  }
  // The upstream withdraws a stored version.
  offer('/flat/labelled/index.json', { versions: labelled.slice(1) });
  server.clock.now = Date.now() + 7_200_000;
  const withdrawn = read('/v3/package/labelled/index.json');
  await isShort(t, 'index with a withdrawn version, first', withdrawn, longestTurnOf);
  await isShort(t, 'index with a withdrawn version, again', withdrawn);
  // An id with hosted versions and those of the upstream.
  const merging = await startMirrorOf(t, [up.as('up.test')], { merge: { packages: ['Vast', 'Large'] } });
  await new TestFeed(merging).publish({ id: 'Vast', version: '1.0.50' }, { id: 'Large', version: '1.0.50' });
  for (const path of [
    '/v3/package/vast/index.json',
    '/v3/registration-gz-semver2/large/index.json',
    '/v3/registration-gz-semver2/large/page/1.0.64/1.0.127.json',
    '/v3/autocomplete?id=vast',
  ]) {
    await isShort(t, `merged ${path}`, async () => {
      await answers(t, merging, path);
    });
  }
});

test.serial('a search with a very long word, which no upstream gets', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  for (const word of ['a.'.repeat(7900), `a${'.'.repeat(15_800)}b`]) {
    for (const path of [`/v3/search?q=${word}`, `/v3/autocomplete?q=${word}`, `/v3/search?q=a&packageType=${word}`]) {
      await isShort(t, `${path.slice(0, 40)}…`, async () => {
        await answers(t, server, path);
      });
    }
  }
  t.false(up.upstream.asked.some(({ path }) => path.includes('..') || path.includes('a.a')));
});
