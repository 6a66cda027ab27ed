import { constants } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server, type ServerOptions } from 'node:https';
import type { Server as TcpServer, Socket } from 'node:net';
import type { ServerCertificate } from './certificate.ts';

/** Longest time for the first byte of a connection, and then for its handshake; milliseconds. */
const handshakeTime = 10_000;
/** How long the sender of plain HTTP has to read the answer; milliseconds. */
const refusalTime = 2000;
/** The first byte of a TLS connection: a record with a handshake (RFC 8446, 5.1). */
const handshakeRecord = 0x16;

/**
 * The default settings of Node allow more, such as key exchange without forward secrecy, and NODE_OPTIONS can weaken them.
 * These are Mozilla's "intermediate" ones without DHE. ALPN is http/1.1, the default of Node.
 */
const settings = {
  minVersion: 'TLSv1.2',
  ciphers: [
    'TLS_AES_128_GCM_SHA256',
    'TLS_AES_256_GCM_SHA384',
    'TLS_CHACHA20_POLY1305_SHA256',
    'ECDHE-ECDSA-AES128-GCM-SHA256',
    'ECDHE-RSA-AES128-GCM-SHA256',
    'ECDHE-ECDSA-AES256-GCM-SHA384',
    'ECDHE-RSA-AES256-GCM-SHA384',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
    'ECDHE-RSA-CHACHA20-POLY1305',
  ].join(':'),
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
} as const;

const refusal = 'This port accepts only HTTPS. Use a URL that begins with https://.\n';
const refusalAnswer = [
  'HTTP/1.1 400 Bad Request',
  'Content-Type: text/plain; charset=utf-8',
  `Content-Length: ${Buffer.byteLength(refusal)}`,
  'Connection: close',
  '',
  refusal,
].join('\r\n');

/**
 * An HTTPS server with the certificate in use, also after it changes; open connections keep the one before. Plain HTTP gets
 * status 400 and is closed. It is not redirected, because a client would send its credentials unencrypted first each time.
 */
export function createTlsServer<
  Request extends typeof IncomingMessage = typeof IncomingMessage,
  Response extends typeof ServerResponse<InstanceType<Request>> = typeof ServerResponse<InstanceType<Request>>,
>(
  certificate: ServerCertificate,
  options: ServerOptions<Request, Response>,
  listener: (request: InstanceType<Request>, response: InstanceType<Response> & { req: InstanceType<Request> }) => void,
): Server<Request, Response> {
  const { cert, key } = certificate.pair;
  const server = createServer<Request, Response>(
    { ...options, ...settings, cert, key, handshakeTimeout: handshakeTime },
    listener,
  );
  certificate.onChange((pair) => server.setSecureContext({ ...settings, cert: pair.cert, key: pair.key }));
  refusePlain(server);
  return server;
}

const ignore = () => undefined;

/** Looks at the first byte of each connection, before Node starts TLS on it. */
function refusePlain(server: TcpServer): void {
  const [startTls] = server.listeners('connection') as [(socket: Socket) => void];
  server.off('connection', startTls);
  server.on('connection', (socket: Socket) => {
    const late = setTimeout(() => socket.destroy(), handshakeTime);
    socket.on('error', ignore).once('close', () => clearTimeout(late));
    const look = () => {
      const first = socket.read() as Buffer | null;
      if (first === null) {
        // The end of the connection is also readable.
        if (socket.readableEnded || socket.destroyed) socket.destroy();
        else socket.once('readable', look);
        return;
      }
      clearTimeout(late);
      if (first[0] === handshakeRecord) {
        socket.unshift(first);
        socket.off('error', ignore);
        startTls.call(server, socket);
      } else {
        refuse(socket);
      }
    };
    socket.once('readable', look).once('end', () => socket.destroySoon());
  });
}

function refuse(socket: Socket): void {
  const late = setTimeout(() => socket.destroy(), refusalTime);
  socket.once('close', () => clearTimeout(late));
  // Unread bytes would reset the connection before the sender reads the answer.
  socket.resume().end(refusalAnswer);
}
