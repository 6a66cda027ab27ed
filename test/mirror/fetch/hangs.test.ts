import test from 'ava';
import { Hangs } from '../../../src/mirror/fetch/hangs.ts';
import { isFresh, isServableStale, ofAnyAge, resourceOf } from '../../../src/mirror/fetch/resource.ts';
import type { EntryMetadata } from '../../../src/mirror/store/entries.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';

// How long entries may be served, and how long it is known that an upstream hung.

const at = (validatedAt: number) => ({ validatedAt }) as EntryMetadata;

test('a hang counts for its entry and its upstream, for a while', (t) => {
  const clock = { now: 1000 };
  const hangs = new Hangs(() => clock.now);
  const asked = () =>
    [
      ['a', 'up'],
      ['b', 'up'],
      ['a', 'other'],
      ['b', 'other'],
    ].map(([id, upstream]) => hangs.isRecent(id!, upstream!, 100));
  t.deepEqual(asked(), [false, false, false, false]);
  hangs.hung('a', 'up');
  t.deepEqual(asked(), [true, true, true, false]);
  clock.now = 1099;
  t.deepEqual(asked(), [true, true, true, false]);
  clock.now = 1100;
  t.deepEqual(asked(), [false, false, false, false]);
  clock.now = 999;
  t.deepEqual(asked(), [false, false, false, false], 'a time to come says nothing');
  clock.now = 1050;
  t.true(hangs.isRecent('a', 'other', 51));
  t.false(hangs.isRecent('a', 'other', 50));
});

test('an answer ends the hang of its entry and of its upstream', (t) => {
  const hangs = new Hangs(() => 1000);
  hangs.hung('a', 'up');
  hangs.hung('b', 'other');
  hangs.answered('c', 'up');
  t.true(hangs.isRecent('a', 'up', 100), 'another entry was answered');
  t.false(hangs.isRecent('c', 'up', 100));
  hangs.answered('a', 'third');
  t.false(hangs.isRecent('a', 'up', 100));
  t.true(hangs.isRecent('b', 'third', 100));
  t.true(hangs.isRecent('c', 'other', 100));
});

test('an entry with the name of an upstream is not that upstream', (t) => {
  const hangs = new Hangs(() => 1000);
  hangs.hung('up', 'other');
  t.false(hangs.isRecent('x', 'up', 100));
});

test('content is fresh until its time is over, also by a clock that is a minute behind', (t) => {
  const lifetime = { freshFor: 100, staleFor: 50 };
  const fresh = (validatedAt: number) => isFresh(lifetime, at(validatedAt), 100_000);
  t.deepEqual([fresh(99_901), fresh(99_900)], [true, false]);
  t.deepEqual([fresh(160_000), fresh(160_001)], [true, false]);
  t.true(isFresh('immutable', at(0), 10 ** 13));
  const servable = (validatedAt: number) => isServableStale(lifetime, at(validatedAt), 100_000);
  t.deepEqual([servable(99_851), servable(99_850)], [true, false]);
  t.true(isServableStale('immutable', at(0), 10 ** 13));
});

test('a resource of the settings, and one that may be served at any age', (t) => {
  const config = { freshFor: 1, staleFor: 2, negativeFor: 3, timeout: 4, kind: 'registry' };
  const upstream = { id: 'up', name: 'up.test', config } as Upstream;
  const resource = resourceOf(upstream, 'tags', 'app', 'v1');
  t.deepEqual(resource, {
    key: { upstream: 'up', kind: 'tags', name: 'app', reference: 'v1' },
    lifetime: { freshFor: 1, staleFor: 2 },
    negativeFor: 3,
    idle: 4,
    upstreamName: 'up.test',
    upstreamKind: 'registry',
  });
  const whole = { ...resource, limit: 5, fetch: () => Promise.reject(new Error('not asked')) };
  const any = ofAnyAge(whole);
  t.deepEqual(any, { ...whole, lifetime: { freshFor: 1, staleFor: Infinity } });
  const immutable = { ...whole, lifetime: 'immutable' as const };
  t.is(ofAnyAge(immutable), immutable);
});
