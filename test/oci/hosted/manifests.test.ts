import test from 'ava';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { describedManifests, manifestBlobUnknown, manifestUnknown } from '../../../src/oci/hosted/manifests.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import type { DomainError } from '../../../src/runtime/errors.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { dialects } from '../../support/databases.ts';
import { hostedDocument, hostedStart as start, openHostedImages } from '../../support/hosted-images.ts';

const unknown = { name: 'ManifestUnknown' };
const tagRows = 'SELECT name, digest, updated_at, sort_key FROM tags ORDER BY name';
const manifestRows = `SELECT digest, media_type, artifact_type, subject, annotations, size_bytes, image_bytes, pushed_at, untagged_at
  FROM manifests ORDER BY id`;
const historyRows =
  'SELECT account_id, upstream, name, kind, reference, digest, seen_at, media_type, size_bytes FROM history ORDER BY id';

for (const dialect of dialects) {
  test(`${dialect}: a push writes the manifest, its tags, its references, and what happened`, async (t) => {
    const world = await openHostedImages(t, dialect);
    const { image, push, rows, counts, clock, examined, manifests } = world;
    const one = await image('app', ['v2', 'V10'], ['layer']);
    const [config, layer] = [digestOf('{}'), digestOf('layer')];
    t.deepEqual(examined, [['app', [one.digest, config, layer]]]);
    const manifest = {
      digest: one.digest,
      media_type: mediaTypes.image,
      artifact_type: 'application/x',
      subject: null,
      annotations: null,
      size_bytes: one.size,
      image_bytes: one.size + 7,
      pushed_at: start,
      untagged_at: null,
    };
    t.deepEqual(await rows(manifestRows), [manifest]);
    const tag = (name: string, sortKey: string, updatedAt = start) => ({
      name,
      digest: one.digest,
      updated_at: updatedAt,
      sort_key: sortKey,
    });
    t.deepEqual(await rows(tagRows), [tag('V10', 'v0210'), tag('v2', 'v012')]);
    t.deepEqual(
      await rows('SELECT digest, absent FROM manifest_references ORDER BY digest'),
      [config, layer].toSorted().map((digest) => ({ digest, absent: 0 })),
    );
    t.deepEqual(await counts('app'), [2, 1, one.size + 7]);
    const content = { media_type: mediaTypes.image, size_bytes: one.size };
    const owner = { account_id: 1, upstream: '', name: 'app' };
    const line = { ...owner, kind: 'tag', digest: one.digest, seen_at: start, ...content };
    t.deepEqual(await rows(historyRows), [
      {
        ...owner,
        kind: 'manifest',
        reference: one.digest,
        digest: one.digest,
        seen_at: start,
        media_type: null,
        size_bytes: null,
      },
      { ...line, reference: 'v2' },
      { ...line, reference: 'V10' },
    ]);
    const events = async () =>
      (
        await rows('SELECT type, time, account_id, subject_name, subject_reference, details FROM events ORDER BY id')
      ).map(({ details, ...rest }) => ({ ...rest, details: JSON.parse(details as string) as unknown }));
    const event = { type: 'image.pushed', time: start, account_id: 1, subject_name: 'app', subject_reference: 'v2' };
    const details = { digest: one.digest, media_type: mediaTypes.image, tags: ['v2', 'V10'], tag_count: 2 };
    t.deepEqual(await events(), [{ ...event, details }]);
    t.deepEqual(await rows('SELECT name, account_id, claimed_at, created_at, updated_at FROM repositories'), [
      { name: 'app', account_id: 1, claimed_at: start, created_at: start, updated_at: start },
    ]);

    // The same again changes no times of the claim, and is no event. A tag gets the time of its last push.
    clock.now = start + 5;
    t.deepEqual(await push('app', one, ['v2']), { digest: one.digest, subject: undefined, claimed: false });
    t.deepEqual(await rows(tagRows), [tag('V10', 'v0210'), tag('v2', 'v012', start + 5)]);
    t.deepEqual(await rows(manifestRows), [{ ...manifest, untagged_at: start + 5 }]);
    t.is((await events()).length, 1);
    t.is((await rows(historyRows)).length, 3);
    // A new tag, or a push without one that is new here, is an event.
    await push('app', one);
    t.is((await events()).length, 1);
    await push('app', one, ['v2', 'new']);
    t.deepEqual(((await events())[1]!.details as { tags: string[] }).tags, ['v2', 'new']);
    t.deepEqual(await counts('app'), [3, 1, one.size + 7]);

    // A tag that moves leaves its manifest without a tag since then.
    clock.now = start + 9;
    const two = await image('app', ['v2', 'V10', 'new'], ['layer', 'more']);
    const [before, after] = await rows(manifestRows);
    t.deepEqual([before!['untagged_at'], after!['untagged_at']], [start + 9, null]);
    t.deepEqual(await counts('app'), [3, 2, one.size + two.size + 11]);
    t.is((await rows(historyRows)).length, 8);
    t.deepEqual(await manifests.has(1, 'app', { digest: one.digest }), true);
    t.deepEqual(await manifests.has(2, 'app', { digest: one.digest }), false);
  });

  test(`${dialect}: an image needs its blobs, an index has the bytes of what is there`, async (t) => {
    const { image, index, push, blob, rows, counts, manifests, clock } = await openHostedImages(t, dialect);
    const missing = hostedDocument({
      mediaType: mediaTypes.image,
      config: await blob('app', '{}'),
      layers: ['a', 'b'].map((each) => ({ mediaType: 'application/x', digest: digestOf(each), size: 1 })),
    });
    const error = await t.throwsAsync(push('app', missing), { name: 'ManifestBlobUnknown' });
    t.deepEqual((error as DomainError).detail, { digest: digestOf('a'), missing: 2 });
    t.deepEqual(await counts('app'), [0, 0, 2]);
    const parsed = await manifests.read('app', missing.digest, missing.bytes, undefined);
    t.deepEqual(await manifests.missing(1, 'app', parsed), [digestOf('a'), digestOf('b')]);
    t.deepEqual(
      await manifests.missing(1, 'other', parsed),
      ['{}', 'a', 'b'].map((each) => digestOf(each)),
    );

    const child = hostedDocument({ mediaType: mediaTypes.image, config: { ...(await blob('app', '{}')) }, layers: [] });
    const list = await index('app', ['list'], [child, child, missing]);
    const sizes = async () =>
      Object.fromEntries(
        (await rows('SELECT digest, image_bytes, untagged_at FROM manifests')).map((each) => [
          each['digest'],
          [each['image_bytes'], each['untagged_at']],
        ]),
      ) as Record<string, unknown>;
    t.deepEqual(await sizes(), { [list.digest]: [list.size, null] });
    const parsedList = await manifests.read('app', list.digest, list.bytes, undefined);
    t.deepEqual(await manifests.missing(1, 'app', parsedList), [child.digest, missing.digest]);
    const whole = manifests.push(
      1,
      'app',
      { tags: [], digest: undefined, bytes: list.bytes, contentType: undefined },
      { isWhole: true },
    );
    const refused = await t.throwsAsync(whole, { name: 'ManifestBlobUnknown' });
    t.deepEqual((refused as DomainError).detail, { digest: child.digest, missing: 2 });
    // An image that comes later counts in the index from then on, and once.
    clock.now = start + 3;
    await push('app', child);
    await push('app', child);
    t.deepEqual(await sizes(), {
      [list.digest]: [list.size + child.size + 2, null],
      [child.digest]: [child.size + 2, start + 3],
    });
    t.deepEqual(await counts('app'), [1, 2, list.size + child.size + 2]);
    const outer = await index('app', [], [list]);
    t.deepEqual((await sizes())[outer.digest], [outer.size + list.size + child.size + 2, null]);
    const references = `SELECT f.digest, f.absent FROM manifest_references f JOIN manifests m ON m.id = f.manifest_id
      WHERE m.digest = ? ORDER BY f.digest`;
    t.deepEqual(
      await rows(references, [list.digest]),
      [child, missing].map(({ digest }) => ({ digest, absent: 1 })).toSorted((x, y) => (x.digest < y.digest ? -1 : 1)),
    );
    await image('app', [], ['a', 'b']);
    t.deepEqual(await manifests.missing(1, 'app', parsed), []);
  });
}

test('a manifest is found by its tag or digest, with its bytes, and else it is said what is unknown', async (t) => {
  const { image, manifests } = await openHostedImages(t);
  const one = await image('app', ['v1'], ['layer']);
  for (const reference of [{ tag: 'v1' }, { digest: one.digest }] as const) {
    const { content, repositoryId, ...found } = await manifests.open(1, 'app', reference);
    t.deepEqual(found, { digest: one.digest, mediaType: mediaTypes.image });
    t.is(typeof repositoryId, 'number');
    t.deepEqual(await readAll(content, one.size), one.bytes);
    t.true(await manifests.has(1, 'app', reference));
    for (const [account, name] of [
      [2, 'app'],
      [1, 'other'],
    ] as const) {
      const error = await t.throwsAsync(manifests.open(account, name, reference), { name: 'NameUnknown' });
      t.deepEqual((error as DomainError).detail, { name });
      t.false(await manifests.has(account, name, reference));
    }
  }
  const digest = digestOf('other');
  for (const [reference, detail] of [
    [{ tag: 'v2' }, { tag: 'v2' }],
    [{ digest }, { digest }],
  ] as const) {
    const error = await t.throwsAsync(manifests.open(1, 'app', reference), unknown);
    t.deepEqual((error as DomainError).detail, detail);
    t.false(await manifests.has(1, 'app', reference));
  }
});

test('a push with a digest has that digest, by its algorithm', async (t) => {
  const { image, push, manifests } = await openHostedImages(t);
  const { bytes } = await image('app', [], ['layer']);
  const long = digestOf(bytes, 'sha512');
  t.deepEqual(await push('app', { bytes }, ['long'], { digest: long }), {
    digest: long,
    subject: undefined,
    claimed: false,
  });
  t.is((await manifests.open(1, 'app', { tag: 'long' })).digest, long);
  await t.throwsAsync(push('app', { bytes }, [], { digest: digestOf('other') }), { name: 'DigestMismatch' });
});

test('what refers to an image keeps its annotations, and others do not', async (t) => {
  const { image, rows, push } = await openHostedImages(t);
  const annotations = { a: 'b' };
  const plain = await image('app', [], ['layer'], { annotations });
  const subject = { mediaType: mediaTypes.image, digest: plain.digest, size: plain.size };
  const signature = await image('app', [], ['sign'], { annotations, subject, artifactType: 'application/sig' });
  await image('app', [], ['sign'], { subject });
  t.deepEqual(await rows('SELECT subject, annotations, artifact_type FROM manifests ORDER BY id'), [
    { subject: null, annotations: null, artifact_type: 'application/x' },
    { subject: plain.digest, annotations: '{"a":"b"}', artifact_type: 'application/sig' },
    { subject: plain.digest, annotations: null, artifact_type: 'application/x' },
  ]);
  t.is((await push('app', signature)).subject, plain.digest);
});

test('an image that another registry had has its times and its past, but none of the future', async (t) => {
  const { image, push, rows } = await openHostedImages(t);
  const one = await image('app', [], ['layer']);
  const before = { digest: digestOf('before'), seenAt: start - 500, content: { mediaType: 'application/y', size: 4 } };
  await push('app', one, ['old', 'also'], { pushedAt: start - 100, past: [before] });
  await push('app', one, ['future'], { pushedAt: start + 100 });
  t.deepEqual(await rows('SELECT name, updated_at FROM tags ORDER BY name'), [
    { name: 'also', updated_at: start - 100 },
    { name: 'future', updated_at: start },
    { name: 'old', updated_at: start - 100 },
  ]);
  const lines = await rows(
    "SELECT reference, digest, seen_at, media_type, size_bytes FROM history WHERE kind = 'tag' AND upstream = '' ORDER BY reference, id",
  );
  const past = { digest: before.digest, seen_at: start - 500, media_type: 'application/y', size_bytes: 4 };
  const now = { digest: one.digest, media_type: mediaTypes.image, size_bytes: one.size };
  t.deepEqual(lines, [
    { reference: 'also', ...past },
    { reference: 'also', ...now, seen_at: start - 100 },
    { reference: 'future', ...now, seen_at: start },
    { reference: 'old', ...past },
    { reference: 'old', ...now, seen_at: start - 100 },
  ]);
});

test('the first push of a name claims it, also after its claim was released, and says from which upstream', async (t) => {
  const { image, manifests, rows, change, examined } = await openHostedImages(t);
  const one = await image('app', ['v1'], ['layer']);
  const sent = { tags: ['v1'], digest: undefined, bytes: one.bytes, contentType: undefined };
  const push = (mirroredFrom?: string) => manifests.push(1, 'app', sent, { mirroredFrom });
  const taken = async () =>
    (await rows('SELECT details FROM events ORDER BY id')).map(
      ({ details }) => (JSON.parse(details as string) as Record<string, unknown>)['taken_over_from'],
    );
  t.false((await push('upstream')).claimed);
  t.deepEqual(await taken(), [undefined]);
  await change('UPDATE repositories SET claimed_at = NULL');
  t.true((await push('upstream')).claimed);
  await change('UPDATE repositories SET claimed_at = NULL');
  t.true((await push()).claimed);
  t.deepEqual(await taken(), [undefined, 'upstream', undefined]);
  t.is(examined.length, 4);
});

test('an event of a push has at most 50 tags, and their number', async (t) => {
  const { image, rows } = await openHostedImages(t);
  const tags = Array.from({ length: 51 }, (_, at) => `t${at}`);
  const tagged = await image('app', tags, ['layer']);
  const untagged = await image('app', [], ['other']);
  const found = await rows('SELECT subject_reference, details FROM events ORDER BY id');
  const media = { media_type: mediaTypes.image };
  t.deepEqual(
    found.map((each) => [each['subject_reference'], JSON.parse(each['details'] as string)] as unknown[]),
    [
      ['t0', { digest: tagged.digest, ...media, tags: tags.slice(0, 50), tag_count: 51 }],
      [untagged.digest, { digest: untagged.digest, ...media, tags: [], tag_count: 0 }],
    ],
  );
});

test('a frozen tag does not move, and what a rule keeps is not deleted', async (t) => {
  const { image, push, manifests, rule, counts } = await openHostedImages(t);
  const [one, two] = [await image('app', ['v1', 'other'], ['1']), await image('app', ['v2'], ['2'])];
  await rule([], ['app:v*']);
  await t.notThrowsAsync(push('app', one, ['v1']), 'the same manifest');
  await t.notThrowsAsync(push('app', two, ['other', 'v3']), 'other tags, and new ones');
  const frozen = await t.throwsAsync(push('app', two, ['other', 'v1']), { name: 'TagFrozen' });
  t.deepEqual((frozen as DomainError).detail, { name: 'app', tag: 'v1' });
  await t.throwsAsync(manifests.delete(1, 'app', { tag: 'v1' }), { name: 'Kept' });
  await t.throwsAsync(manifests.delete(1, 'app', { digest: one.digest }), { name: 'Kept' });
  t.true(await manifests.has(1, 'app', { tag: 'v1' }));
  t.deepEqual(await counts('app'), [4, 2, one.size + two.size + 4]);
  t.true(await manifests.deleteTag(1, 'app', 'other'));
  t.false(await manifests.deleteTag(1, 'app', 'other'));
  t.false(await manifests.deleteTag(1, 'none', 'other'));
  await t.throwsAsync(manifests.deleteTag(1, 'app', 'v1'), { name: 'Kept' });
  await rule([`app@${one.digest}`]);
  await t.throwsAsync(manifests.delete(1, 'app', { digest: one.digest }), { name: 'Kept' });
  await t.notThrowsAsync(manifests.delete(1, 'app', { digest: two.digest }));
  await t.throwsAsync(manifests.delete(1, 'app', { digest: two.digest }), unknown);
  await t.throwsAsync(manifests.delete(1, 'app', { tag: 'v2' }), unknown);
  await t.throwsAsync(manifests.delete(1, 'none', { tag: 'v2' }), { name: 'NameUnknown' });
  t.deepEqual(await counts('app'), [1, 1, one.size + 4], 'the blobs stay');
});

test('manifests are described by their digests, and unknown ones are told', async (t) => {
  const { image, database } = await openHostedImages(t);
  const [one, two] = [await image('app', ['v1'], ['1']), await image('app', [], ['2'])];
  const other = await image('other', [], ['3']);
  const digests = [one.digest, other.digest, digestOf('none')];
  const described = (account: number, name: string) => describedManifests(database, account, name, digests);
  t.deepEqual(await described(1, 'app'), new Map([[one.digest, { mediaType: mediaTypes.image, size: one.size }]]));
  t.deepEqual([(await described(2, 'app')).size, (await described(1, 'none')).size], [0, 0]);
  t.deepEqual(manifestBlobUnknown([one.digest, two.digest]).detail, { digest: one.digest, missing: 2 });
  const known = { since: '2020-02-02', date: '2020-01-01' };
  t.is(
    manifestUnknown({ tag: 'v1' }, known).message,
    'This tag is known from 2020-02-02, and this name shows the repository of 2020-01-01.',
  );
  t.is(manifestUnknown({ digest: one.digest }, known).message.split(' ')[1], 'digest');
});
