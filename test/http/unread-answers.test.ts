import { randomBytes } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { get, IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { AppResponse } from '../../src/http/request-context.ts';
import { sendBytes, sendContent } from '../../src/http/send.ts';
import { Sending } from '../../src/http/sending.ts';
import { UnreadAnswers } from '../../src/http/unread-answers.ts';
import { contentOfPieces } from '../../src/storage/files/content.ts';
import { until } from '../support/until.ts';
import { answerRequests } from '../support/answers.ts';

// What answers take in memory whose clients do not read them.

const mebibyte = 2 ** 20;
/** More than the operating system takes of an answer that nobody reads. */
const size = 16 * mebibyte;

/** Makes an answer in memory of `size` bytes. */
type Answer = (request: IncomingMessage, response: AppResponse) => void;

const whole: Answer = (request, response) => sendBytes(request, response, 200, Buffer.alloc(size), {});
const kept = randomBytes(size);
const inPieces: Answer = (request, response) => {
  const pieces = Array.from({ length: 16 }, () => Buffer.alloc(mebibyte));
  void sendContent(request, response, contentOfPieces(pieces), { headers: {} });
};

/** A server whose unread answers may take `max` bytes. */
async function start(t: ExecutionContext, max: number, answer: Answer) {
  const sending = new Sending(new UnreadAnswers(max));
  const answers: AppResponse[] = [];
  const answered = (request: IncomingMessage, response: AppResponse) => {
    answers.push(response);
    response.context.remote = request.socket.remoteAddress;
    answer(request, response);
  };
  const port = await answerRequests(t, answered, sending);
  const ask = (localAddress: string, path: string) =>
    new Promise<IncomingMessage>((resolve, reject) => {
      const request = get({ host: '127.0.0.1', port, path, localAddress, agent: false }, resolve);
      request.once('error', reject);
    });
  return {
    answers,
    /** Asks, and reads nothing of the answer. */
    stall: async (address = '127.0.0.1', path = '/') => (await ask(address, path)).on('error', () => undefined),
    /** The bytes of an answer that is read at once. */
    read: async (address = '127.0.0.1', path = '/') => {
      let bytes = 0;
      for await (const piece of await ask(address, path)) bytes += (piece as Buffer).length;
      return bytes;
    },
    /** Which answers have been ended without their client. */
    ended: () => answers.flatMap(({ context }, index) => (context.failure?.code === 'AnswerUnread' ? [index] : [])),
  };
}

for (const [what, answer] of [
  ['as a whole', whole],
  ['in pieces', inPieces],
] as const) {
  test(`of too many answers ${what} that nobody reads, the oldest are ended, and readers get theirs`, async (t) => {
    const { answers, stall, read, ended } = await start(t, 3 * size, answer);
    for (let client = 0; client < 3; client += 1) await stall();
    t.deepEqual(ended(), [], 'they have room');
    t.is(await read(), size);
    t.deepEqual(ended(), [0]);
    await until(() => answers[3]!.closed);
    t.is(await read(), size);
    t.deepEqual(ended(), [0], 'what was read takes no memory any more');
    await stall();
    await stall();
    t.deepEqual(ended(), [0, 1]);
    t.deepEqual(
      answers.map(({ destroyed }) => destroyed),
      [true, true, false, true, true, false, false],
    );
  });
}

test('the address with most unread bytes loses answers, also if it is the one that asks', async (t) => {
  const { stall, ended } = await start(t, 3 * size, whole);
  await stall('127.0.0.2');
  await stall();
  await stall();
  await stall('127.0.0.3');
  t.deepEqual(ended(), [1]);
  await t.notThrowsAsync(stall());
  t.deepEqual(ended(), [1, 2]);
});

test('an answer larger than the bound is ended, and the server goes on', async (t) => {
  const { read, answers, ended } = await start(t, size - 1, (request, response) =>
    answers.length === 1 ? whole(request, response) : sendBytes(request, response, 200, Buffer.alloc(100_000), {}),
  );
  await t.throwsAsync(read());
  t.deepEqual(ended(), [0]);
  t.is(await read(), 100_000);
});

test('answers with parts of the same memory count it once, in whatever order they end', async (t) => {
  let part = 0;
  const { stall, read, answers, ended } = await start(t, 2 * size, (request, response) =>
    request.url === '/own'
      ? whole(request, response)
      : sendBytes(request, response, 200, part++ % 2 === 0 ? kept : kept.subarray(0, size / 2), {}),
  );
  for (const order of [
    [0, 1],
    [1, 0],
  ]) {
    const from = answers.length;
    for (let client = 0; client < 2; client += 1) await stall();
    for (const each of order) {
      answers[from + each]!.destroy();
      await until(() => answers[from + each]!.closed);
    }
  }
  const from = answers.length;
  for (let client = 0; client < 2; client += 1) await stall('127.0.0.1', '/own');
  t.deepEqual(ended(), [], 'nothing is counted that is gone');
  await stall('127.0.0.1', '/own');
  t.deepEqual(ended(), [from], 'and everything that is there');
  t.is(await read('127.0.0.1', '/own'), size);
});

test('many readers of one kept document are not ended for the memory of another address', async (t) => {
  const { stall, ended } = await start(t, 3 * size, (request, response) =>
    request.url === '/own' ? whole(request, response) : sendBytes(request, response, 200, kept, {}),
  );
  for (let client = 0; client < 6; client += 1) await stall();
  for (let client = 0; client < 3; client += 1) await stall('127.0.0.2', '/own');
  t.deepEqual(ended(), [6]);
});

test('the memory that several answers send counts once', async (t) => {
  const { stall, ended } = await start(t, 2 * size, (request, response) => sendBytes(request, response, 200, kept, {}));
  for (let client = 0; client < 4; client += 1) await stall();
  t.deepEqual(ended(), []);
});

const areEnded = (some: readonly AppResponse[]) => some.map(({ destroyed }) => destroyed);

test('of an address, answers whose memory many others send too are ended after those that free some', (t) => {
  const unread = new UnreadAnswers(3 * size);
  const add = (memory: object, bytes: number) => {
    const response = new AppResponse(new IncomingMessage(new Socket()));
    response.context.remote = '192.0.2.7';
    unread.add(response, memory, bytes);
    return response;
  };
  const readers = Array.from({ length: 100 }, () => add(kept, mebibyte));
  const own = Array.from({ length: 3 }, () => add({}, size));
  t.deepEqual(areEnded(own), [true, false, false]);
  t.false(areEnded(readers).includes(true), 'the end of all of them would free 1 MiB');
  t.true(add({}, 3 * size).destroyed);
  t.deepEqual(areEnded(own), [true, true, true]);
  t.false(areEnded(readers).includes(true));
});

test('room is made by the oldest answers of whoever has the most at that moment', (t) => {
  const unread = new UnreadAnswers(22 * mebibyte);
  const ended: string[] = [];
  const add = (remote: string, name: string, many: number) => {
    const response = Object.assign(new EventEmitter(), {
      destroyed: false,
      context: { remote },
      destroy: () => ended.push(name),
    });
    unread.add(response as unknown as AppResponse, {}, many * mebibyte);
  };
  for (let index = 1; index <= 6; index += 1) add('192.0.2.1', `first ${index}`, 2);
  add('192.0.2.2', 'second', 9);
  t.deepEqual(ended, [], 'there is room for 21 of 22 MiB');
  add('192.0.2.3', 'third', 8);
  t.deepEqual(ended, ['first 1', 'first 2', 'second'], 'clients with 12, 10 and 9 MiB');
});
