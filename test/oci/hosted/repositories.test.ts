import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { nameQuery } from '../../../src/mirror/store/words.ts';
import { imageClaims } from '../../../src/oci/hosted/claims.ts';
import { imageReferences, imageRowBytes } from '../../../src/oci/hosted/references.ts';
import {
  addPulls,
  claimsAmong,
  findRepository,
  largestRepositories,
  nameUnknown,
  Repositories,
  upstreamUnknown,
} from '../../../src/oci/hosted/repositories.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { deleteTags, refuseFrozen, restoreTags, writeTags } from '../../../src/oci/hosted/tags.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import type { DomainError } from '../../../src/runtime/errors.ts';
import { dialects } from '../../support/databases.ts';
import { hostedStart as start, openHostedImages } from '../../support/hosted-images.ts';

/** Rows of an account and each of these digests. */
const held = (account: number, ...digests: string[]) => digests.map((each) => `${account} ${each}`);

const claimOf = (name: string) => ({ name, position: name, since: start });

for (const dialect of dialects) {
  test(`${dialect}: repositories are listed, found and measured within their account`, async (t) => {
    const { database, image, blob, change } = await openHostedImages(t, dialect);
    const repositories = new Repositories(database);
    for (const name of ['team/app', 'app', 'other', 'team/web']) await image(name, ['v1', 'v2', 'V3'], [name]);
    await image('app2', ['v1'], ['x'], {}, 2);
    await blob('blobs', 'large'.repeat(1000));
    await change("UPDATE repositories SET pull_count = 3, last_pulled_at = 9 WHERE name = 'team/app'");
    const only = new NameSet(['team/*']);
    t.deepEqual(await repositories.catalog(1, 3, ''), { items: ['app', 'other', 'team/app'], more: true });
    t.deepEqual(await repositories.catalog(1, 4, ''), { items: ['app', 'other', 'team/app', 'team/web'], more: false });
    t.deepEqual(await repositories.catalog(1, 4, 'other'), { items: ['team/app', 'team/web'], more: false });
    t.deepEqual(await repositories.catalog(1, 1, '', only), { items: ['team/app'], more: true });
    t.deepEqual(await repositories.catalog(2, 4, ''), { items: ['app2'], more: false });
    t.deepEqual(await repositories.tags(1, 'app', 2, ''), { items: ['V3', 'v1'], more: true });
    t.deepEqual(await repositories.tags(1, 'app', 2, 'V3'), { items: ['v1', 'v2'], more: false });
    for (const [account, name] of [
      [1, 'blobs'],
      [1, 'app2'],
      [2, 'app'],
    ] as const) {
      const error = await t.throwsAsync(repositories.tags(account, name, 2, ''), { name: 'NameUnknown' });
      t.deepEqual((error as DomainError).detail, { name });
    }
    const find = (text: string, limit: number, after = '', among?: NameSet, account = 1) =>
      repositories.find(account, nameQuery(text)!, limit, after, among);
    const position = JSON.stringify(['app', 'app']);
    const inTeam = { position: JSON.stringify(['app', 'team/app']), name: 'team/app', pulls: 3 };
    t.deepEqual(await find('app', 5), [{ position, name: 'app', pulls: 0 }, inTeam]);
    t.deepEqual(await find('app', 1), [{ position, name: 'app', pulls: 0 }]);
    t.deepEqual(await find('app', 5, position), [inTeam]);
    t.deepEqual(await find('app', 5, '', only), [inTeam]);
    t.deepEqual((await find('blobs', 5)).length, 0);
    t.deepEqual(
      (await find('app', 5, '', undefined, 2)).map(({ name }) => name),
      ['app2'],
    );
    const largest = await largestRepositories(database, 1, 2);
    t.deepEqual(
      largest.map((each) => ({ ...each })),
      [{ name: 'blobs', sizeBytes: 5000, changedAt: start, lastUsedAt: null }, largest[1]!],
    );
    t.true(largest[1]!.sizeBytes < 5000);
    t.is((await largestRepositories(database, 1, 9)).length, 5);
    await change("UPDATE repositories SET size_bytes = 0 WHERE name = 'blobs'");
    t.is((await largestRepositories(database, 1, 9)).length, 4);
    t.deepEqual(
      await claimsAmong(database, 1, ['app', 'blobs', 'app2', 'none']),
      new Map([
        ['app', true],
        ['blobs', false],
      ]),
    );
    t.deepEqual(await claimsAmong(database, 1, []), new Map());
  });

  test(`${dialect}: pulls count for the repository and its manifests, or for a mirrored one`, async (t) => {
    const { database, image, rows } = await openHostedImages(t, dialect);
    const [one, two] = [await image('app', ['v1'], ['1']), await image('app', [], ['2'])];
    const same = await image('same', [], ['1']);
    const pulls = (accountId: number, name: string, versions: [string, number][], last: number) =>
      database.transaction((tx) => addPulls(tx, { accountId, name, versions: new Map(versions), last }));
    await pulls(
      1,
      'app',
      [
        [one.digest, 2],
        ['', 3],
        [digestOf('none'), 1],
      ],
      start + 5,
    );
    await pulls(1, 'app', [[one.digest, 1]], start + 7);
    await pulls(2, 'app', [[one.digest, 4]], start + 9);
    await pulls(
      1,
      'mirrored',
      [
        [one.digest, 5],
        ['', 6],
      ],
      start + 9,
    );
    t.deepEqual(await rows('SELECT name, pull_count, last_pulled_at FROM repositories ORDER BY name'), [
      { name: 'app', pull_count: 7, last_pulled_at: start + 7 },
      { name: 'same', pull_count: 0, last_pulled_at: null },
    ]);
    t.deepEqual(await rows('SELECT digest, pull_count, last_pulled_at FROM manifests ORDER BY id'), [
      { digest: one.digest, pull_count: 3, last_pulled_at: start + 7 },
      { digest: two.digest, pull_count: 0, last_pulled_at: null },
      { digest: same.digest, pull_count: 0, last_pulled_at: null },
    ]);
    t.deepEqual(
      await rows('SELECT account_id, kind, name, version, downloads FROM mirrored_downloads ORDER BY downloads'),
      [
        { account_id: 2, kind: 'container', name: 'app', version: one.digest, downloads: 4 },
        { account_id: 1, kind: 'container', name: 'mirrored', version: one.digest, downloads: 5 },
        { account_id: 1, kind: 'container', name: 'mirrored', version: '', downloads: 6 },
      ],
    );
  });

  test(`${dialect}: a claim is released once nothing of the name is left`, async (t) => {
    const { database, image, manifests, blob, rows, clock, change } = await openHostedImages(t, dialect, 1000);
    const claims = imageClaims(database, clock.time);
    t.is(claims.contents, 'manifests');
    for (const name of ['a', 'b', 'c', 'used']) await image(name, ['v1'], [name]);
    const other = await image('other', ['v1'], ['other'], {}, 2);
    await blob('blobs', 'x');
    t.deepEqual(await claims.list(1, '', 9), []);
    t.is(await claims.release(1, 'a'), 'in use');
    for (const name of ['a', 'b', 'c']) {
      const { digest } = await manifests.open(1, name, { tag: 'v1' });
      await manifests.delete(1, name, { digest });
    }
    await manifests.delete(2, 'other', { digest: other.digest });
    const list = async (after: string, limit: number) =>
      (await claims.list(1, after, limit)).map((each) => ({ ...each }));
    t.deepEqual(await list('', 9), [claimOf('a'), claimOf('b'), claimOf('c')]);
    t.deepEqual(await list('a', 1), [claimOf('b')]);
    t.is(await claims.release(1, 'a'), 'deleted');
    await change('DELETE FROM manifests WHERE repository_id < 0');
    clock.now = start + 5;
    t.is(await claims.release(1, 'a'), undefined);
    t.is(await claims.release(1, 'a'), 'unclaimed');
    t.is(await claims.release(1, 'blobs'), 'unclaimed');
    t.is(await claims.release(2, 'b'), 'unclaimed');
    t.deepEqual(await list('', 9), [claimOf('b'), claimOf('c')]);
    t.deepEqual(
      await rows("SELECT account_id, time, subject_kind, subject_name FROM events WHERE type = 'claim.released'"),
      [{ account_id: 1, time: start + 5, subject_kind: 'container', subject_name: 'a' }],
    );
    t.deepEqual(await rows("SELECT updated_at FROM repositories WHERE name = 'a'"), [{ updated_at: start }]);
    // A row of an older version may have a wrong number.
    await change("UPDATE repositories SET manifest_count = 0 WHERE name = 'used'");
    t.deepEqual((await list('c', 9)).length, 0);
  });

  test(`${dialect}: what refers to a blob of a hosted image is known, with its accounts`, async (t) => {
    const { database, image, index, blob, manifests } = await openHostedImages(t, dialect, 1000);
    const one = await image('app', ['v1'], ['a']);
    const lacking = { bytes: Buffer.alloc(0), digest: digestOf('lacking'), size: 1 };
    const list = await index('lists', [], [one, lacking]);
    await blob('other', 'a', 2);
    const gone = await image('gone', [], ['b']);
    await manifests.delete(1, 'gone', { digest: gone.digest });
    const holders = async (digest: Parameters<NonNullable<typeof imageReferences.holders>>[1], limit = 9) =>
      (await database.transaction((tx) => imageReferences.holders!(tx, digest, limit))).toSorted();
    t.deepEqual(await holders(digestOf('a')), ['repository app', 'repository other']);
    t.deepEqual(await holders(one.digest), ['repository app']);
    t.deepEqual(await holders(lacking.digest), []);
    t.deepEqual(await holders(gone.digest), ['repository gone']);
    t.deepEqual(await holders(list.digest), ['repository lists']);
    t.is((await holders(digestOf('a'), 1)).length, 1);
    const owned = [];
    for (const sql of imageReferences.owned) {
      const found = await database.select<{ account_id: number; digest: string }>(sql, ['sha256:', 'sha256:~']);
      owned.push(found.map(({ account_id: id, digest }) => `${id} ${digest}`).toSorted());
      for (const { digest } of found.slice(0, 1)) {
        t.true((await database.select(sql, [digest, digest])).length === 0, 'after the first');
        t.true((await database.select(sql, ['', digest])).length > 0, 'up to the last');
      }
    }
    const config = digestOf('{}');
    t.deepEqual(owned, [
      [...held(1, digestOf('a'), config, digestOf('b'), config), ...held(2, digestOf('a'))].toSorted(),
      held(1, one.digest, list.digest, gone.digest).toSorted(),
      held(1, digestOf('a'), config, digestOf('b'), config).toSorted(),
    ]);
  });

  test(`${dialect}: annotations count, and tags and lines of histories beyond a thousand`, async (t) => {
    const { database, image, change } = await openHostedImages(t, dialect);
    const one = await image('app', ['v1'], ['a']);
    const subject = { mediaType: mediaTypes.image, digest: one.digest, size: one.size };
    for (const text of ['x', 'ä']) await image('app', [], ['s'], { subject, annotations: { text } });
    await image('app', [], ['s'], { subject, annotations: { text: 'other' } }, 2);
    const sums = async (step: number) => {
      const found = new Map<number, number>();
      for await (const page of imageRowBytes(database, step))
        for (const { account_id: id, bytes } of page) found.set(id, (found.get(id) ?? 0) + bytes);
      return found;
    };
    const bytes = '{"text":"x"}'.length + '{"text":"ä"}'.length + 1;
    for (const step of [1, 100]) t.is((await sums(step)).get(1), bytes, String(step));
    const { count: lines } = (await database.get<{ count: number }>(
      'SELECT COUNT(*) AS count FROM history WHERE account_id = 1',
    ))!;
    await change('UPDATE repositories SET tag_count = ? WHERE account_id = 1', [1000 - lines]);
    t.is((await sums(1)).get(1), bytes);
    await change('UPDATE repositories SET tag_count = ? WHERE account_id = 1', [1002 - lines]);
    t.is((await sums(1)).get(1), bytes + 1000);
  });
}

test('a repository has at most 100,000 tags', async (t) => {
  const { database, image, counts, change, rows } = await openHostedImages(t);
  const one = await image('app', ['v1'], ['a']);
  const id = (await findRepository(database, 1, 'app'))!;
  await change('UPDATE repositories SET tag_count = 99998');
  const write = (tags: string[]) => database.transaction((tx) => writeTags(tx, id, tags, one.digest, start + 1));
  await t.throwsAsync(write(['a', 'b', 'c']), { name: 'QuotaExceeded' });
  await write(['a', 'b', 'v1']);
  t.is((await counts('app'))![0], 100_000);
  await t.notThrowsAsync(write(['a', 'v1']));
  await t.notThrowsAsync(write([]));
  await t.throwsAsync(write(['c']), { name: 'QuotaExceeded' });
  await change('UPDATE repositories SET tag_count = 100001');
  // Tags of older releases have no key for their order.
  await change("UPDATE tags SET sort_key = ''");
  await t.notThrowsAsync(write(['a', 'v1']), 'tags move, even where there are too many');
  t.deepEqual(await rows("SELECT name FROM tags WHERE sort_key = ''"), [{ name: 'b' }]);
  const restore = (tags: string[], digest = one.digest) =>
    database.transaction((tx) =>
      restoreTags(
        tx,
        id,
        tags.map((reference) => ({ reference, changedAt: start - 5 })),
        digest,
        start + 9,
      ),
    );
  await t.throwsAsync(restore(['c']), { name: 'QuotaExceeded' });
  t.deepEqual(await restore(['a', 'v1']), []);
  t.deepEqual(await restore(['a', 'v1'], digestOf('other')), ['a', 'v1']);
  t.deepEqual(await restore([]), []);
  await change('UPDATE repositories SET tag_count = 5');
  t.deepEqual(await restore(['c', 'a', 'd'], digestOf('other')), ['a']);
  t.is((await counts('app'))![0], 7);
  t.deepEqual(
    await rows('SELECT name, digest, updated_at, sort_key FROM tags WHERE updated_at < ? ORDER BY name', [start]),
    [
      { name: 'c', digest: digestOf('other'), updated_at: start - 5, sort_key: 'c' },
      { name: 'd', digest: digestOf('other'), updated_at: start - 5, sort_key: 'd' },
    ],
  );
  t.deepEqual(
    await rows('SELECT reference, digest, upstream FROM history WHERE seen_at = ? ORDER BY reference', [start + 9]),
    [
      { reference: 'c', digest: digestOf('other'), upstream: '' },
      { reference: 'd', digest: digestOf('other'), upstream: '' },
    ],
  );
});

for (const dialect of dialects) {
  test(`${dialect}: tags that are deleted at once are counted and recorded once, and others stay`, async (t) => {
    const { database, image, counts, rows } = await openHostedImages(t, dialect);
    await image('app', ['a', 'b', 'c'], ['x']);
    await image('other', ['a'], ['x']);
    const id = (await findRepository(database, 1, 'app'))!;
    const remove = (...tags: string[]) => database.transaction((tx) => deleteTags(tx, id, tags, start + 7));
    t.is(await remove(), 0);
    t.is(await remove('a', 'none', 'c'), 2);
    t.is((await counts('app'))![0], 1);
    t.deepEqual(
      (await rows('SELECT name FROM tags ORDER BY repository_id, name')).map(({ name }) => name),
      ['b', 'a'],
    );
    t.deepEqual(
      await rows("SELECT name, reference FROM history WHERE kind = 'tag' AND digest = '' AND seen_at = ?", [start + 7]),
      [
        { name: 'app', reference: 'a' },
        { name: 'app', reference: 'c' },
      ],
    );
  });
}

test('a tag is refused as frozen only if it has another manifest', async (t) => {
  const { database, image, rule } = await openHostedImages(t);
  const one = await image('app', ['v1', 'w1'], ['a']);
  const repositoryId = (await findRepository(database, 1, 'app'))!;
  const refuse = (tags: string[], digest = digestOf('other'), name = 'app') =>
    database.transaction((tx) => refuseFrozen(tx, { accountId: 1, repositoryId, name }, tags, digest));
  await t.notThrowsAsync(refuse(['v1']));
  await rule([], ['app:v*']);
  await t.throwsAsync(refuse(['new', 'w1', 'v1']), { name: 'TagFrozen', message: /image tag 'v1'/ });
  await t.notThrowsAsync(refuse(['v1'], one.digest));
  await t.notThrowsAsync(refuse(['w1', 'v2']));
  await t.notThrowsAsync(refuse([]));
  await t.notThrowsAsync(refuse(['v1'], digestOf('other'), 'other'));
});

test('what is unknown is told with its name, and the upstream that it may need', (t) => {
  t.deepEqual(nameUnknown('app').detail, { name: 'app' });
  const { name, detail, message } = upstreamUnknown('example.com/app', 'example.com');
  t.deepEqual([name, detail], ['NameUnknown', { name: 'example.com/app', registry: 'example.com' }]);
  t.true(message.includes('let an operator add {"name":"example.com","kind":"registry"} to the setting upstreams'));
});
