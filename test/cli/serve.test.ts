import { once } from 'node:events';
import { createServer } from 'node:net';
import { mock } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { run } from '../../src/cli/commands.ts';
import type { Terminal } from '../../src/cli/with-installation.ts';
import { Closing } from '../../src/runtime/closing.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { freePort } from '../support/processes/services.ts';
import { until, within } from '../support/until.ts';

// `entrepot serve` in this process, whose signals and end are those of the test.

async function setUp(t: ExecutionContext) {
  const data = await folderUntilEnd(t);
  const port = await freePort();
  const environment = {
    ENTREPOT_DATA: data,
    ENTREPOT_UPSTREAMS: '[]',
    ENTREPOT_PORT: String(port),
    ENTREPOT_HOST: '127.0.0.1',
    ENTREPOT_LOG_LEVEL: 'fatal',
    ENTREPOT_SHUTDOWN_GRACE: '0s',
  };
  const url = `http://127.0.0.1:${port}`;
  const isReady = () =>
    fetch(`${url}/readyz`).then(
      async (response) => (await response.text()) !== '' && response.ok,
      () => false,
    );
  /** Begins to serve; `heard` is what the process is told and does. */
  const serve = (more: Record<string, string> = {}) => {
    const heard = { stdout: '', stderr: '', exits: [] as (number | undefined)[] };
    const signals = new Map<string, () => void>();
    const on = new Map<string, (error: unknown) => void>();
    const failures: ((error: Error) => void)[] = [];
    const output = (name: 'stdout' | 'stderr') => ({
      write: (text: string) => (heard[name] += text),
      on: (_event: string, listener: (error: Error) => void) => failures.push(listener),
    });
    const terminal: Terminal = {
      pid: 7,
      stdout: output('stdout'),
      stderr: output('stderr'),
      once: (event, listener) => signals.set(event, listener),
      on: (event, listener) => on.set(event, listener),
      exit: (code) => heard.exits.push(code),
    };
    const ended = run(['serve'], { ...environment, ...more }, terminal);
    return { heard, signals, on, failures, ended, isReady };
  };
  return { serve, url, port };
}

test.serial('a server runs until a signal, prints its first token once, and ends the process', async (t) => {
  const { serve, url } = await setUp(t);
  const first = serve();
  await until(first.isReady);
  t.regex(
    first.heard.stdout,
    new RegExp(`^\nEntrepot serves at ${url}\\. This is its first token; it is not shown again:\n\n  ent_\\S+\n`),
  );
  t.deepEqual([...first.signals.keys()].toSorted(), ['SIGHUP', 'SIGINT', 'SIGTERM', 'exit']);
  t.deepEqual([...first.on.keys()], ['unhandledRejection']);
  t.notThrows(() => first.failures.forEach((fail) => fail(new Error('write EPIPE'))));
  t.notThrows(() => first.on.get('unhandledRejection')!(new Error('of a request')));
  t.true(await first.isReady());
  t.deepEqual([first.heard.stderr, first.heard.exits], ['', []]);
  first.signals.get('SIGTERM')!();
  t.is(await within(first.ended), 0);
  t.false(await first.isReady());
  await until(() => first.heard.exits.length > 0);
  t.deepEqual([first.heard.stderr, first.heard.exits], ['', [undefined]]);

  for (const [signal, more] of [
    ['SIGINT', {}],
    ['SIGHUP', { ENTREPOT_BOOTSTRAP_TOKEN: 'a-token-that-an-operator-has-chosen' }],
  ] as const) {
    const next = serve(more);
    await until(next.isReady);
    next.signals.get(signal)!();
    t.is(await within(next.ended), 0);
    t.deepEqual([next.heard.stdout, next.heard.stderr], ['', '']);
  }
});

test.serial('a chosen token is never printed, but an address for clients is', async (t) => {
  for (const [more, expected] of [
    [{ ENTREPOT_BOOTSTRAP_TOKEN: 'a-token-that-an-operator-has-chosen' }, /^$/],
    [{ ENTREPOT_BASE_URL: 'https://hub.example/below' }, /^\nEntrepot serves at https:\/\/hub\.example\/below\. /],
  ] as const) {
    const { serve } = await setUp(t);
    const { heard, signals, ended, isReady } = serve(more);
    await until(isReady);
    signals.get('SIGTERM')!();
    t.is(await within(ended), 0);
    t.regex(heard.stdout, expected);
  }
});

test.serial('a signal during the start ends the process at once', async (t) => {
  const { serve, port } = await setUp(t);
  // So that this start ends, where the process goes on.
  const other = createServer();
  await once(other.listen(port, '127.0.0.1'), 'listening');
  t.teardown(() => other.close());
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
    const { heard, signals, ended } = serve();
    await until(() => signals.has(signal));
    signals.get(signal)!();
    t.deepEqual(heard.exits, [1]);
    t.is(await within(ended), 1);
    t.regex(heard.stderr, /^entrepot: ENTREPOT_PORT: cannot listen: .*EADDRINUSE.*\n$/);
  }
});

test.serial('a server that cannot close says what is open, and ends the process', async (t) => {
  for (const [unclosed, text] of [
    [undefined, /^entrepot: ended without closing the \S.*, the \S.*\n$/],
    [[], /^entrepot: ended without closing its connections\n$/],
    [['the one', 'the other'], /^entrepot: ended without closing the one, the other\n$/],
  ] as const) {
    const { serve } = await setUp(t);
    const { heard, signals, ended, isReady } = serve();
    await until(isReady);
    const hanging = Promise.withResolvers<void>();
    // The first part that closes hangs.
    const dispose = mock.method(
      AsyncDisposableStack.prototype,
      'disposeAsync',
      async function (this: AsyncDisposableStack) {
        await hanging.promise;
        await this[Symbol.asyncDispose]();
      },
    );
    const open = unclosed && mock.getter(Closing.prototype, 'unclosed', () => [...unclosed]);
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      signals.get('SIGTERM')!();
      for (let each = 0; each < 20; each += 1) await turn();
      // The time for all parts is 4.5 s.
      mock.timers.tick(4500);
      t.deepEqual([heard.stderr, heard.exits], ['', []]);
      mock.timers.tick(499);
      t.regex(heard.stderr, text);
      t.deepEqual(heard.exits, [1]);
    } finally {
      mock.timers.reset();
      dispose.mock.restore();
      open?.mock.restore();
      hanging.resolve();
    }
    await within(ended);
  }
});

test.serial('several workers need a Redis and a fixed port', async (t) => {
  const { serve } = await setUp(t);
  for (const [more, message] of [
    [
      {},
      'ENTREPOT_WORKERS: more than one worker needs ENTREPOT_REDIS_URL, a Redis for all workers. Set it, or set ENTREPOT_WORKERS to 1',
    ],
    [
      { ENTREPOT_REDIS_URL: 'redis://127.0.0.1:1', ENTREPOT_PORT: '0' },
      'ENTREPOT_PORT: more than one worker needs a fixed port; do not use 0',
    ],
  ] as const) {
    const { heard, ended } = serve({ ENTREPOT_WORKERS: '2', ...more });
    t.is(await within(ended), 1);
    t.deepEqual(heard, { stdout: '', stderr: `entrepot: ${message}\n`, exits: [] });
  }
});
