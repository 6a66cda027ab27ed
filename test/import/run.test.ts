import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { retrying, runImport, sourceReason } from '../../src/import/import.ts';
import { sourceId, type ImportGroup, type ImportResult } from '../../src/import/item.ts';
import { parseNameRule, renamed } from '../../src/import/name-rules.ts';
import { ImportReport } from '../../src/import/report.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { AccessRefused } from '../../src/upstream/failures.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';

test('a rule for names gives the first one that matches, with what stands at its star', (t) => {
  const cases: [name: string, rules: string[], expected: string][] = [
    ['old/app', ['old/*=team/*'], 'team/app'],
    ['old/', ['old/*=team/*'], 'team/'],
    ['older/app', ['old/*=team/*'], 'older/app'],
    ['a-x-b', ['a*b=c*d'], 'c-x-d'],
    ['ab', ['a*b=c*d'], 'cd'],
    ['a-x', ['a*b=c*d'], 'a-x'],
    ['x-b', ['a*b=c*d'], 'x-b'],
    ['aba', ['ab*ba=x*y'], 'aba'],
    ['old/app', ['old/app=new'], 'new'],
    ['old/app2', ['old/app=new'], 'old/app2'],
    ['old/app', ['other=x', 'old/*=first/*', 'old/app=second'], 'first/app'],
    ['app', ['*=team/*'], 'team/app'],
    ['old/app', ['old/*=*'], 'app'],
    ['app', [], 'app'],
  ];
  for (const [name, rules, expected] of cases)
    t.is(renamed(name, rules.map(parseNameRule)), expected, `${name} ${rules.join()}`);
  for (const text of ['', 'a', 'a=b=c', 'a*=b', 'a=b*', 'a*b*c=d*e*f', '*=*', '=', 'a='])
    t.throws(() => parseNameRule(text), { name: 'Invalid', message: /^Use a rule such as old/ }, text);
});

test('a report counts everything, and keeps the first problems and names', (t) => {
  const report = new ImportReport();
  for (let at = 0; at < 1001; at += 1) {
    report.add({ name: `f${at}`, reference: '1', outcome: 'failed', bytes: 0 });
    report.add({ name: `a${at}`, reference: '1', outcome: 'imported', bytes: 2, alsoAt: 'up' });
  }
  report.add({ name: 'c', reference: '1', outcome: 'conflict', bytes: 0 });
  report.add({ name: 'a0', reference: '2', outcome: 'present', bytes: 0 });
  t.deepEqual(report.counts, {
    imported: { count: 1001, bytes: 2002 },
    present: { count: 1, bytes: 0 },
    updated: { count: 0, bytes: 0 },
    mirrored: { count: 0, bytes: 0 },
    conflict: { count: 1, bytes: 0 },
    failed: { count: 1001, bytes: 0 },
  });
  t.deepEqual(
    [report.problemCount, report.ended, report.problems.length, report.alsoAt.size],
    [1002, 2004, 1000, 1000],
  );
  t.deepEqual([report.problems.at(-1)!.name, report.alsoAt.get('a999')], ['f999', 'up']);
  const short = new ImportReport();
  for (const outcome of ['conflict', 'mirrored'] as const) short.add({ name: 'A', reference: '1', outcome, bytes: 0 });
  t.deepEqual(short.problems, [{ name: 'A', reference: '1', outcome: 'conflict', bytes: 0 }]);
});

type Run = () => Promise<ImportResult>;

const imported: ImportResult = { outcome: 'imported', bytes: 7 };
const works: Run = () => Promise.resolve(imported);

/** Imports these items of one name, one at a time. */
async function importOf(runs: Run[], { other, signal }: { other?: string; signal?: AbortSignal } = {}) {
  const lines: string[] = [];
  const shown: unknown[] = [];
  const group: ImportGroup = {
    name: 'App',
    items: async function* () {
      for (const [at, run] of runs.entries()) yield { name: 'App', reference: `${at}`, run };
    },
  };
  const phase = async function* () {
    yield group;
  };
  const { stopped, warnings } = await runImport(
    (_, warn) => {
      warn('A sentence.');
      return [phase()];
    },
    {
      concurrency: 1,
      signal: signal ?? new AbortController().signal,
      other,
      watch: ({ known, ended }) => shown.push([known, ended]),
      onLine: ({ reference, outcome, note }) =>
        lines.push([reference, outcome, ...(note === undefined ? [] : [note])].join(' ')),
    },
  );
  return { lines, stopped, warnings, shown: shown.at(-1) };
}

/** Fails so many times with an error, then works; counts its runs. */
function failing(error: Error, times = Infinity) {
  let asked = 0;
  const run: Run = async () => {
    asked += 1;
    if (asked <= times) throw error;
    return imported;
  };
  return { run, asked: () => asked };
}

// The source is asked again at once.
const down = (more: object = {}) =>
  new UpstreamError(
    'UpstreamUnavailable',
    'The upstream old.test answered 500; set allowPrivateNetwork for it.\nMore.',
    {
      id: sourceId,
      retryAfter: 0,
      ...more,
    },
  );

test('an item is tried four times if the source may be asked again, else once', async (t) => {
  for (const [error, asked] of [
    [down(), 4],
    [new DomainError('Aborted', 'The file came incomplete.', { retryAfter: 0 }), 4],
    [down({ denied: true }), 1],
    [down({ offline: true }), 1],
    [new DomainError('PackageInvalid', 'It is no package.'), 1],
  ] as const) {
    const item = failing(error);
    const { lines, stopped } = await importOf([item.run, works]);
    t.is(item.asked(), asked, error.message);
    t.deepEqual([lines.map((line) => line.split(' ', 2).join(' ')), stopped], [['0 failed', '1 imported'], undefined]);
  }
  const later = failing(down(), 3);
  t.deepEqual(await importOf([later.run]), {
    lines: ['0 imported'],
    stopped: undefined,
    warnings: ['A sentence.'],
    shown: [1, 1],
  });
});

test('errors call the other server what it is, in one line', async (t) => {
  const { lines } = await importOf([failing(down()).run]);
  t.deepEqual(lines, ['0 failed The source old.test answered 500']);
  const { lines: target } = await importOf(
    [failing(down()).run, failing(new DomainError('Invalid', 'The source sent a list.\nMore.')).run],
    { other: 'target' },
  );
  t.deepEqual(target, ['0 failed The target old.test answered 500', '1 failed The target sent a list.']);
  const { lines: foreign } = await importOf([failing(down({ id: 'feed.test' })).run]);
  t.deepEqual(foreign, ['0 failed The upstream old.test answered 500; set allowPrivateNetwork for it.']);
});

test('an import ends where everything that follows would fail, too', async (t) => {
  for (const error of [
    new DomainError('QuotaExceeded', 'The account is full.'),
    new DomainError('StorageFull', 'The account is full.'),
    new DomainError('StorageUnavailable', 'The account is full.'),
    new DomainError('DatabaseUnavailable', 'The account is full.'),
    new UpstreamError('UpstreamUnavailable', 'The account is full.', { cause: new AccessRefused() }),
  ]) {
    const item = failing(error);
    const { lines, stopped } = await importOf([item.run, works]);
    t.deepEqual([lines, stopped, item.asked()], [['0 failed The account is full.'], 'The account is full.', 1]);
  }
  const broken = Array.from({ length: 20 }, () => failing(down()).run);
  const ended = await importOf([...broken, works]);
  t.deepEqual([ended.lines.length, ended.stopped], [20, 'The source old.test answered 500']);
  // One that works, and a failure of another kind, begin the count anew; a refusal does not count.
  const other = failing(new DomainError('PackageInvalid', 'It is no package.')).run;
  const denied = failing(down({ denied: true })).run;
  const most = [...broken.slice(1), denied, works, ...broken.slice(1), other, ...broken.slice(1), works];
  const whole = await importOf(most);
  t.deepEqual([whole.lines.length, whole.stopped], [most.length, undefined]);
});

const failed = (name: string) => ({ name, reference: '', outcome: 'failed', bytes: 0, note: 'it broke' });

const wrong = () => Promise.reject(new Error('it broke'));

test('a list that fails is reported, and an import that is stopped says so', async (t) => {
  const names = async function* (): AsyncGenerator<ImportGroup> {
    yield {
      name: 'App',
      items: async function* () {
        yield { name: 'App', reference: '1', run: works };
        await wrong();
      },
    };
    await wrong();
  };
  const { problems, counts, stopped } = await runImport(() => [names(), names()], {
    concurrency: 3,
    signal: new AbortController().signal,
  });
  const sorted = problems.toSorted((one, other) => (one.name < other.name ? -1 : 1));
  t.deepEqual(sorted as object[], ['App', 'App', 'the list of names', 'the list of names'].map(failed));
  t.deepEqual([counts.imported, stopped], [{ count: 2, bytes: 14 }, undefined]);
  const controller = new AbortController();
  const stops: Run = () => {
    controller.abort();
    return works();
  };
  const report = await importOf([stops, works], { signal: controller.signal });
  t.deepEqual([report.lines, report.stopped], [['0 imported'], 'it was stopped']);
});

/** So many names with two items each; which of them are read and run at the same time. */
async function widthOf(concurrency: number) {
  const now = { names: 0, items: 0 };
  const most = { names: 0, items: 0 };
  const count = (what: 'names' | 'items', by: number) => {
    now[what] += by;
    most[what] = Math.max(most[what], now[what]);
  };
  const held: (() => void)[] = [];
  const done = { count: 0 };
  const phase = async function* (): AsyncGenerator<ImportGroup> {
    for (let at = 0; at < 50; at += 1) {
      let left = 2;
      const run: Run = async () => {
        count('items', 1);
        await new Promise<void>((resolve) => held.push(resolve));
        count('items', -1);
        done.count += 1;
        left -= 1;
        if (left === 0) count('names', -1);
        return imported;
      };
      const items = async function* () {
        count('names', 1);
        for (const reference of ['1', '2']) yield { name: `${at}`, reference, run };
      };
      yield { name: `${at}`, items };
    }
  };
  const running = runImport(() => [phase()], { concurrency, signal: new AbortController().signal });
  for (let turns = 0; done.count < 100 && turns < 10_000; turns += 1) {
    await turn();
    for (const release of held.splice(0)) release();
  }
  const { counts } = await running;
  return { ...most, ended: counts.imported.count };
}

test('so many items run at the same time, and the lists of more names are read ahead', async (t) => {
  for (const [concurrency, names] of [
    [1, 1],
    [2, 4],
    [3, 6],
    [8, 16],
    [12, 16],
    [20, 20],
  ] as const)
    t.deepEqual(await widthOf(concurrency), { names, items: concurrency, ended: 100 });
});

const full = () => Promise.reject(new DomainError('StorageFull', 'The disk is full.'));

test('a phase begins when the one before has ended; after a final failure nothing more is read', async (t) => {
  const order: string[] = [];
  let signalOf: AbortSignal | undefined;
  const item = (reference: string, run: Run) => ({ name: 'App', reference, run });
  const phaseOf = async function* (name: string, ...runs: Run[]): AsyncGenerator<ImportGroup> {
    order.push(`${name} begins`);
    yield {
      name,
      items: async function* () {
        for (const [at, run] of runs.entries()) {
          order.push(`${name} ${at}`);
          yield item(`${at}`, run);
        }
        order.push(`${name} ends`);
      },
    };
    order.push(`no more names in ${name}`);
  };
  const slow: Run = async () => {
    await turn();
    order.push('done');
    return imported;
  };
  const report = await runImport(
    (signal) => {
      signalOf = signal;
      return [phaseOf('one', slow), phaseOf('two', full, works, works), phaseOf('three', works)];
    },
    { concurrency: 1, signal: new AbortController().signal },
  );
  t.deepEqual(order, [
    'one begins',
    'one 0',
    'one ends',
    'done',
    'no more names in one',
    'two begins',
    'two 0',
    'two 1',
  ]);
  t.deepEqual([report.stopped, signalOf!.aborted], ['The disk is full.', true]);
  t.deepEqual(report.problems, [
    { name: 'App', reference: '0', outcome: 'failed', bytes: 0, note: 'The disk is full.' },
  ]);
});

test('work is done again after the time that the server asks for, until the end of the import', async (t) => {
  const asked: number[] = [];
  const ends = new AbortController();
  const down503 = down({ retryAfter: 0.05 });
  const startedAt = performance.now();
  const twice = () => {
    asked.push(performance.now() - startedAt);
    return asked.length > 2 ? Promise.resolve('done') : Promise.reject(down503);
  };
  t.is(await retrying(twice, ends.signal), 'done');
  t.true(asked[2]! >= 90, `${asked[2]} milliseconds`);
  // It would wait for half a minute.
  const long = down({ retryAfter: 3600 });
  let count = 0;
  const waiting = retrying(() => {
    count += 1;
    return Promise.reject(long);
  }, ends.signal);
  await turn();
  ends.abort();
  t.is(await t.throwsAsync(waiting), long);
  t.is(await t.throwsAsync(retrying(() => Promise.reject(down503), ends.signal)), down503);
  t.is(count, 1);
  for (const [error, most] of [
    [down(), 1],
    [down(), 2],
    [new DomainError('Aborted', 'It was cut.', { retryAfter: 0 }), 3],
    [new TypeError('a defect'), 1],
    [down({ cause: new AccessRefused() }), 1],
  ] as const) {
    const item = failing(error);
    t.is(await t.throwsAsync(retrying(item.run, new AbortController().signal, most)), error);
    t.is(item.asked(), most);
  }
});

test('the reason of a failure is one line about the other server', (t) => {
  for (const [error, other, reason] of [
    [new Error('One.\nTwo.'), undefined, 'One.'],
    [new Error('The sources differ.'), 'target', 'The sources differ.'],
    [new Error('It is not The source.'), 'target', 'It is not The source.'],
    [down(), 'target', 'The target old.test answered 500'],
    [down({ id: undefined }), 'target', 'The upstream old.test answered 500; set allowPrivateNetwork for it.'],
  ] as const)
    t.is(sourceReason(error, other), reason);
});
