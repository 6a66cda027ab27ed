import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { connect } from 'node:net';
import type { IncomingMessage } from 'node:http';
import { buffer } from 'node:stream/consumers';
import test, { type ExecutionContext } from 'ava';
import { listen } from '../../src/http/listener.ts';
import type { AppResponse } from '../../src/http/request-context.ts';
import { longestTurn } from '../support/longest-turn.ts';
import { startTestServer } from '../support/server.ts';
import { connectTls, startTlsServer } from '../support/tls.ts';
import { until, within } from '../support/until.ts';

// In a process of its own: it measures the process.

/** A server with `answer` alone. */
async function serve(t: ExecutionContext, answer: (request: IncomingMessage, response: AppResponse) => void) {
  const limits = {
    headerTimeout: 10_000,
    headerSize: 16_384,
    perAddress: undefined,
    isProxy: () => false,
    onRefused: () => undefined,
  };
  const { http } = await listen(answer, '127.0.0.1', 0, limits, {});
  t.teardown(() => {
    http.closeAllConnections();
    http.close();
  });
  const { port } = http.address() as AddressInfo;
  return () => dial(t, port);
}

async function dial(t: ExecutionContext, port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  t.teardown(() => socket.destroy());
  await once(socket, 'connect');
  return socket;
}

const request = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`;
const many = Buffer.from(request('/v2/').repeat(3000));

/** Sends many requests on each connection at once, and asks on another connection until it was answered some times. */
async function flood(connections: readonly Socket[], ask: () => Promise<number>): Promise<void> {
  for (const each of connections) each.resume().write(many);
  for (let each = 0; each < 10; each += 1) {
    const status = await within(ask());
    if (status !== 200) throw new Error(`answered with ${status}`);
  }
  for (const each of connections) each.destroy();
}

test.serial('many requests on a connection, sent without waiting for answers, hold no other client', async (t) => {
  const server = await startTestServer(t);
  const port = Number(new URL(server.url).port);
  const turn = await longestTurn(async () => {
    const connections = await Promise.all(Array.from({ length: 10 }, () => dial(t, port)));
    await flood(connections, async () => (await server.fetch('/livez')).status);
  });
  t.true(turn < 50, `${turn} ms`);
});

test.serial('the same over TLS', async (t) => {
  const { server, pair } = await startTlsServer(t);
  const asking = await connectTls(server.url, pair);
  t.teardown(() => asking.destroy());
  const turn = await longestTurn(async () => {
    const connections: Socket[] = [];
    for (let each = 0; each < 5; each += 1) {
      const socket = (await connectTls(server.url, pair)).on('error', () => undefined);
      t.teardown(() => socket.destroy());
      connections.push(socket);
    }
    await flood(connections, async () => {
      asking.write(request('/livez'));
      const [answer] = (await once(asking, 'data')) as [Buffer];
      return Number(answer.subarray(9, 12).toString());
    });
  });
  t.true(turn < 50, `${turn} ms`);
});

test.serial('the requests of a connection begin one after another, and one with too many is closed', async (t) => {
  const begun: string[] = [];
  const answers: (() => void)[] = [];
  const connectTo = await serve(t, ({ url }, response) => {
    begun.push(url!);
    answers.push(() => response.end());
  });
  const few = await connectTo();
  let answered = '';
  few.on('data', (bytes: Buffer) => (answered += bytes.toString('latin1')));
  few.write(Array.from({ length: 17 }, (_, each) => request(`/${each}`)).join(''));
  for (let each = 0; each < 17; each += 1) {
    await until(() => begun.length === each + 1);
    t.is(begun.at(-1), `/${each}`);
    answers.pop()!();
  }
  await until(() => answered.split('HTTP/1.1 200').length === 18);
  begun.length = 0;
  for (const bytes of [request('/many').repeat(18), request('/many').repeat(2000)]) {
    const many = await connectTo();
    const received = buffer(many).catch(() => Buffer.alloc(0));
    const closed = once(many, 'close');
    many.write(bytes);
    await within(closed);
    t.is((await received).toString(), '', 'it is closed without an answer that would be one to the first request');
  }
  t.deepEqual(begun, ['/many', '/many']);
  few.write(request('/again'));
  await until(() => begun.includes('/again'));
});

test.serial('a client that does not read holds one answer', async (t) => {
  let written = 0;
  const body = Buffer.alloc(8 * 1024 * 1024);
  const connectTo = await serve(t, (_request, response) => {
    written += 1;
    response.end(body);
  });
  const slow = await connectTo();
  const count = 17;
  slow.pause().write(request('/').repeat(count));
  let last = 0;
  await until(async () => {
    const before = last;
    last = written;
    await new Promise((resolve) => setTimeout(resolve, 100));
    return written > 0 && written === before;
  });
  // What the system keeps for the connection is not ours.
  t.true(written < count / 2, String(written));
  let received = 0;
  slow.on('data', (piece: Buffer) => (received += piece.length)).resume();
  await until(() => received >= count * body.length);
  t.is(written, count);
});

test.serial('requests with and without bodies, in pieces of any size, are answered once and in order', async (t) => {
  const connectTo = await serve(t, (request, response) => {
    const early = request.headers['x-early'];
    const answer = (text: string) => response.end(`${text}|${'-'.repeat(Number(request.headers['x-size'] ?? 0))};`);
    if (early !== undefined) {
      answer(early as string);
      request.resume();
      return;
    }
    buffer(request).then(
      (body) => answer(createHash('sha256').update(body).digest('base64')),
      () => undefined,
    );
  });
  for (let round = 0; round < 12; round += 1) {
    const sent: Buffer[] = [];
    const expected: string[] = [];
    for (let each = 0; each < 16; each += 1) {
      const body = Buffer.from('\r\n\r\n'.repeat(randomBytes(1)[0]! * (each % 7 === 0 ? 90 : 1)));
      const size = each % 9 === 0 ? 150_000 : 0;
      const head = (more: string) => `PUT / HTTP/1.1\r\nHost: a\r\nX-Size: ${size}\r\n${more}\r\n`;
      const early = each % 5 === 0 ? `X-Early: ${each}\r\n` : '';
      if (each % 4 === 0) sent.push(Buffer.from(`GET / HTTP/1.1\r\nHost: a\r\nX-Size: ${size}\r\n${early}\r\n`));
      else if (each % 3 === 0)
        sent.push(
          Buffer.from(head(`Transfer-Encoding: chunked\r\n${early}`)),
          ...(body.length > 0 ? [Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from('\r\n')] : []),
          Buffer.from('0\r\n\r\n'),
        );
      else sent.push(Buffer.from(head(`Content-Length: ${body.length}\r\n${early}`)), body);
      const hash = createHash('sha256').update(each % 4 === 0 ? '' : body);
      expected.push(`${each % 5 === 0 ? each : hash.digest('base64')}|${size}`);
    }
    const bytes = Buffer.concat(sent);
    const socket = await connectTo();
    const pieces: Buffer[] = [];
    socket.setNoDelay(true).on('data', (piece: Buffer) => pieces.push(piece));
    for (let start = 0; start < bytes.length;) {
      const length =
        round % 3 === 0 ? bytes.length : 1 + (randomBytes(2).readUInt16LE() % (round % 3 === 1 ? 700 : 20_000));
      socket.write(bytes.subarray(start, start + length));
      start += length;
      if (round % 2 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const bodies = () =>
      [
        ...Buffer.concat(pieces)
          .toString('latin1')
          .matchAll(/([\w+/=]+)\|(-*);/g),
      ].map(([, text, rest]) => `${text}|${rest!.length}`);
    await until(() => bodies().length >= expected.length).catch(() => undefined);
    t.deepEqual(bodies(), expected);
    socket.destroy();
  }
});

test.serial('requests with an unknown expectation wait for their turn, too', async (t) => {
  const connectTo = await serve(t, (_request, response) => void response.end());
  const socket = await connectTo();
  let text = '';
  socket.on('data', (piece: Buffer) => (text += piece.toString('latin1')));
  const expecting = 'GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n';
  socket.write(expecting.repeat(10));
  await until(() => text.split('HTTP/1.1 417 ').length === 11);
  const closed = once(socket, 'close');
  socket.write(expecting.repeat(1000));
  await t.notThrowsAsync(within(closed));
});
