import test from 'ava';
import { compileLayer } from '../../src/policy/compile.ts';
import type { LayerDecision } from '../../src/policy/decide.ts';
import { checkPolicy } from '../../src/policy/document.ts';
import { KeptVerdicts, VerdictCache } from '../../src/policy/kept-verdicts.ts';
import type { MirroredName } from '../../src/mirror/policy/admission.ts';
import { databaseOf } from '../support/inside.ts';
import { ago, now, putPolicy, startMirrors, versionsOf } from '../support/policy.ts';

// Verdicts that are used again, until something that decides has changed.

const { document } = checkPolicy({ minimumAge: { packages: '3d' } })!;
const layer = compileLayer({ scope: 'all', document, regimes: [] }, () => undefined);
const nothing = { listed: undefined, advisories: [], withdrawn: undefined, republished: undefined };
const lib = { accountId: 1, upstream: { id: 'feed' }, kind: 'package', name: 'lib' } as MirroredName;

function keep(more: Partial<LayerDecision>, layers = [layer]): KeptVerdicts {
  const kept = new KeptVerdicts({ layers, ...nothing }, false, 's1', 1000);
  kept.add('1.0.0', [{ verdict: 'allow', layer, evidence: [], ...more }], 'allow');
  return kept;
}

/** As large as a name of very many versions. */
const long = () => {
  const kept = new KeptVerdicts({ layers: [layer], ...nothing }, false, 's1', 1000);
  for (let at = 0; at < 10_000; at += 1)
    kept.add(String(at), [{ verdict: 'hold', layer, evidence: [] }], at % 2 === 0 ? 'hold' : 'allow');
  return kept;
};

test('verdicts hold for ten seconds, and not when the clock was set back', (t) => {
  const kept = keep({});
  t.deepEqual(
    [999, 1000, 10_999, 11_000].map((time) => kept.holdsAt(time)),
    [false, true, true, false],
  );
});

test('verdicts end with a hold, a waiver or a suspension', (t) => {
  const waiver = { id: 1, layer: 'all' as const, lifts: 'age', by: 'somebody', until: 3000 };
  const ends = [
    keep({ verdict: 'hold', until: 3000 }),
    keep({ waivers: [{ ...waiver, until: 5000 }, waiver] }),
    keep({}, [layer, { ...layer, isEnforced: false, suspendedUntil: 3000 }]),
  ];
  t.deepEqual(
    ends.map((each) => [each.holdsAt(2999), each.holdsAt(3000)]),
    ends.map(() => [true, false]),
  );
});

test('verdicts are found for the same account, upstream, kind, name and purpose', async (t) => {
  let state: string | undefined = 's1';
  const cache = new VerdictCache({ stateOf: async () => state });
  const kept = keep({});
  cache.keep(lib, true, kept);
  t.is(cache.of(lib, true, 2000), kept);
  t.is(await cache.state(), kept.state);
  const others: Partial<MirroredName>[] = [
    { accountId: 2 },
    { upstream: { id: 'other' } as MirroredName['upstream'] },
    { kind: 'image' },
    { name: 'lib2' },
    { isPast: true },
  ];
  for (const other of others) t.is(cache.of({ ...lib, ...other }, true, 2000), undefined);
  t.is(cache.of(lib, false, 2000), undefined);
  t.is(cache.of(lib, true, 20_000), undefined);
  state = 's2';
  t.not(await cache.state(), kept.state);

  cache.keep({ ...lib, name: 'past', isPast: true }, true, kept);
  t.is(cache.of({ ...lib, name: 'past' }, true, 2000), undefined);
  cache.keep({ ...lib, name: 'unknown' }, true, new KeptVerdicts(kept.limits, false, undefined, 1000));
  t.is(cache.of({ ...lib, name: 'unknown' }, true, 2000), undefined, 'the state was not known');
});

test('the verdicts of many names take a bounded memory', (t) => {
  const cache = new VerdictCache({ stateOf: async () => 's1' });
  for (let at = 0; at < 10; at += 1) cache.keep({ ...lib, name: `lib${at}` }, true, long());
  const kept = Array.from({ length: 10 }, (_, at) => cache.of({ ...lib, name: `lib${at}` }, true, 2000));
  t.is(kept.filter((each) => each !== undefined).length, 3);
});

test('requests at the same time decide each reference once, and a failure is told to the request that caused it', async (t) => {
  const kept = keep({});
  const asked: string[][] = [];
  let isFailing = false;
  const decide = async (missing: readonly string[]) => {
    asked.push([...missing]);
    await Promise.resolve();
    if (isFailing) throw new Error('no dates');
    for (const each of missing) kept.add(each, [{ verdict: 'hold', layer, evidence: [] }], 'hold');
  };
  const complete = (...references: string[]) => kept.complete(references, decide);
  await Promise.all([complete('1.0.0', '2.0.0', '3.0.0'), complete('3.0.0', '2.0.0'), complete('3.0.0', '4.0.0')]);
  t.deepEqual(asked, [['2.0.0', '3.0.0'], ['4.0.0']]);
  t.is(kept.verdictOf('4.0.0'), 'hold');

  isFailing = true;
  const failed = await Promise.allSettled([complete('5.0.0'), complete('5.0.0'), complete('1.0.0')]);
  t.deepEqual(
    failed.map(({ status }) => status),
    ['rejected', 'rejected', 'fulfilled'],
  );
  isFailing = false;
  await complete('5.0.0');
  t.is(kept.verdictOf('5.0.0'), 'hold');
});

test('requests that waited for a decision that failed decide at the same time, not one after another', async (t) => {
  const kept = keep({});
  const attempts: PromiseWithResolvers<void>[] = [];
  const decide = () => {
    const attempt = Promise.withResolvers<void>();
    attempts.push(attempt);
    return attempt.promise;
  };
  const all = Promise.allSettled(['2.0.0', '3.0.0', '4.0.0', '5.0.0'].map((each) => kept.complete([each], decide)));
  t.is(attempts.length, 1);
  attempts[0]!.reject(new Error('the upstream does not answer'));
  await new Promise(setImmediate);
  t.is(attempts.length, 4, 'no request waits for a second time limit of the upstream');
  for (const each of attempts) each.reject(new Error('the upstream does not answer'));
  t.deepEqual(
    (await all).map(({ status }) => status),
    ['rejected', 'rejected', 'rejected', 'rejected'],
  );
});

test('a list is decided once, and again after a date changes at the upstream or a row does here', async (t) => {
  const { feed, server } = await startMirrors(t);
  const offer = (published: string) =>
    feed.offer({
      id: 'Lib',
      versions: [
        { version: '1.0.0', published: ago(100) },
        { version: '1.1.0', published },
      ],
    });
  await offer(ago(1));
  await putPolicy(server, { minimumAge: { packages: '3d' } });
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
  const { read } = databaseOf(server).times;
  const reads = () => read.counts.reduce((sum, each) => sum + each, 0);
  await versionsOf(server, 'lib');
  const before = reads();
  for (let times = 0; times < 40; times += 1) t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
  t.true(reads() - before < 40, 'the verdicts are not made again for each request');

  const put = async (policy: object) => t.is((await putPolicy(server, policy)).status, 200);
  await put({ minimumAge: { packages: '12h' } });
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '1.1.0']);
  await put({
    minimumAge: { packages: '3d' },
    rules: [{ name: 'lib', packages: ['Lib'], versions: '[1.1.0]', verdict: 'allow' }],
  });
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '1.1.0']);
  await put({ minimumAge: { packages: '3d' } });
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);

  await offer(ago(50));
  server.clock.now = now + 3_600_000;
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '1.1.0']);
});
