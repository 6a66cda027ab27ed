import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { mock } from 'node:test';
import { pino } from 'pino';
import test, { type ExecutionContext } from 'ava';
import { ServerCertificate } from '../../src/tls/certificate.ts';
import { createTlsServer } from '../../src/tls/server.ts';
import { createPair } from '../support/tls.ts';
import { within } from '../support/until.ts';

// Connections to the TLS port that send nothing, or do not end, with a clock that the tests move.

async function start(t: ExecutionContext) {
  const { tls } = await createPair(t);
  const log = pino({ level: 'silent' });
  const certificate = (await ServerCertificate.open(tls, { log, now: Date.now }))!;
  const server = createTlsServer(certificate, {}, (_request, response) => response.end('here'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const accepted: Socket[] = [];
  server.on('connection', (socket: Socket) => accepted.push(socket));
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => {
    mock.timers.reset();
    for (const socket of accepted) socket.destroy();
    server.close();
  });
  const { port } = server.address() as { port: number };
  /** Opens a connection that stays open when the server has ended its side. */
  const open = async () => {
    const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
    socket.on('error', () => undefined);
    t.teardown(() => socket.destroy());
    const count = accepted.length;
    await once(socket, 'connect');
    while (accepted.length === count) await new Promise(setImmediate);
    return { socket, here: accepted.at(-1)! };
  };
  return { open };
}

test.serial('a connection that sends nothing is closed after 10 seconds', async (t) => {
  const { open } = await start(t);
  const { here } = await open();
  mock.timers.tick(9999);
  t.false(here.destroyed);
  mock.timers.tick(1);
  t.true(here.destroyed);
});

test.serial('who sends plain HTTP has 2 seconds to read the answer and to end', async (t) => {
  const { open } = await start(t);
  const { socket, here } = await open();
  socket.write('GET / HTTP/1.1\r\nHost: a.test\r\n\r\n');
  const answer = await within(text(socket));
  t.is(
    answer,
    [
      'HTTP/1.1 400 Bad Request',
      'Content-Type: text/plain; charset=utf-8',
      'Content-Length: 67',
      'Connection: close',
      '',
      'This port accepts only HTTPS. Use a URL that begins with https://.\n',
    ].join('\r\n'),
  );
  mock.timers.tick(1999);
  t.false(here.destroyed, 'it is not closed at once, so that the answer is read');
  mock.timers.tick(1);
  t.true(here.destroyed);
});

test.serial('a connection that ends without a byte is closed', async (t) => {
  const { open } = await start(t);
  const { socket, here } = await open();
  socket.end();
  for (const end = performance.now() + 30_000; !here.destroyed && performance.now() < end;)
    await new Promise(setImmediate);
  t.true(here.destroyed);
});
