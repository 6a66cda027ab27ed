import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { RedisStore } from '../../src/cache/redis-store.ts';
import { primaryOf, type Address } from '../../src/cache/sentinel.ts';
import { redisUrl } from '../support/processes/services.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { eventually, until } from '../support/until.ts';

// Sentinels that answer what a test wants. `sentinel.long.test.ts` has real ones.

interface Sentinel extends Address {
  /** What it names; null if it does not know the name, undefined if it does not answer, `left` if it ends the connection. */
  primary: Address | null | undefined | 'left';
  asked: string[];
  /** Its open connections. */
  readonly connections: number;
  stop(): Promise<void>;
}

async function startSentinel(t: ExecutionContext, primary: Sentinel['primary']): Promise<Sentinel> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
    let text = '';
    socket.on('data', (chunk) => {
      text += String(chunk);
      // Each command is an array of strings (RESP).
      for (let command = /^\*(\d+)\r\n((?:\$\d+\r\n[^\r]*\r\n)+)/.exec(text); command;) {
        const words = command[2]!.match(/(?<=\$\d+\r\n)[^\r]*(?=\r\n)/g)!;
        if (words.length < Number(command[1])) break;
        const own = words.slice(0, Number(command[1]));
        text = text.slice(`*${own.length}\r\n${own.map((each) => `$${each.length}\r\n${each}\r\n`).join('')}`.length);
        answer(socket, own);
        command = /^\*(\d+)\r\n((?:\$\d+\r\n[^\r]*\r\n)+)/.exec(text);
      }
    });
  });
  const answer = (socket: Socket, words: string[]) => {
    if (words[0] !== 'SENTINEL') {
      socket.write('+OK\r\n');
      return;
    }
    sentinel.asked.push(words.slice(1).join(' '));
    if (sentinel.primary === 'left') socket.destroy();
    else if (sentinel.primary === null) socket.write('*-1\r\n');
    else if (sentinel.primary) {
      const parts = [sentinel.primary.host, String(sentinel.primary.port)];
      socket.write(`*2\r\n${parts.map((each) => `$${each.length}\r\n${each}\r\n`).join('')}`);
    }
  };
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const sentinel: Sentinel = {
    host: '127.0.0.1',
    port: (server.address() as AddressInfo).port,
    primary,
    asked: [],
    get connections() {
      return sockets.size;
    },
    stop: async () => {
      if (!server.listening) return;
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  t.teardown(() => sentinel.stop());
  return sentinel;
}

const place = (sentinels: readonly Address[]) => ({
  sentinels,
  name: 'main',
  username: undefined,
  password: undefined,
  database: 0,
});

const real = () => {
  const { hostname, port } = new URL(redisUrl());
  return { host: hostname, port: Number(port) };
};
const database = () => new URL(redisUrl()).pathname.slice(1) || '0';

async function open(t: ExecutionContext, sentinels: readonly Address[]) {
  const errors: string[] = [];
  const hosts = sentinels.map(({ host, port }) => `${host}:${port}`).join(',');
  const url = `redis+sentinel://${hosts}/main/${database()}`;
  const namespace = randomBytes(8).toString('hex');
  const store = await RedisStore.open(url, namespace, (error) => errors.push((error as Error).message), 30_000);
  t.teardown(() => store.close());
  return { store, errors };
}

const entry = (value: unknown) => ({ value, until: Date.now() + 60_000 });

const outcome = (...sentinels: Sentinel[]) =>
  primaryOf(place(sentinels)).then(
    ({ host, port }) => `${host} ${port}`,
    (error: Error) => error.message.replace('no Sentinel names the primary main: ', ''),
  );

test('the first Sentinel that knows the primary names it, else the reason of the last one is told', async (t) => {
  const [stopped, unknowing, silent, knowing] = [
    await startSentinel(t, null),
    await startSentinel(t, null),
    await startSentinel(t, undefined),
    await startSentinel(t, { host: 'redis.test', port: 7000 }),
  ];
  await stopped.stop();
  /** A Sentinel has half a second, so a busy machine may need several questions. */
  const told = async (expected: string, ...sentinels: Sentinel[]) =>
    t.is(
      await eventually(
        () => outcome(...sentinels),
        (each) => each === expected,
      ),
      expected,
    );
  await told('redis.test 7000', knowing);
  await told('redis.test 7000', stopped, unknowing, silent, knowing);
  t.deepEqual(new Set([...unknowing.asked, ...knowing.asked]), new Set(['get-master-addr-by-name main']));
  await told(`the Sentinel at 127.0.0.1:${unknowing.port} does not know it`, stopped, unknowing);
  await told('a Sentinel has not answered in time', unknowing, silent);
  t.regex(await outcome(silent, stopped), /ECONNREFUSED/);
  for (const each of [unknowing, silent, knowing]) await until(() => each.connections === 0);
});

test('a Sentinel that ends the connection instead of an answer is as one that does not answer', async (t) => {
  const left = await startSentinel(t, 'left');
  await until(async () => {
    await t.throwsAsync(primaryOf(place([left])), { message: /^no Sentinel names the primary main: / });
    return left.asked.length > 0;
  });
  const knowing = await startSentinel(t, { host: 'redis.test', port: 7000 });
  await until(async () => (await outcome(left, knowing)) === 'redis.test 7000');
  t.pass();
});

test('the primary that Sentinels name is used, also after a fail-over, and while no Sentinel answers', async (t) => {
  const [one, two] = [new TcpProxy(real()), new TcpProxy(real())];
  for (const each of [one, two]) t.teardown(() => each.close());
  const primary = { host: '127.0.0.1', port: await one.listen() };
  const other = { host: '127.0.0.1', port: await two.listen() };
  const [down, sentinel] = [await startSentinel(t, null), await startSentinel(t, primary)];
  await down.stop();
  const { store, errors } = await open(t, [down, sentinel]);
  await until(() => store.set('key', entry('first'), 60_000));
  t.is((await store.get('key'))?.value, 'first');
  const asked = sentinel.asked.length;
  await until(() => sentinel.asked.length > asked, 20_000);
  t.is((await store.get('key'))?.value, 'first', 'the connection stays while the primary does');
  sentinel.primary = other;
  const before = sentinel.asked.length;
  await until(() => sentinel.asked.length > before + 1, 20_000);
  await one.refuse();
  await until(async () => (await store.get('key'))?.value === 'first');
  errors.length = 0;
  const { failures } = store;
  await sentinel.stop();
  // Longer than a question to the Sentinels takes.
  const end = performance.now() + 2500;
  await until(() => performance.now() > end);
  t.is((await store.get('key'))?.value, 'first');
  t.deepEqual([errors, store.failures], [[], failures], 'a connection that works needs no Sentinel');
  await store.close();
  t.is(await store.get('key'), undefined);
  t.false(await store.set('key', entry('last'), 60_000));
});

test('Sentinels that do not know the primary are told once, and asked again until they do', async (t) => {
  const sentinel = await startSentinel(t, null);
  const { store, errors } = await open(t, [sentinel]);
  const message = `no Sentinel names the primary main: the Sentinel at 127.0.0.1:${sentinel.port} does not know it`;
  t.is(errors.length, 1);
  t.true([message, 'no Sentinel names the primary main: a Sentinel has not answered in time'].includes(errors[0]!));
  t.is(await store.get('key'), undefined);
  await until(() => store.failures >= 3, 20_000);
  t.is(errors.length, 1);
  t.true(store.failedAt! <= performance.now());
  sentinel.primary = real();
  await until(() => store.set('key', entry('late'), 60_000));
  t.is((await store.get('key'))?.value, 'late');
  await store.close();
  const asked = sentinel.asked.length;
  await store.close();
  const end = performance.now() + 1500;
  await until(() => performance.now() > end);
  t.true(sentinel.asked.length <= asked + 1, 'it asks no more');
});
