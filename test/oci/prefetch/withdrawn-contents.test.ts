import test from 'ava';
import type { EntryKey } from '../../../src/mirror/store/entries.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { contentsOfWithdrawn } from '../../../src/oci/prefetch/withdrawn-contents.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { contentOf } from '../../../src/storage/files/content.ts';

const textOf = (document: object) => JSON.stringify(document);
const digestIn = (document: object) => digestOf(textOf(document));
const entryOf = (digest: Digest) => ({ digest, size: 1, mediaType: mediaTypes.image });

interface Given {
  /** Withdrawn tags, with the digests that they have. */
  tags: ReadonlyMap<string, Digest>;
  /** Stored documents by their kind and reference. */
  documents: ReadonlyMap<string, object>;
}

/** The kinds and references of what each withdrawn tag needs. */
async function contentsOf({ tags, documents }: Given, signal = new AbortController().signal) {
  const rows = [...tags.keys()].map((reference, index) => ({
    id: String(1000 + index),
    upstream: 'up',
    name: 'app',
    kind: 'manifest',
    reference,
  }));
  let open = 0;
  const mirror = {
    withdrawals: {
      page: (_kind: string, after: string, size: number) =>
        Promise.resolve(rows.filter(({ id }) => id > after).slice(0, size)),
    },
    stored: ({ reference }: EntryKey) => {
      const digest = tags.get(reference);
      return Promise.resolve(digest === digestOf('gone') ? undefined : { digest });
    },
    openStored: ({ key: { kind, reference } }: { key: EntryKey }) => {
      const document = documents.get(`${kind} ${reference}`);
      if (!document) return Promise.resolve();
      open += 1;
      const bytes = Buffer.from(textOf(document));
      const content = { ...contentOf(bytes), close: () => (open -= 1) };
      return Promise.resolve({ content, metadata: { digest: digestOf(bytes), size: bytes.length } });
    },
  };
  const used: string[][] = [];
  await contentsOfWithdrawn(mirror as never, signal, (keys) => {
    used.push(keys.map(({ kind, reference }) => `${kind} ${reference}`));
    return Promise.resolve();
  });
  return { used, open };
}

const needed = (document: object, ...blobs: Digest[]) => [
  `manifest ${digestIn(document)}`,
  `referrers ${digestIn(document)}`,
  ...blobs.map((each) => `blob ${each}`),
];
const [config, layer] = [digestOf('config'), digestOf('layer')];
const image = { config: entryOf(config), layers: [entryOf(layer)] };
const signature = { layers: [entryOf(digestOf('signature'))] };

test('a withdrawn tag needs its manifests, their blobs, and what refers to them', async (t) => {
  const index = { manifests: [entryOf(digestIn(image)), entryOf(digestOf('not stored'))] };
  const documents = new Map<string, object>([
    [`manifest ${digestIn(index)}`, index],
    [`manifest ${digestIn(image)}`, image],
    [`manifest ${digestIn(signature)}`, signature],
    [`referrers ${digestIn(image)}`, [entryOf(digestIn(signature)), entryOf(digestIn(image))]],
  ]);
  const found = await contentsOf({ tags: new Map([['v1', digestIn(index)]]), documents });
  t.deepEqual(found.used, [
    [...needed(index), ...needed(image, config, layer), ...needed(signature, digestOf('signature'))],
  ]);
  t.is(found.open, 0);
});

test('the manifest of a tag is read under the tag if its digest was dropped', async (t) => {
  const tags = new Map([
    ['v1', digestIn(image)],
    ['v2', digestOf('gone')],
    ['v3', digestOf('dropped')],
  ]);
  const found = await contentsOf({ tags, documents: new Map([['manifest v1', image]]) });
  t.deepEqual(found.used, [needed(image, config, layer), []]);
});

test('all withdrawn tags are gone through, and no more after the end of the run', async (t) => {
  const tags = new Map(Array.from({ length: 401 }, (_, index) => [`v${index}`, digestIn(image)]));
  const documents = new Map([[`manifest ${digestIn(image)}`, image]]);
  t.is((await contentsOf({ tags, documents })).used.length, 401);
  await t.throwsAsync(contentsOf({ tags, documents }, AbortSignal.abort(new Error('stopped'))), { message: 'stopped' });
});

test('a tag has at most 1,000 manifests, and none in a document with too many values', async (t) => {
  const images = Array.from({ length: 1000 }, (_, index) => ({ config: entryOf(config), layers: [], index }));
  const index = { manifests: images.map((each) => entryOf(digestIn(each))) };
  const all = [index, ...images].map((each) => [`manifest ${digestIn(each)}`, each] as const);
  const tags = new Map([['v1', digestIn(index)]]);
  const { used } = await contentsOf({ tags, documents: new Map<string, object>(all) });
  t.is(used[0]!.filter((each) => each.startsWith('manifest ')).length, 1000);
  const long = { ...image, values: Array.from({ length: 30_001 }, () => 0) };
  const documents = new Map([[`manifest ${digestIn(long)}`, long]]);
  t.deepEqual((await contentsOf({ tags: new Map([['v1', digestIn(long)]]), documents })).used, [needed(long)]);
});
