import test from 'ava';
import type { Verdict } from '../../../src/mirror/policy/admission.ts';
import { servedBlobs } from '../../../src/oci/mirrored/blob-admission.ts';
import type { UpstreamRepository } from '../../../src/oci/mirrored/upstream-repository.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';

const place = { upstream: { name: 'registry.test' }, name: 'team/app' } as UpstreamRepository;
const [one, two, three] = ['one', 'two', 'three'].map((each) => digestOf(each)) as [Digest, Digest, Digest];

interface Given {
  /** The kinds of names for which a policy decides anything. */
  limited: readonly string[];
  /** The manifests that were used last, with what they name. */
  manifests?: readonly (readonly [manifest: string, ...named: Digest[]])[];
  /** Those that are found when the uses of this process are written. */
  later?: readonly (readonly [manifest: string, ...named: Digest[]])[];
  verdicts?: Record<string, Verdict>;
  held?: readonly string[];
}

/** What is served, and how often manifests were searched. */
async function serve({ limited, manifests = [], later, verdicts = {}, held = [] }: Given, ...digests: Digest[]) {
  const asked = { searches: 0, decided: [] as string[] };
  const admission = {
    isLimited: ({ kind }: { kind: string }) => Promise.resolve(limited.includes(kind)),
    serves: (_name: object, reference: string) => {
      const verdict = verdicts[reference];
      if (typeof verdict === 'object') return Promise.reject(new DomainError('Denied', verdict.denied));
      return Promise.resolve(!held.includes(reference) && verdict !== 'hold');
    },
    decided: (_name: object, [manifest]: [string]) => {
      asked.decided.push(manifest);
      return Promise.resolve(verdicts[manifest] && [verdicts[manifest]]);
    },
  };
  const stored = {
    nameOf: () => ({ kind: 'image' }),
    async *latestContent() {
      asked.searches += 1;
      const all = asked.searches > 1 ? [...(later ?? []), ...manifests] : manifests;
      for (const [manifest, ...named] of all) {
        const items = named.map((digest) => ({ digest, size: 1 }));
        yield [manifest, { blobs: items.slice(0, 1), children: items.slice(1) }] as const;
        await Promise.resolve();
      }
    },
    noteUses: () => Promise.resolve(later !== undefined),
  };
  const served = await servedBlobs(admission as never, stored as never, place, digests);
  return { served: [...served], ...asked };
}

test('without a policy of images no manifest is searched', async (t) => {
  t.deepEqual(await serve({ limited: [], held: [one] }, one, two), { served: [one, two], searches: 0, decided: [] });
  const { served, searches } = await serve({ limited: ['blob'], held: [one] }, one, two);
  t.deepEqual([served, searches], [[two], 0]);
  t.is((await serve({ limited: ['blob', 'image'], held: [one] }, one)).searches, 0);
});

test('a blob is served that an open image names, and the search ends with the last of them', async (t) => {
  const manifests = [
    ['other', three],
    ['held', one],
    ['open', one, two],
    ['more', one],
  ] as const;
  const given = { limited: ['image'], manifests, verdicts: { held: 'hold' } } as const;
  const { served, searches, decided } = await serve(given, one, two);
  t.deepEqual([served, searches, decided], [[one, two], 1, ['held', 'open']]);
});

test('a blob is refused as the latest image that names it', async (t) => {
  const manifests = [
    ['first', one],
    ['second', one],
  ] as const;
  const verdicts = { first: { denied: 'the first' }, second: { denied: 'the second' } };
  await t.throwsAsync(serve({ limited: ['image'], manifests, verdicts }, one), {
    name: 'Denied',
    message: 'the first',
  });
  const held = { limited: ['image'], manifests, verdicts: { first: 'hold', second: 'hold' } } as const;
  t.deepEqual((await serve(held, one)).served, []);
});

test('a blob that no image names is refused, also after a second search', async (t) => {
  const manifests = [['open', one]] as const;
  const denied = { name: 'Denied', message: new RegExp(`registry.test/team/app.*${two}`) };
  await t.throwsAsync(serve({ limited: ['image'], manifests }, one, two), denied);
  await t.throwsAsync(serve({ limited: ['image'], manifests, later: [] }, one, two), denied);
  const found = await serve({ limited: ['image'], manifests, later: [['late', two]] }, one, two);
  t.deepEqual([found.served, found.searches], [[one, two], 2]);
  t.is((await serve({ limited: ['image'], manifests, later: [] }, one)).searches, 1);
});
