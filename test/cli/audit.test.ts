import { mock } from 'node:test';
import test, { type ExecutionContext } from 'ava';
import { run } from '../../src/cli/commands.ts';
import type { EventItem } from '../../src/events/event.ts';
import type { EventFilter } from '../../src/events/event-list.ts';
import { Events } from '../../src/events/events.ts';
import { recordEvent } from '../../src/events/record.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { databaseOf, eventsOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { until, within } from '../support/until.ts';

// `entrepot audit` in this process, so that its looks for new events can be counted.

const watched = mock.method(Events.prototype, 'listAfter');

/** The places after which new events were looked for. */
const looks = () => watched.mock.calls.map(({ arguments: [, , after] }) => after);

async function setUp(t: ExecutionContext) {
  const data = await folderUntilEnd(t);
  const server = await startTestServer(t, { data });
  let written = 0;
  /** Records events, whose names are numbers that grow. */
  const write = async (count: number, type: 'package.published' | 'image.pushed' = 'package.published') => {
    const kind = type === 'package.published' ? 'package' : 'image';
    await databaseOf(server).transaction(async (tx) => {
      for (let each = 0; each < count; each += 1) {
        written += 1;
        await recordEvent(tx, { type, accountId: 1, subject: { kind, name: String(written) } }, Date.now());
      }
    });
    await eventsOf(server).dispatch();
  };
  const signals = new Map<string, () => void>();
  const failures: ((error: Error) => void)[] = [];
  const names: string[] = [];
  const errors: string[] = [];
  const audit = (...words: string[]) =>
    run(
      ['audit', '--type', 'package.*', ...words],
      { ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: '[]' },
      {
        stdout: {
          write: (text: string) => names.push((JSON.parse(text) as EventItem).subject.name!),
          on: (_event, listener) => failures.push(listener),
        },
        stderr: { write: (text: string) => errors.push(text) },
        once: (event, listener) => signals.set(event, listener),
        on: () => {},
        exit: () => {},
      },
    );
  return { write, signals, failures, names, errors, audit };
}

const numbers = (last: number) => Array.from({ length: last }, (_, each) => String(each + 1));

test.serial('without --follow all events of before are printed in pages, and none is waited for', async (t) => {
  const { write, signals, names, errors, audit } = await setUp(t);
  await write(401);
  watched.mock.resetCalls();
  t.is(await within(audit()), 0);
  t.deepEqual([names, errors], [numbers(401), []]);
  t.deepEqual([looks(), [...signals.keys()]], [[], []]);
});

test.serial(
  'with --follow each event is printed once, also of a moment between two reads, until a signal',
  async (t) => {
    const { write, signals, names, errors, audit } = await setUp(t);
    await write(3);
    const listFrom = mock.method(
      Events.prototype,
      'listFrom',
      async function (this: Events, ...given: [EventFilter, number]) {
        listFrom.mock.restore();
        // After the last position was read.
        await write(1);
        return this.listFrom(...given);
      },
    );
    t.teardown(() => listFrom.mock.restore());
    watched.mock.resetCalls();
    const startedAt = performance.now();
    const ended = audit('--follow');
    await until(() => looks().length >= 3);
    t.deepEqual(names, numbers(4));
    await write(2, 'image.pushed');
    const seen = looks().length;
    await until(() => looks().length > seen + 1);
    t.deepEqual(names, numbers(4));
    t.true(looks().at(-1)! > looks()[0]! + 1, 'events of other types are left behind');
    // Each look but those after a full page is a second after the one before.
    t.true(looks().length <= 1 + (performance.now() - startedAt) / 900);
    await write(401);
    await until(() => names.length >= 405);
    t.deepEqual(names, [...numbers(4), ...numbers(407).slice(6)]);
    // An event that comes while the list is read.
    const { length } = looks();
    watched.mock.mockImplementationOnce(async function (this: Events, ...given: [EventFilter, number, number]) {
      await write(1);
      return this.listAfter(...given);
    });
    await until(() => looks().length > length + 3);
    t.deepEqual(names, [...numbers(4), ...numbers(408).slice(6)]);

    t.deepEqual([...signals.keys()], ['SIGINT', 'SIGTERM']);
    // From the next look on, no time passes any more.
    mock.timers.enable({ apis: ['setTimeout'] });
    t.teardown(() => mock.timers.reset());
    const last = looks().length;
    while (looks().length === last) await new Promise(setImmediate);
    for (let each = 0; each < 20; each += 1) await new Promise(setImmediate);
    signals.get('SIGTERM')!();
    t.is(await ended, 0);
    t.deepEqual(errors, []);
  },
);

test.serial('an output that nobody reads any more, and SIGINT, end what follows', async (t) => {
  for (const way of ['output', 'SIGINT']) {
    const { write, signals, failures, names, errors, audit } = await setUp(t);
    await write(1);
    const ended = audit('--follow');
    await until(() => names.length === 1);
    if (way === 'SIGINT') signals.get('SIGINT')!();
    else for (const fail of failures) fail(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }));
    t.is(await within(ended), 0);
    t.deepEqual([names, errors], [['1'], []]);
  }
});
