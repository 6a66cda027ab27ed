import type { IncomingMessage } from 'node:http';
import { PassThrough } from 'node:stream';
import test from 'ava';
import { parseJson, readBody } from '../../src/http/body.ts';

const read = (type: string | undefined, text: string | Buffer) =>
  parseJson({ headers: { 'content-type': type } } as IncomingMessage, Buffer.from(text));

test('a body is read as JSON if its type says so, in each form of that type', (t) => {
  for (const type of [
    'application/json',
    'Application/JSON; charset=utf-8',
    'application/json ;x=y',
    'application/merge-patch+json',
    'application/vnd.a-b.c+json;v=1',
  ])
    t.deepEqual(read(type, ' {"a":[1]} '), { a: [1] }, type);
  for (const type of [
    undefined,
    '',
    'text/json',
    'xapplication/json',
    'text/x; application/json',
    'application/jsonx',
    'application/json x',
    'application/+json',
    'application/a b+json',
    'application/x-www-form-urlencoded',
  ])
    t.throws(() => read(type, '{}'), { name: 'Unsupported', message: /Content-Type: application\/json/ }, String(type));
  for (const wrong of ['', '{', '{"a":1}}', Buffer.from('"\xe9"', 'latin1')])
    t.throws(() => read('application/json', wrong), { name: 'Invalid', message: /not valid JSON in UTF-8/ });
});

/** A body that is being sent, and the promise of what is read of it. */
function sending(limit: number, headers: Record<string, string> = {}, idle = 60_000) {
  const body = new PassThrough();
  const request = Object.assign(body, { headers }) as unknown as IncomingMessage;
  return { body, read: readBody(request, { limit, idle }) };
}

const listenersOf = (body: PassThrough) =>
  ['data', 'end', 'error', 'close'].map((event) => body.listenerCount(event)).join();

test('a body of up to the limit is read, however it arrives', async (t) => {
  for (const headers of [undefined, { 'content-length': '8' }]) {
    const { body, read } = sending(8, headers);
    let atEnd = '';
    body.once('end', () => (atEnd = listenersOf(body)));
    for (const piece of ['abc', 'de', 'fgh']) body.write(piece);
    body.end();
    t.is((await read).toString(), 'abcdefgh');
    t.is(atEnd, '0,0,0,0');
  }
  const { body, read } = sending(0);
  body.end();
  t.is((await read).length, 0);
});

test('a body above the limit is refused by its length, or when it exceeds the limit, and the rest is not kept', async (t) => {
  const tooLarge = { name: 'TooLarge', message: 'The body is larger than the 8 bytes allowed here.' };
  const announced = sending(8, { 'content-length': '9' });
  await t.throwsAsync(announced.read, tooLarge);
  t.is(announced.body.listenerCount('data'), 0);
  const { body, read } = sending(8);
  body.write('abcde');
  body.write('fghi');
  await t.throwsAsync(read, tooLarge);
  t.is(listenersOf(body), '0,0,1,0');
  t.true(body.readableFlowing);
  // A failure of the connection after it is no failure of this process.
  t.notThrows(() => body.emit('error', new Error('reset')));
});

test('a body whose connection fails or closes, or whose sender is silent, is Aborted', async (t) => {
  const closed = { name: 'Aborted', message: 'The connection closed before the body was complete.' };
  const failing = sending(8);
  const reason = new Error('reset');
  failing.body.destroy(reason);
  t.is((await t.throwsAsync(failing.read, closed)).cause, reason);
  const closing = sending(8);
  closing.body.write('abc');
  closing.body.destroy();
  t.is((await t.throwsAsync(closing.read, closed)).cause, undefined);
  t.is(closing.body.listenerCount('data'), 0);
  const silent = sending(8, {}, 20);
  silent.body.write('abc');
  await t.throwsAsync(silent.read, { name: 'Aborted', message: /stopped sending/ });
});
