import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import type { ImportGroup, ImportOptions, ImportResult, ImportSource } from '../../../src/import/item.ts';
import { ImportRuns } from '../../../src/import/runs/import-runs.ts';
import type { ImportRunSettings } from '../../../src/import/runs/run.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { databaseOf, defaultAccountOf } from '../../support/inside.ts';
import { startTestServer } from '../../support/server.ts';
import { eventually } from '../../support/until.ts';

const settings: ImportRunSettings = {
  kind: 'feed',
  url: 'https://feed.test/index.json',
  needsSecret: false,
  dryRun: true,
  only: [],
  names: [],
  rename: [],
  moveTags: true,
  hosted: true,
  concurrency: 1,
};

type Line = readonly [name: string, reference: string, result: ImportResult | Error];

/** The imports of an account from a source that has these items, and what they were asked with. */
async function runsOf(t: ExecutionContext, lines: readonly Line[], warnings: readonly string[] = []) {
  const server = await startTestServer(t);
  const asked: { source: ImportSource; options: ImportOptions }[] = [];
  const admitted: unknown[] = [];
  const groups = async function* (): AsyncGenerator<ImportGroup> {
    for (const [name, reference, result] of lines)
      yield {
        name,
        items: async function* () {
          yield {
            name,
            reference,
            run: async () => {
              if (result instanceof Error) throw result;
              return result;
            },
          };
        },
      };
  };
  const importFrom = (source: ImportSource, options: ImportOptions) => {
    asked.push({ source, options });
    for (const each of warnings) options.warn(each);
    return [groups()];
  };
  const runs = new ImportRuns({
    database: databaseOf(server),
    config: { imports: { allow: [] }, offline: false },
    protocols: [{ importFrom }, {}],
    accounts: { nameOf: async (id) => `name of ${id}` },
    admit: async (...of) => void admitted.push(of),
    log: pino({ enabled: false }),
    now: server.clock.time,
  });
  t.teardown(() => runs.close());
  const account = defaultAccountOf(server);
  const ended = (id: string) =>
    eventually(
      () => runs.table.get(account, id),
      ({ state }) => state !== 'running',
    );
  return { runs, account, asked, admitted, ended };
}

const failed = (message: string) => new DomainError('PackageInvalid', message);

const problem = (position: number, name: string, reference: string, note: string, outcome = 'failed') => ({
  position,
  outcome,
  name,
  reference,
  note,
});

test('a run counts what became of each item, and keeps its conflicts and failures in order, cut to a length', async (t) => {
  const long = 'x'.repeat(600);
  const { runs, account, ended } = await runsOf(
    t,
    [
      ['A', '1.0.0', { outcome: 'imported', bytes: 5 }],
      ['B', '1.0.0', { outcome: 'imported', bytes: 6 }],
      ['C', '1.0.0', { outcome: 'conflict', bytes: 0 }],
      ['D', '1.0.0', { outcome: 'present', bytes: 0, note: 'nobody reads it' }],
      ['E', '1.0.0', failed('Use it with --hosted, or Give it with --token-file; --move-tags moves it')],
      [long, long, failed(long)],
      ['F'.repeat(300), 'G'.repeat(299), failed('H'.repeat(500))],
      [`${'I'.repeat(298)}😀${'I'.repeat(5)}`, '1', failed('List them in a file, and name it with --names.')],
      ['J', '1', failed('List the packages in a file, and name it with --names.')],
    ],
    Array.from({ length: 25 }, (_, at) => `warning ${at} ${long}`),
  );
  const { id } = await runs.start(account, settings, undefined);
  const run = await ended(id);
  const none = { count: 0, bytes: 0 };
  t.deepEqual([run.state, run.settings], ['done', settings]);
  const { warnings, received, ...progress } = run.progress;
  t.deepEqual(progress, {
    known: 9,
    ended: 9,
    counts: {
      imported: { count: 2, bytes: 11 },
      present: { count: 1, bytes: 0 },
      updated: none,
      mirrored: none,
      conflict: { count: 1, bytes: 0 },
      failed: { count: 5, bytes: 0 },
    },
  });
  t.is(received, 0);
  t.deepEqual([warnings.length, warnings[0]!.length, warnings[19]!.slice(0, 11)], [20, 500, 'warning 19 ']);
  t.true(warnings[0]!.endsWith('x…'));
  t.deepEqual((await runs.table.problems(id, 100, 0)) as object[], [
    problem(1, 'C', '1.0.0', '', 'conflict'),
    problem(2, 'E', '1.0.0', 'Use it with hosted, or Send it as secret; move_tags moves it'),
    problem(3, `${'x'.repeat(299)}…`, `${'x'.repeat(299)}…`, `${'x'.repeat(499)}…`),
    problem(4, 'F'.repeat(300), 'G'.repeat(299), 'H'.repeat(500)),
    problem(5, `${'I'.repeat(298)}\uFFFD…`, '1', 'Send them in names.'),
    problem(6, 'J', '1', 'Send them in names.'),
  ]);
});

test('a protocol is asked with the settings of the run, and the account to which its content belongs', async (t) => {
  const { runs, account, asked, admitted, ended } = await runsOf(t, []);
  const first = await runs.start(account, settings, undefined);
  t.is((await ended(first.id)).state, 'done');
  const given = {
    ...settings,
    dryRun: false,
    hosted: false,
    moveTags: false,
    since: 5,
    only: ['Lib.*'],
    names: ['Lib.A'],
    rename: ['old/*=new/*'],
    user: 'me',
    needsSecret: true,
  };
  const second = await runs.start(account, given, 'the secret');
  t.is((await ended(second.id)).state, 'done');
  const [one, two] = asked.map(({ options }) => options);
  t.like(one, {
    accountId: account,
    dryRun: true,
    since: undefined,
    names: undefined,
    allHosted: true,
    moveTags: true,
  });
  t.like(two, { accountId: account, dryRun: false, since: 5, names: ['Lib.A'], allHosted: false, moveTags: false });
  t.deepEqual([one!.isWanted('Any'), two!.isWanted('Lib.A'), two!.isWanted('Other')], [true, true, false]);
  t.deepEqual([one!.nameHere('old/a'), two!.nameHere('old/a'), two!.nameHere('a')], ['old/a', 'new/a', 'a']);
  t.notThrows(() => one!.permit('any'));
  await one!.admit(7);
  t.deepEqual(admitted, [[{ accountId: account, accountName: `name of ${account}` }, 7]]);
  t.deepEqual(
    asked.map(({ source }) => source.from),
    ['feed.test', 'feed.test'],
  );
});

test('a run that ends early has the reason, and one that failed can be started again with its secret', async (t) => {
  const { runs, account, asked, ended } = await runsOf(t, [
    ['A', '1', new DomainError('QuotaExceeded', 'The account is full, import it with --hosted.')],
    ['B', '1', { outcome: 'imported', bytes: 1 }],
  ]);
  const { id } = await runs.start(account, { ...settings, needsSecret: true }, 'the secret');
  const run = await ended(id);
  t.deepEqual([run.state, run.progress.error], ['stopped', 'The account is full, import it with hosted.']);
  t.deepEqual([run.progress.ended, run.progress.counts.imported.count], [1, 0]);
  await t.throwsAsync(runs.resume(account, id, undefined), {
    name: 'Invalid',
    message: 'secret: Send the secret of the source again: it is not stored.',
  });
  t.is((await runs.resume(account, id, 'the secret')).id, id);
  t.is((await ended(id)).state, 'stopped');
  t.deepEqual([asked.length, (await runs.table.problems(id, 10, 0)).length], [2, 1]);
  await t.throwsAsync(runs.resume(account, 'none', undefined), {
    name: 'NotFound',
    message: 'There is no import with this ID. The latest 20 are kept.',
  });
});

test('what cannot be imported is refused before a run begins, with the field that is wrong', async (t) => {
  const { runs, account } = await runsOf(t, []);
  for (const [wrong, field, message] of [
    [{ url: 'ftp://feed.test/' }, 'url', 'The source needs an address with http or https.'],
    [
      { url: 'https://me:word@feed.test/' },
      'url',
      'The address of a source cannot have a password. Send it as secret.',
    ],
    [
      { url: 'https://feed.test/index.json?key=1' },
      'url',
      'It is stored, so it cannot have a query. Send credentials as secret.',
    ],
    [
      { url: 'https://feed.test/index.json#key' },
      'url',
      'It is stored, so it cannot have a query. Send credentials as secret.',
    ],
    [
      { kind: 'harbor', url: 'https://harbor.test/path' },
      'url',
      'The address of Harbor is that of its host, without a path.',
    ],
    [{ rename: ['a=b', 'no rule'] }, 'rename', 'Use a rule such as old/*=team/* or old/app=team/app.'],
  ] as const) {
    const error = await t.throwsAsync<DomainError>(runs.start(account, { ...settings, ...wrong }, undefined), {
      name: 'Invalid',
      message: `${field}: ${message}`,
    });
    t.deepEqual(error.detail, { errors: [{ field, message }] });
  }
  t.deepEqual(await runs.table.list(account), []);
});
