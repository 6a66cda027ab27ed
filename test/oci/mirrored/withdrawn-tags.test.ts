import test from 'ava';
import { WithdrawnTags } from '../../../src/oci/mirrored/withdrawn-tags.ts';
import type { UpstreamRepository } from '../../../src/oci/mirrored/upstream-repository.ts';

const { signal } = new AbortController();

interface Given {
  stored?: readonly string[];
  /** The status with which the upstream answers its version check. */
  status?: number;
  due?: number;
}

/** A repository whose upstream answers its version check; `wrote` has what was noted of its tags. */
function repository({ stored = [], status = 200, due }: Given) {
  const wrote: unknown[] = [];
  const asked: string[] = [];
  const note =
    (what: string) =>
    (...values: unknown[]) => {
      wrote.push([what, ...values.slice(1)]);
      return Promise.resolve(what === 'missing' && due !== undefined ? [due] : []);
    };
  const mirror = {
    references: (_name: object, size: number, after: string) =>
      Promise.resolve(stored.filter((each) => each > after).slice(0, size)),
    withdrawals: {
      offered: (_name: object, isOffered: (tag: string) => boolean, subject?: object) => {
        wrote.push(['offered', ['v1', 'v2', 'v3'].filter(isOffered), subject]);
        return Promise.resolve();
      },
      missing: note('missing'),
      mark: (key: { reference: string }, subject: object) => {
        wrote.push(['mark', key.reference, subject]);
        return Promise.resolve();
      },
    },
  };
  const upstream = {
    id: 'up',
    name: 'registry.test',
    config: { negativeFor: 60 },
    base: new URL('https://registry.test'),
    send: ({ url, scope }: { url: URL; scope: string }) => {
      asked.push(`${url.href} ${scope}`);
      return Promise.resolve({ status, body: { destroy: () => {}, resume: () => {}, on: () => {}, once: () => {} } });
    },
  };
  const place = { upstream, name: 'team/app' } as unknown as UpstreamRepository;
  return { tags: new WithdrawnTags(mirror as never), place, wrote, asked };
}

const subject = { kind: 'container', name: 'registry.test/team/app', upstream: 'registry.test' };

test('a list of tags tells which stored ones are offered, and which are missing', async (t) => {
  const { tags, place, wrote, asked } = repository({ stored: ['v1', 'v2'] });
  await tags.compare(place, new Set(['v2', 'v3']), signal);
  t.deepEqual(wrote, [
    ['offered', ['v2', 'v3'], undefined],
    ['missing', ['v1'], 60],
  ]);
  t.deepEqual(asked, []);
});

test('an empty list says nothing, nor does any list without stored tags', async (t) => {
  const some = repository({ stored: ['v1'] });
  await some.tags.compare(some.place, new Set(), signal);
  const none = repository({});
  await none.tags.compare(none.place, new Set(['v1']), signal);
  await none.tags.compare(none.place, undefined, signal);
  t.deepEqual([some.wrote, none.wrote, none.asked], [[], [], []]);
});

test('a repository that its upstream does not have has lost all tags, if the upstream works', async (t) => {
  const { tags, place, wrote, asked } = repository({ stored: ['v1', 'v2'], status: 401 });
  await tags.compare(place, undefined, signal);
  t.deepEqual(asked, ['https://registry.test/v2/ repository:team/app:pull']);
  t.deepEqual(wrote, [
    ['offered', [], undefined],
    ['missing', ['v1', 'v2'], 60],
  ]);
  for (const status of [404, 410]) {
    const broken = repository({ stored: ['v1'], status });
    await t.throwsAsync(broken.tags.compare(broken.place, undefined, signal), { message: /no working registry/ });
    await t.throwsAsync(broken.tags.sight(broken.place, 'v1', false, signal), { message: /no working registry/ });
    t.deepEqual(broken.wrote, []);
  }
});

test('a tag is marked when it has been missing for long enough', async (t) => {
  const early = repository({});
  await early.tags.sight(early.place, 'v1', false, signal);
  t.deepEqual(early.wrote, [['missing', ['v1'], 60]]);
  const due = repository({ due: 0 });
  await due.tags.sight(due.place, 'v1', false, signal);
  t.deepEqual(due.wrote[1], ['mark', 'v1', subject]);
  const there = repository({});
  await there.tags.sight(there.place, 'v2', true, signal);
  t.deepEqual([there.wrote, there.asked], [[['offered', ['v2'], subject]], []]);
});

test('all stored tags are read, page by page', async (t) => {
  const stored = Array.from({ length: 1001 }, (_, index) => `v${1000 + index}`);
  const { tags, place } = repository({ stored: [...stored, 'not a tag'] });
  t.deepEqual(await tags.stored(place), stored);
});
