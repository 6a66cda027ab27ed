import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { endServers } from './ended-servers.ts';
import type { Fault } from './fault.ts';
import { authorization } from './pushes.ts';

const announced = 64 * 2 ** 20;

/** Sends the head and the first MiB of a package that is too large, as nginx does, and reads the answer. */
async function sendRefused(url: string): Promise<Socket> {
  const { host, port } = new URL(url);
  const socket = connect({ port: Number(port), host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => undefined);
  let answer = '';
  const answered = new Promise<void>((resolve) => {
    socket.on('data', (piece: Buffer) => {
      answer += piece.toString();
      resolve();
    });
    socket.once('close', resolve);
  });
  socket.write(
    `PUT /v3/push HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\nAuthorization: ${authorization}\r\n` +
      `Content-Type: application/octet-stream\r\nContent-Length: ${announced}\r\n\r\n`,
  );
  socket.write(Buffer.alloc(2 ** 20));
  await answered;
  assert.match(answer, /^HTTP\/1\.1 413 /);
  return socket;
}

export const fault: Fault = {
  name: 'SIGTERM after refused bodies with Connection: close',
  run: (options) =>
    endServers(options, (t) => ({
      settings: { ENTREPOT_LIMITS_NUPKG: '1MiB' },
      cause: async ({ url }) => {
        const silent = await sendRefused(url);
        const sending = await sendRefused(url);
        const timer = setInterval(() => sending.write(Buffer.alloc(2 ** 12)), 50);
        t.teardown(() => {
          clearInterval(timer);
          for (const socket of [silent, sending]) socket.destroy();
        });
        return 2;
      },
    })),
};
