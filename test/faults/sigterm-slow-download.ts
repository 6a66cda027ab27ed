import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { digestOf } from '../support/registry.ts';
import { endServers } from './ended-servers.ts';
import type { Fault } from './fault.ts';
import { authorization } from './pushes.ts';

/** More than the buffers of the sockets take. */
const layer = randomBytes(32 * 2 ** 20);

export const fault: Fault = {
  name: 'SIGTERM while a client downloads slowly',
  run: (options) =>
    endServers(options, (t) => ({
      cause: async ({ url }) => {
        const digest = digestOf(layer);
        const uploads = `${url}/v2/made/slow/blobs/uploads/?digest=${digest}`;
        await fetch(uploads, { method: 'POST', headers: { authorization }, body: new Uint8Array(layer) });
        const { host, port } = new URL(url);
        const socket = connect(Number(port), '127.0.0.1').on('error', () => undefined);
        t.teardown(() => socket.destroy());
        const path = `/v2/made/slow/blobs/${digest}`;
        socket.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: ${authorization}\r\n\r\n`);
        await once(socket, 'data');
        socket.pause();
        return 2;
      },
    })),
};
