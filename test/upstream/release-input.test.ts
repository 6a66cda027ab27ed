import { EventEmitter } from 'node:events';
import type { IncomingMessage, request } from 'node:http';
import { PassThrough, type Duplex } from 'node:stream';
import test from 'ava';
import { mayReleaseInput, parserCopies, releaseInput } from '../../src/upstream/release-input.ts';

test('the HTTP parser of this Node copies bodies, so that its input can be freed', async (t) => {
  t.true(await parserCopies());
  const check = mayReleaseInput();
  t.true(await check);
  t.is(mayReleaseInput(), check, 'it is checked once');
});

const chunk = () => Buffer.from(new TextEncoder().encode('body').buffer);

test('the input of a response is freed as soon as its parser is done with it, until the response is closed', async (t) => {
  const socket = new EventEmitter();
  const response = Object.assign(new EventEmitter(), { socket }) as unknown as IncomingMessage;
  releaseInput(response);
  const first = chunk();
  socket.emit('data', first);
  t.is(first.toString(), 'body', 'the parser may read it after this');
  await Promise.resolve();
  t.is(first.length, 0);
  response.emit('close');
  t.is(socket.listenerCount('data'), 0);
  const second = chunk();
  socket.emit('data', second);
  await Promise.resolve();
  t.is(second.toString(), 'body');
  const returned = Object.assign(new EventEmitter(), { socket: null }) as unknown as IncomingMessage;
  t.notThrows(() => releaseInput(returned));
  t.notThrows(() => returned.emit('close'));
});

test('a parser that hands on its own input is noticed', async (t) => {
  const sharing = ((options: { createConnection: () => Duplex }, then: (response: EventEmitter) => void) => {
    const response = new PassThrough();
    options.createConnection().once('data', (chunk: Buffer) => response.write(chunk.subarray(-4)));
    then(response);
    return Object.assign(new EventEmitter(), { end: () => undefined });
  }) as unknown as typeof request;
  t.false(await parserCopies(sharing));
});

test('a parser that cannot be asked is an error, and its connection is closed', async (t) => {
  let connection: Duplex | undefined;
  const failing = ((options: { createConnection: () => Duplex }) => {
    connection = options.createConnection();
    const call = new EventEmitter();
    return Object.assign(call, { end: () => setImmediate(() => call.emit('error', new Error('no parser'))) });
  }) as unknown as typeof request;
  await t.throwsAsync(parserCopies(failing), { message: 'no parser' });
  t.true(connection!.destroyed);
});
