import test from 'ava';
import { Cache } from '../../src/cache/cache.ts';
import { schema } from '../../src/config/schema.ts';
import type { RepeatedEvents } from '../../src/events/repeated.ts';
import { addressClient, Limits } from '../../src/limits/limits.ts';
import { within } from '../support/until.ts';

const events = { note: () => undefined } as unknown as RepeatedEvents;
const staying = { always: {}, gone: false, whenGone: () => () => undefined };

test('credentials from an address with too many failed sign-ins are looked up a few at a time, and none is refused', async (t) => {
  const clock = { now: 1000 };
  const { limits: settings } = schema.parse({
    limits: { failedSignInsPerMinute: 1, searchesPerMinute: 1, delay: '0s' },
  });
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  const limits = new Limits({ settings, cache, events, now: () => clock.now });
  const crowd = async (address: string) => {
    let running = 0;
    let most = 0;
    const look = async (value: number) => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setImmediate(resolve));
      running -= 1;
      return value;
    };
    const values = Array.from({ length: 20 }, (_, index) => index);
    const found = await Promise.all(
      values.map((value) =>
        limits.lookUp(
          () => address,
          () => look(value),
        ),
      ),
    );
    t.deepEqual(found, values);
    return most;
  };
  const fail = () => limits.take('failed-sign-ins', addressClient('192.0.2.1'), staying);
  const search = () => Promise.resolve(limits.take('searches', addressClient('192.0.2.1'), staying));
  await search();
  await t.throwsAsync(search(), { message: /limit of 1 searches/ });
  t.is(fail(), undefined);
  t.is(await crowd('192.0.2.1'), 20);
  await t.throwsAsync(Promise.resolve(fail()), { message: /more than 1 sign-ins/ });
  t.is(await crowd('192.0.2.1'), 2);
  t.is(await crowd('192.0.2.2'), 20);
  clock.now += 61_000;
  t.is(await crowd('192.0.2.1'), 20);
});

test('above a limit, a request whose client has left is not held', async (t) => {
  const { limits: settings } = schema.parse({ limits: { searchesPerMinute: 1, delay: '60s' } });
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  const limits = new Limits({ settings, cache, events, now: () => 1000 });
  const client = addressClient('192.0.2.1');
  t.is(limits.take('searches', client, staying), undefined);
  const gone = { ...staying, gone: true };
  for (let count = 0; count < 3; count += 1) {
    const waiting = Promise.resolve(limits.take('searches', client, gone));
    await t.throwsAsync(within(waiting), { message: /closed the connection/ });
  }
});

test('a request that is refused after it was held uses up nothing', async (t) => {
  const clock = { now: 1000 };
  const { limits: settings } = schema.parse({ limits: { searchesPerMinute: 1, delay: '20ms' } });
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  const limits = new Limits({ settings, cache, events, now: () => clock.now });
  const search = () => limits.take('searches', addressClient('192.0.2.1'), staying);
  t.is(search(), undefined);
  const held = Promise.resolve(search());
  clock.now += 59_990;
  await t.throwsAsync(held, { message: /limit of 1 searches/ });
  clock.now += 10;
  t.is(search(), undefined);
});

test('under one key 100 requests above a limit wait, and a further one is refused at once', async (t) => {
  const { limits: settings } = schema.parse({ limits: { searchesPerMinute: 1, delay: '50s' } });
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  const limits = new Limits({ settings, cache, events, now: () => 1000 });
  const leaving: (() => void)[] = [];
  const waiter = { always: {}, gone: false, whenGone: (then: () => void) => (leaving.push(then), () => undefined) };
  const search = (address: string) => Promise.resolve(limits.take('searches', addressClient(address), waiter));
  await search('192.0.2.1');
  const held = Array.from({ length: 100 }, () => search('192.0.2.1').catch((error: Error) => error.message));
  t.is(leaving.length, 100);
  await t.throwsAsync(within(search('192.0.2.1')), { message: /limit of 1 searches/ });
  await search('192.0.2.2');
  const other = search('192.0.2.2').catch((error: Error) => error.message);
  t.is(leaving.length, 101, 'another key has room');
  for (const leave of leaving) leave();
  for (const each of [...held, other]) t.regex(String(await each), /closed the connection/);
  const again = search('192.0.2.1').catch((error: Error) => error.message);
  t.is(leaving.length, 102, 'there is room again');
  leaving.at(-1)!();
  t.regex(String(await again), /closed the connection/);
});

test('of all keys together 5,000 requests above a limit wait, and one that leaves makes room for another', async (t) => {
  const { limits: settings } = schema.parse({ limits: { searchesPerMinute: 1, delay: '50s' } });
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  const limits = new Limits({ settings, cache, events, now: () => 1000 });
  const leaving: (() => void)[] = [];
  const waiter = { always: {}, gone: false, whenGone: (then: () => void) => (leaving.push(then), () => undefined) };
  const search = (address: number) =>
    Promise.resolve(limits.take('searches', addressClient(`192.0.2.${address}`), waiter)).catch(
      (error: Error) => error.message,
    );
  const addresses = Array.from({ length: 51 }, (_, each) => each);
  for (const address of addresses) await search(address);
  const held = addresses.slice(0, 50).flatMap((address) => Array.from({ length: 100 }, () => search(address)));
  t.is(leaving.length, 5000);
  t.regex(String(await within(search(50))), /limit of 1 searches/);
  leaving[0]!();
  t.regex(String(await within(held[0]!)), /closed the connection/);
  const next = search(50);
  t.is(leaving.length, 5001);
  t.regex(String(await within(search(50))), /limit of 1 searches/);
  for (const leave of leaving) leave();
  await Promise.all([...held, next]);
});
