import test from 'ava';
import { counterNames, countUse, noCounts } from '../../src/usage/counters.ts';

const counts = (use: Partial<Parameters<typeof countUse>[1]>) => {
  const counters = noCounts();
  const usual = {
    act: 'read',
    status: 200,
    complete: true,
    cache: undefined,
    sent: 0,
    received: 0,
    fetched: 0,
  } as const;
  countUse(counters, { ...usual, ...use } as Parameters<typeof countUse>[1]);
  return counterNames.filter((name) => name !== 'requests' && counters[name] > 0);
};

test('a request counts as what it did, and only if it did that', (t) => {
  for (const [act, good, bad, name] of [
    ['download', [200, 307], [206, 304, 416], 'downloads'],
    ['upload', [201, 303], [200, 202, 204, 400], 'uploads'],
    ['version-check', [200, 304], [206, 307], 'version_checks'],
  ] as const) {
    for (const status of good) t.deepEqual(counts({ act, status }), [name], `${act} ${status}`);
    for (const status of bad) t.deepEqual(counts({ act, status }), [], `${act} ${status}`);
  }
  t.deepEqual(counts({ act: 'download', complete: false }), []);
  t.deepEqual(counts({ cache: 'entrepot; hit' }), ['cache_hits']);
  t.deepEqual(counts({ cache: 'entrepot; hit; detail=stale' }), ['cache_hits']);
  t.deepEqual(counts({ cache: 'entrepot; hit; detail=hosted' }), []);
  t.deepEqual(counts({ cache: 'entrepot; fwd=miss; stored' }), ['cache_misses']);
  t.deepEqual(counts({ sent: 1, received: 2, fetched: 3 }), ['egress_bytes', 'ingress_bytes', 'upstream_bytes']);
});
