import { mock } from 'node:test';
import test, { type ExecutionContext } from 'ava';
import pino from 'pino';
import { Cache } from '../../src/cache/cache.ts';
import { predecessors } from '../../src/config/predecessors.ts';
import { migrate } from '../../src/database/migrate.ts';
import type { ImportResult } from '../../src/import/item.ts';
import type { Progress } from '../../src/takeover/arrivals.ts';
import type { NameState } from '../../src/takeover/inventory.ts';
import { Takeover } from '../../src/takeover/takeover.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { until } from '../support/until.ts';

// Which names predecessors decide about, and what a request gets of them, without servers. requests.test.ts is about the same with them.

type Came = Partial<Omit<Progress, 'problems'>> & { problems?: Record<string, ImportResult> };

const importFrom = () => [];
const refused = (message: string) => ({ name: 'UpstreamUnavailable', message });

async function turns(): Promise<void> {
  for (let turn = 0; turn < 100; turn += 1) await new Promise((done) => setImmediate(done));
}

const whyNot = (reason: string, name = 'Lib') =>
  `${name} belongs to the predecessor first and did not come: ${reason}.`;

async function open(t: ExecutionContext, ...settings: object[]) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const here = new Set<string>();
  const asked: string[] = [];
  const signals: AbortSignal[] = [];
  const accounts: number[] = [];
  const holds = async (accountId: number, name: string, reference?: string) =>
    here.has(`${accountId} ${name} ${reference ?? ''}`);
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  const parts = {
    database,
    cache,
    log: pino({ level: 'silent' }),
    now: Date.now,
    proxy: {},
    offline: false,
    config: { predecessors: predecessors.parse(settings) },
    accounts: {
      nameOf: async (id: number) => {
        accounts.push(id);
        return ['default', 'team'][id];
      },
    },
    protocols: [
      { kind: 'packages', upstreams: { kind: 'nuget' }, importFrom, holds },
      { kind: 'images', upstreams: { kind: 'oci' }, importFrom, holds },
    ],
    tokens: {},
    limits: {},
    quota: {},
  };
  const takeover = new Takeover(parts as unknown as ConstructorParameters<typeof Takeover>[0]);
  t.teardown(() => takeover.close());
  const answers: (Came | Error | Promise<Came | Error>)[] = [];
  takeover.arrivals.run = async ({ name }, [row], { references, concurrency, signal }) => {
    asked.push(`${name} ${row!.name} ${references?.join() ?? 'all'} ${concurrency}`);
    signals.push(signal);
    const answer = (await answers.shift()) ?? {};
    if (answer instanceof Error) throw answer;
    const empty = { ended: true, hadSome: false, came: 0, imported: 0, mirrored: 0, failure: undefined };
    const problems = new Map(Object.entries(answer.problems ?? {}));
    return { found: [{ row: row!, ...empty, ...answer, problems }], stopped: undefined };
  };
  const read = async (name: string, states: Record<string, NameState>, note: string | null = null) => {
    const { inventory } = takeover;
    await inventory.begin(name, takeover.named(name).sourceKey);
    await inventory.add(
      name,
      Object.keys(states).map((each) => ({ name: each, key: each.toLowerCase() })),
    );
    for await (const page of inventory.pages(name, ['new']))
      for (const row of page) await inventory.settle(row, states[row.name]!, note);
    await inventory.noteRead(name, null);
  };
  const decides = (name: string, kind = 'packages', accountId = 0) => takeover.isClosed({ kind, accountId, name });
  const bring = (name: string, reference?: string) =>
    takeover.bring({ kind: 'packages', accountId: 0, name, reference });
  return { takeover, here, asked, signals, accounts, answers, read, decides, bring };
}

const first = { name: 'first', kind: 'nuget', url: 'https://first.test/index.json' };
const second = { name: 'second', kind: 'nuget', url: 'https://second.test/index.json' };

test.serial('after a minute names are read again, and versions that were not there are asked for again', async (t) => {
  const { takeover, asked, read, bring } = await open(t, first, second);
  await read('first', { Lib: 'new' });
  const now = performance.now.bind(performance);
  let passed = 0;
  performance.now = () => now() + passed;
  t.teardown(() => (performance.now = now));
  t.true(await takeover.isDue());
  await bring('lib', '1.0.0');
  passed = 61_000;
  t.true(await takeover.isDue());
  await bring('lib', '1.0.0');
  t.deepEqual(asked, ['first Lib 1.0.0 8', 'first Lib 1.0.0 8']);
});

test.serial('names count as read or tried for exactly a minute', async (t) => {
  const { takeover } = await open(t, first);
  const now = performance.now.bind(performance);
  t.teardown(() => (performance.now = now));
  const due: boolean[] = [];
  for (const at of [5000, 64_999, 65_000, 65_001]) {
    performance.now = () => at;
    due.push(await takeover.isDue());
  }
  t.deepEqual(due, [true, false, true, false]);
});

test.serial('a request waits a minute for what comes, which goes on', async (t) => {
  const { here, asked, answers, read, bring } = await open(t, first);
  await read('first', { Lib: 'new' });
  const { promise, resolve } = Promise.withResolvers<Came>();
  answers.push(promise);
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const ended: unknown[] = [];
    const coming = (reference?: string) => {
      void bring('lib', reference).then(
        (result) => ended.push(result),
        (error: unknown) => ended.push(error),
      );
    };
    coming('1.0.0');
    while (asked.length === 0) await turns();
    await turns();
    mock.timers.tick(59_999);
    await turns();
    t.deepEqual(ended, []);
    coming('1.0.0');
    await turns();
    mock.timers.tick(1);
    while (ended.length === 0) await turns();
    t.is(ended.length, 1);
    const error = ended[0] as Error & { upstream?: string; retryAfter?: number };
    t.deepEqual(
      [error.name, error.message, error.retryAfter],
      ['UpstreamTimeout', 'lib is being brought from the predecessor first, which takes long. Try again soon.', 10],
    );
    here.add('0 lib 1.0.0');
    resolve({ came: 1 });
    while (ended.length === 1) await turns();
    t.is(ended[1], true, 'the second request has waited for less');
    t.deepEqual(asked, ['first Lib 1.0.0 8']);
  } finally {
    mock.timers.reset();
  }
});

test('what comes is stopped when the server closes', async (t) => {
  const { takeover, signals, answers, read, bring } = await open(t, first);
  await read('first', { Lib: 'new' });
  const isStopped = () => signals.some(({ aborted }) => aborted);
  answers.push(until(isStopped).then(() => new Error('stopped')));
  const coming = bring('lib', '1.0.0');
  void until(() => signals.length === 1).then(() => takeover.close());
  await t.throwsAsync(coming, { message: 'stopped' });
});

test('eight names of one predecessor come at the same time, and the others after them', async (t) => {
  const { asked, answers, read, bring } = await open(t, first);
  const names = Array.from({ length: 10 }, (_, index) => `lib${index}`);
  await read('first', Object.fromEntries(names.map((name) => [name, 'new' as const])));
  const { promise, resolve } = Promise.withResolvers<Came>();
  for (const _ of names) answers.push(promise);
  const coming = Promise.all(names.map((name) => bring(name, '1.0.0')));
  await until(() => asked.length === 8);
  await t.throwsAsync(until(() => asked.length > 8, 300));
  resolve({ came: 1 });
  t.deepEqual(
    await coming,
    names.map(() => true),
  );
  t.is(asked.length, 10);
});

test('sixteen names come at the same time, a thousand wait, and more are refused', async (t) => {
  const third = { ...second, name: 'third' };
  const { asked, answers, read, bring } = await open(t, first, second, third);
  const named = { first: 'One', second: 'Two', third: 'Three' } as const;
  for (const [name, each] of Object.entries(named)) await read(name, { [each]: 'new' });
  const { promise, resolve } = Promise.withResolvers<Came>();
  const results: Promise<boolean>[] = [];
  const errors: (Error & { retryAfter?: number })[] = [];
  const begin = (name: string, count: number) => {
    for (let at = 0; at < count; at += 1) {
      answers.push(promise);
      results.push(bring(name, `${results.length}.0.0`).catch((error: Error) => errors.push(error) === 0));
    }
  };
  begin('one', 9);
  await until(() => asked.length === 8, 20_000);
  begin('two', 9);
  await until(() => asked.length === 16, 20_000);
  begin('three', 999);
  // Then all others wait.
  await until(() => errors.length > 0, 20_000);
  t.deepEqual(
    errors.map(({ name, message, retryAfter }) => [name, message, retryAfter]),
    [['TooManyRequests', 'Too many names are being brought from predecessors.', 10]],
  );
  const byName = Map.groupBy(asked, (each) => each.split(' ')[1]);
  t.deepEqual(
    [...byName].map(([name, { length }]) => [name, length]),
    [
      ['One', 8],
      ['Two', 8],
    ],
  );
  resolve({ came: 1 });
  const brought = await Promise.all(results);
  t.is(brought.filter(Boolean).length, 1016);
  t.deepEqual([asked.length, errors.length], [1016, 1]);
});

test('closing closes the connections to all predecessors', async (t) => {
  const { takeover } = await open(t, first, second);
  const closed: string[] = [];
  for (const { name, remote } of takeover.predecessors) {
    const close = remote.close.bind(remote);
    remote.close = () => {
      closed.push(name);
      close();
    };
  }
  takeover.close();
  t.deepEqual(closed, ['first', 'second']);
});

test('why a version did not come is told in full', async (t) => {
  const { takeover, asked, answers, read, bring } = await open(t, first);
  await read('first', { Lib: 'new' });
  await read('first', { Lib: 'new', Other: 'conflict' });
  const failed = { outcome: 'failed', bytes: 0, note: 'The source is not there. The upstream is.' } as const;
  const conflict = { outcome: 'conflict', bytes: 0, note: 'it differs' } as const;
  const alsoAt = { ...conflict, note: 'See: The upstream up.test has other content', alsoAt: 'up.test' };
  const cases: [problems: Record<string, ImportResult>, reason: string][] = [
    [{ '1.0.0': failed }, 'The predecessor is not there. The upstream is'],
    [{ '1.0.0': conflict, '2.0.0': alsoAt }, 'See: The upstream up.test has other content'],
    [{ '1.0.0': alsoAt, '2.0.0': failed }, 'The predecessor is not there. The upstream is'],
  ];
  const { id } = takeover.predecessors[0]!.remote;
  for (const [problems, reason] of cases) {
    answers.push({ problems });
    const error = await t.throwsAsync(bring('Lib', '1.0.0'), refused(whyNot(reason)));
    t.like(error, { upstream: 'first', id, retryAfter: 10 });
  }
  t.is(asked.splice(0).length, 3);
  answers.push({ problems: { '1.0.0': conflict } });
  for (let time = 0; time < 2; time += 1) t.true(await bring('Lib', '1.0.0'));
  t.is(asked.splice(0).length, 1, 'nothing came of it, which is remembered');
  answers.push({ came: 1, mirrored: 1 });
  for (let time = 0; time < 2; time += 1) t.true(await bring('Lib', '2.0.0'));
  t.is(asked.length, 2);
  const { remote } = takeover.predecessors[0]!;
  Object.defineProperty(remote, 'pause', { value: { reason: 'it answered 503', until: 0 }, configurable: true });
  Object.defineProperty(remote.pause!, 'until', { get: Date.now });
  t.true(await bring('Lib', '3.0.0'), 'a pause that ends now');
  await t.throwsAsync(bring('Other', '1.0.0'), refused(whyNot('', 'Other')));
});

test('without predecessors nothing is decided, and none is found by its name', async (t) => {
  const { takeover, accounts, decides, bring } = await open(t);
  t.false(await decides('lib'));
  t.false(await bring('lib'));
  t.deepEqual(accounts, [], 'not even an account is looked up');
  t.false(await takeover.isDue());
  t.throws(() => takeover.named('x'.repeat(200)), {
    message: `The settings have no predecessor ${'x'.repeat(100)}.`,
    name: 'NotFound',
  });
});

test('all names of an account are those of a predecessor that was not read yet, except for those that are here', async (t) => {
  const { takeover, here, asked, read, decides, bring } = await open(t, first, second);
  t.throws(() => takeover.named('other'), {
    message: 'The settings have no predecessor other; there are first, second.',
  });
  t.true(await decides('Lib'));
  t.false(await decides('Lib', 'images'), 'of another kind');
  t.false(await decides('Lib', 'packages', 1), 'of another account');
  const error = await t.throwsAsync(bring('Lib', '1.0.0'), { name: 'UpstreamUnavailable' });
  t.is(
    error?.message,
    'Lib belongs to the predecessor first and did not come: the list of its names was not read yet.',
  );
  here.add('0 lib ');
  t.false(await decides('Lib'));
  here.clear();

  await read('second', { Known: 'new' });
  t.true(await decides('known'));
  t.true(await bring('known', '1.0.0'), 'the other one was read');
  t.true(await decides('unknown'));
  t.true(await takeover.isDue());
  t.false(await takeover.isDue(), 'it was tried in this minute');
  await read('first', {});
  t.false(await decides('unknown'));
  t.deepEqual(asked, ['second Known 1.0.0 8']);
});

test('names that upstreams serve, that the settings leave out, and those of a finished takeover are decided by none', async (t) => {
  const { takeover, asked, read, decides, bring } = await open(t, { ...first, exclude: ['Out*'] });
  const here = { New: 'new', Whole: 'whole', Partial: 'partial', Conflict: 'conflict' } as const;
  const states = { ...here, Alike: 'alike', Mirrored: 'mirrored', OutA: 'new', OutB: 'whole' } as const;
  await read('first', states);
  const decided: string[] = [];
  for (const name of Object.keys(states)) if (await decides(name)) decided.push(name);
  t.deepEqual(decided, Object.keys(here));
  for (const name of ['Alike', 'OutA', 'Absent']) t.false(await bring(name, '1.0.0'), name);
  t.deepEqual(asked, []);
  t.false(await takeover.isDue());
  const [status] = await takeover.status();
  t.deepEqual(
    Object.fromEntries(status!.names),
    { new: 1, whole: 1, partial: 1, conflict: 1, alike: 1, mirrored: 1 },
    'without those that are left out',
  );
  t.deepEqual([status!.predecessor.name, status!.adopted, status!.row?.warning], ['first', 0, null]);
  await takeover.inventory.finish('first', []);
  t.false(await decides('New'));
});

test('a predecessor whose settings have another account or other names is read anew by its job only', async (t) => {
  const { takeover, decides } = await open(t, first);
  await takeover.inventory.begin('first', 'others');
  await takeover.inventory.noteRead('first', null);
  await takeover.inventory.finish('first', []);
  t.true(await decides('lib'), 'as if it was never read');
  t.true(await takeover.isDue());
  await t.throwsAsync(takeover.readNames(takeover.predecessors[0]!, new AbortController().signal), {
    name: 'Invalid',
    message: /^The settings of first have another account or other names than those of the server\./,
  });
});

test('a version is asked for once while it comes, and not again if it came, is here, or was not there a moment ago', async (t) => {
  const { takeover, here, asked, answers, read, bring } = await open(t, first);
  await read('first', { Lib: 'new', Whole: 'whole', Partial: 'partial' });
  const { inventory } = takeover;
  const hasCome = inventory.hasCome.bind(inventory);
  let looked = 0;
  inventory.hasCome = async (...of) => {
    const result = await hasCome(...of);
    looked += 1;
    return result;
  };
  answers.push(until(() => looked === 2).then(() => ({ came: 1, imported: 1 })));
  t.deepEqual(await Promise.all([bring('lib', '1.0.0'), bring('LIB', '1.0.0')]), [true, true]);
  t.deepEqual(asked.splice(0), ['first Lib 1.0.0 8']);
  here.add('0 lib 1.0.0');
  await bring('lib', '1.0.0');
  here.clear();
  const [row] = await inventory.find('lib');
  await inventory.record(row!, '1.0.0');
  await bring('lib', '1.0.0');
  await bring('whole');
  await bring('partial');
  t.deepEqual(asked, [], 'a deleted version, and lists that were asked for, stay as they are');

  answers.push({ came: 0 }, { mirrored: 1 }, {});
  for (const reference of ['2.0.0', '2.0.0', '3.0.0', '3.0.0']) await bring('lib', reference);
  for (let count = 0; count < 2; count += 1) await bring('lib');
  t.deepEqual(
    asked.map((each) => each.split(' ')[2]),
    ['2.0.0', '3.0.0', '3.0.0', 'all', 'all'],
  );
});

test('what cannot come is an error, except for a list of which some is here', async (t) => {
  const { takeover, here, asked, answers, read, bring } = await open(t, first);
  await read('first', { Lib: 'new' });
  await read('first', { Lib: 'new', Other: 'conflict' }, 'feed.test has other content under this name');
  const failure = new Error('The upstream feed.test does not answer.');
  const why = 'Lib belongs to the predecessor first and did not come: The predecessor feed.test does not answer.';
  answers.push({ failure }, { failure }, { failure }, new Error('broken'));
  const error = await t.throwsAsync(bring('Lib', '1.0.0'), refused(why));
  t.like(error, { retryAfter: 10 });
  await t.throwsAsync(bring('Lib'), refused(why));
  here.add('0 Lib ');
  t.true(await bring('Lib'));
  await t.throwsAsync(bring('Lib', '1.0.0'), { message: 'broken' });
  t.true(await bring('Lib', '1.0.0'), 'it is tried again');
  t.is(asked.splice(0).length, 5);

  const conflict =
    'Other belongs to the predecessor first and did not come: feed.test has other content under this name.';
  await t.throwsAsync(bring('Other', '1.0.0'), refused(conflict));
  await t.throwsAsync(bring('Other'), refused(conflict));
  t.deepEqual(asked, [], 'a person decides about it first');

  const pause = { until: Date.now() + 60_000, reason: 'it answered 503' };
  Object.defineProperty(takeover.predecessors[0]!.remote, 'pause', { get: () => pause });
  const paused = 'Lib belongs to the predecessor first and did not come: it does not answer (it answered 503).';
  await t.throwsAsync(bring('Lib', '2.0.0'), refused(paused));
  t.deepEqual(asked, []);
  pause.until = Date.now() - 1;
  t.true(await bring('Lib', '2.0.0'), 'the pause is over');
  t.is(asked.length, 1);
});
