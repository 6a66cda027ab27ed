import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { dropAbandonedBlobs } from '../../../src/oci/hosted/abandoned-blobs.ts';
import { ImageBlobs, linkBlob } from '../../../src/oci/hosted/image-blobs.ts';
import { correctCounts } from '../../../src/oci/hosted/repository-counts.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { dialects } from '../../support/databases.ts';
import { hostedStart as start, openHostedImages } from '../../support/hosted-images.ts';

const [a, b, none] = [digestOf('a'), digestOf('b'), digestOf('none')];
const unknown = { name: 'BlobUnknown' };
const { signal } = new AbortController();

for (const dialect of dialects) {
  test(`${dialect}: a blob is read only through a repository that has it`, async (t) => {
    const { images, blob, counts } = await openHostedImages(t, dialect);
    await blob('app', 'a');
    await blob('other', 'b');
    t.is(String(await readAll(await images.open(1, 'app', a), 10)), 'a');
    t.is(String(await readAll(await images.openBeforePush(1, 'app', a), 10)), 'a');
    for (const [account, name, digest] of [
      [1, 'app', b],
      [1, 'other', a],
      [2, 'app', a],
      [1, 'app', none],
    ] as const) {
      const error = await t.throwsAsync(images.open(account, name, digest), unknown);
      t.deepEqual((error as DomainError).detail, { digest });
      await t.throwsAsync(images.openBeforePush(account, name, digest), unknown);
      await t.throwsAsync(images.delete(account, name, digest), unknown);
      t.false(await images.isFromUpload(account, name, digest, 'x'));
    }
    await images.delete(1, 'app', a);
    await t.throwsAsync(images.open(1, 'app', a), unknown);
    t.deepEqual(
      [await counts('app'), await counts('other')],
      [
        [0, 0, 0],
        [0, 0, 1],
      ],
    );
  });

  test(`${dialect}: a blob is mounted from a repository of the account that the client may read`, async (t) => {
    const { images, blob, rows, clock } = await openHostedImages(t, dialect);
    await blob('team/app', 'a');
    await blob('other', 'b');
    await blob('stranger', 'strange', 2);
    const only = new NameSet(['team/*']);
    const strange = digestOf('strange');
    clock.now = start + 3;
    const cases: [boolean, Parameters<ImageBlobs['mount']>][] = [
      [true, [1, 'one', a, undefined]],
      [true, [1, 'two', a, 'team/app']],
      [false, [1, 'three', a, 'other']],
      [true, [1, 'four', a, undefined, only]],
      [true, [1, 'five', a, 'team/app', only]],
      [false, [1, 'six', b, undefined, only]],
      [false, [1, 'seven', b, 'other', only]],
      [false, [1, 'eight', strange, undefined]],
      [false, [1, 'nine', strange, 'stranger']],
      [false, [1, 'ten', none, undefined]],
      [true, [2, 'eleven', strange, 'stranger']],
    ];
    for (const [wanted, given] of cases) t.is(await images.mount(...given), wanted, given[1]);
    const linked = await rows(
      'SELECT r.name, rb.digest, rb.linked_at FROM repositories r LEFT JOIN repository_blobs rb ON rb.repository_id = r.id WHERE r.created_at > ? ORDER BY r.id',
      [start],
    );
    t.deepEqual(
      linked,
      [
        ['one', a],
        ['two', a],
        ['four', a],
        ['five', a],
        ['eleven', strange],
      ].map(([name, digest]) => ({ name, digest, linked_at: start + 3 })),
    );
  });

  test(`${dialect}: blobs without a manifest are dropped once they are old, with their bytes`, async (t) => {
    const { database, images, manifests, blob, image, rows, counts, clock, change } = await openHostedImages(
      t,
      dialect,
      1000,
    );
    await image('app', ['v1'], ['kept']);
    const deleted = await image('app', [], ['deleted']);
    await manifests.delete(1, 'app', { digest: deleted.digest });
    await change('UPDATE repository_blobs SET linked_at = ?', [start]);
    for (const each of ['old', 'longer']) await blob('app', each);
    // The manifest is of another repository.
    for (const each of ['old', 'kept', 'none']) await blob('other', each);
    await change('DELETE FROM blobs WHERE digest = ?', [digestOf('none')]);
    clock.now = start + 1;
    await blob('app', 'young');
    const left = async () =>
      (
        await rows('SELECT r.name, rb.digest FROM repository_blobs rb JOIN repositories r ON r.id = rb.repository_id')
      ).map(({ name, digest }) => `${name as string} ${digest as string}`);
    const all = await left();
    const drop = (dryRun: boolean) =>
      dropAbandonedBlobs(database, { before: start + 1, now: start + 7, dryRun, signal });
    t.deepEqual(await drop(true), { layers: 5, layer_bytes: 16 });
    t.deepEqual(await left(), all);
    const before = (await counts('app'))!;
    t.deepEqual(await drop(false), { layers: 5, layer_bytes: 16 });
    const wanted = ['kept', 'deleted', '{}', 'young'].map((each) => `app ${digestOf(each)}`);
    t.deepEqual((await left()).toSorted(), wanted.toSorted());
    t.deepEqual(await counts('app'), [before[0], before[1], (before[2] as number) - 9]);
    t.deepEqual(await drop(false), { layers: 0, layer_bytes: 0 });
    t.deepEqual(await rows('SELECT updated_at FROM repositories ORDER BY id'), [
      { updated_at: start + 7 },
      { updated_at: start + 7 },
    ]);
    t.false(await images.anySince(1, 'other', 0));
  });

  test(`${dialect}: the numbers of all repositories are counted again, and wrong ones are corrected`, async (t) => {
    const { database, image, blob, counts, change, rows, clock, push } = await openHostedImages(t, dialect);
    const names = Array.from({ length: 22 }, (_, at) => `r${String(at + 10)}`);
    for (const name of names) await blob(name, 'a');
    const one = await image('app', ['v1', 'v2'], ['a', 'bc']);
    await push('app', one);
    // A manifest that is a blob of the repository, too, counts once.
    await blob('app', String(one.bytes));
    const right = await counts('app');
    t.deepEqual(right, [2, 1, one.size + 5]);
    clock.now = start + 5;
    await correctCounts(database, clock.time, signal);
    t.deepEqual(await rows('SELECT name FROM repositories WHERE updated_at > ?', [start]), []);
    await change("UPDATE repositories SET tag_count = 7 WHERE name = 'app'");
    await change("UPDATE repositories SET manifest_count = 7 WHERE name = 'r10'");
    await change("UPDATE repositories SET size_bytes = 7 WHERE name = 'r31'");
    await correctCounts(database, clock.time, signal);
    t.deepEqual([await counts('app'), await counts('r10'), await counts('r31')], [right, [0, 0, 1], [0, 0, 1]]);
    t.deepEqual(await rows('SELECT name FROM repositories WHERE updated_at > ? ORDER BY name', [start]), [
      { name: 'app' },
      { name: 'r10' },
      { name: 'r31' },
    ]);
  });
}

test('a blob that a client will not send again is kept for its manifest, with few writes', async (t) => {
  const { database, blobs, images, blob, image, rows, clock, change } = await openHostedImages(t);
  await blob('app', 'a');
  await blob('other', 'a');
  await image('app', [], ['used']);
  const used = digestOf('used');
  const linkedAt = async (digest: Digest) =>
    (await rows('SELECT linked_at FROM repository_blobs WHERE digest = ? ORDER BY repository_id', [digest])).map(
      (row) => row['linked_at'],
    );
  const ask = async (digest: Digest, after: number, with_ = images) => {
    clock.now = start + after;
    (await with_.openBeforePush(1, 'app', digest)).close();
    return (await linkedAt(digest))[0];
  };
  t.is(await ask(a, 99), start, 'it is young');
  // Renewed at most once in a tenth of the grace.
  t.is(await ask(a, 150), start);
  t.is(await ask(a, 200), start + 200);
  t.deepEqual(await linkedAt(a), [start + 200, start], 'in this repository only');
  await change('UPDATE repository_blobs SET linked_at = ?', [start]);
  t.is(await ask(a, 299), start);
  t.is(await ask(a, 301), start + 301);
  t.is(await ask(used, 600), start, 'a manifest needs it');
  await change('UPDATE repository_blobs SET linked_at = ?', [start + 10_000]);
  t.is(await ask(a, 900), start + 900, 'the clock was set back');
  // Without a grace there is nothing to wait for.
  await change('UPDATE repository_blobs SET linked_at = ?', [start]);
  t.is(await ask(a, 5000, new ImageBlobs(database, blobs, 9, clock.time)), start);
  t.is(await ask(a, 5000, new ImageBlobs(database, blobs, 10, clock.time)), start + 5000);
  // At most five minutes, also with a long grace.
  const patient = new ImageBlobs(database, blobs, 86_400_000, clock.time);
  t.is(await ask(a, 5000 + 299_999, patient), start + 5000);
  t.is(await ask(a, 5000 + 2 * 300_000, patient), start + 605_000);
});

test('a blob remembers the upload that put it there last', async (t) => {
  const { images, blobs, rows, clock, database } = await openHostedImages(t);
  const ended: string[] = [];
  const add = async (id?: string) => {
    const { staged, digest } = await blobs.stageBytes(Buffer.from('a'));
    const end = async () => {
      await Promise.resolve();
      ended.push(id!);
    };
    await images.add(1, 'app', staged, digest, id === undefined ? undefined : { id, end });
    clock.now! += 1;
    return rows('SELECT upload_id, linked_at FROM repository_blobs');
  };
  t.deepEqual(await add(), [{ upload_id: null, linked_at: start }]);
  t.deepEqual(await add('one'), [{ upload_id: 'one', linked_at: start + 1 }]);
  t.deepEqual(await add(), [{ upload_id: 'one', linked_at: start + 2 }]);
  t.true(await images.isFromUpload(1, 'app', a, 'one'));
  t.deepEqual(await add('two'), [{ upload_id: 'two', linked_at: start + 3 }]);
  t.false(await images.isFromUpload(1, 'app', a, 'one'));
  t.deepEqual(ended, ['one', 'two']);
  const { staged, digest } = await blobs.stageBytes(Buffer.from('b'));
  const gone = new DomainError('UploadUnknown', 'gone');
  const failing = images.add(1, 'app', staged, digest, { id: 'three', end: () => Promise.reject(gone) });
  await t.throwsAsync(failing, { is: gone });
  await t.throwsAsync(images.open(1, 'app', b), unknown);
  // Of what is stored already, there may be a link elsewhere.
  await database.transaction(async (tx) => {
    await linkBlob(tx, 1, 'linked', a, start + 50);
    await linkBlob(tx, 1, 'linked', none, start + 50);
  });
  t.deepEqual(
    await rows(
      'SELECT rb.digest, rb.linked_at, rb.upload_id FROM repository_blobs rb JOIN repositories r ON r.id = rb.repository_id WHERE r.name = ?',
      ['linked'],
    ),
    [{ digest: a, linked_at: start + 50, upload_id: null }],
  );
});

test('stored blobs are adopted by a repository, and it is known since when', async (t) => {
  const { images, blob, rows, counts, clock } = await openHostedImages(t);
  await blob('first', 'a');
  await blob('first', 'b');
  clock.now = start + 5;
  await images.adopt(1, 'app', []);
  t.is(await counts('app'), undefined);
  await images.adopt(1, 'app', [b, a, none]);
  t.deepEqual(await counts('app'), [0, 0, 2]);
  t.deepEqual(
    await rows('SELECT digest FROM repository_blobs WHERE linked_at = ? ORDER BY digest', [start + 5]),
    [a, b].toSorted().map((digest) => ({ digest })),
  );
  for (const [wanted, account, name, since] of [
    [true, 1, 'app', start + 4],
    [false, 1, 'app', start + 5],
    [false, 2, 'app', start + 4],
    [false, 1, 'first', start],
    [true, 1, 'first', start - 1],
  ] as const)
    t.is(await images.anySince(account, name, since), wanted, `${account} ${name} ${since}`);
});

test('a blob that a kept image needs is not deleted', async (t) => {
  const { images, image, rule, counts } = await openHostedImages(t);
  const one = await image('app', ['v1'], ['a']);
  await image('app', ['w1'], ['b']);
  await rule(['app:v*']);
  const error = await t.throwsAsync(images.delete(1, 'app', a), { name: 'Kept' });
  t.true(error.message.startsWith(`${a}, which app:v1 needs, `));
  await t.notThrowsAsync(images.delete(1, 'app', b));
  t.is((await counts('app'))![1], 2);
  await rule([`app@${one.digest}`]);
  const again = await t.throwsAsync(images.delete(1, 'app', a), { name: 'Kept' });
  t.true(again.message.startsWith(`${a}, which app@${one.digest} needs, `));
});
