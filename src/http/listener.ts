import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage, type Server } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import { createServer, type Server as NetServer, type Socket } from 'node:net';
import { platform } from 'node:os';
import { setImmediate } from 'node:timers/promises';
import { addressKey } from '../limits/address.ts';
import { Semaphore } from '../runtime/semaphore.ts';
import type { ServerCertificate } from '../tls/certificate.ts';
import { createTlsServer } from '../tls/server.ts';
import type { createApp } from './app.ts';
import { limitWaiting, oneAfterAnother } from './pipelining.ts';
import { AppResponse } from './request-context.ts';

/** An HTTP server and its open connections. */
export interface AppServer {
  http: Server<typeof IncomingMessage, typeof AppResponse> | TlsServer<typeof IncomingMessage, typeof AppResponse>;
  connections: Set<Socket>;
}

export interface ListenOptions {
  /** Whether other processes listen on the port too. */
  shared?: boolean;
  /** With it, HTTPS. */
  certificate?: ServerCertificate | undefined;
}

/** What a connection may use before its request is known. */
export interface ConnectionLimits {
  /** Milliseconds for the request line and the headers, and for the first byte of a connection. */
  headerTimeout: number;
  /** Bytes of both. */
  headerSize: number;
  /** Most open connections of one address; undefined for no limit. */
  perAddress: number | undefined;
  /** Whether an address has many clients, so that its connections are not limited. */
  isProxy: (address: string | undefined) => boolean;
  /** Called for each connection that is closed because of the limit. */
  onRefused: (address: string | undefined) => void;
}

/** A connection that was opened just before `drain` has this long to send its first byte; milliseconds. */
const firstByteTime = 1000;
/** Whether several processes can listen on one port. */
const canShare = platform() === 'linux';
/** Node looks this often for connections whose headers take too long; milliseconds. */
const maxCheck = 5000;

/**
 * Starts an HTTP server for `listener`; rejects with the error of the system if it cannot listen.
 *
 * There is no time limit for a whole request, because an upload may take hours. The readers of bodies limit idle time.
 * With `shared`, the operating system distributes the connections of the port to the processes. If the first process did
 * it, connections that it had just passed to a killed process would never get an answer.
 */
export async function listen(
  listener: ReturnType<typeof createApp>,
  host: string,
  port: number,
  limits: ConnectionLimits,
  { shared = false, certificate }: ListenOptions,
): Promise<AppServer> {
  const { headerTimeout, headerSize } = limits;
  const options = {
    requestTimeout: 0,
    keepAliveTimeout: 75_000,
    headersTimeout: headerTimeout,
    connectionsCheckingInterval: Math.min(maxCheck, headerTimeout / 2),
    maxHeaderSize: headerSize,
    ServerResponse: AppResponse,
    // The listener refuses a request without it, in its turn.
    requireHostHeader: false,
  };
  const serve = oneAfterAnother(listener);
  const server = certificate
    ? createTlsServer<typeof IncomingMessage, typeof AppResponse>(certificate, options, serve)
    : createHttpServer(options, serve);
  // Else Node keeps the first 1,000 headers and drops the rest, such as what a proxy appends to those of a client.
  server.maxHeadersCount = 0;
  limitWaiting(server, certificate ? 'secureConnection' : 'connection');
  // An expectation other than 100-continue (RFC 9110, 10.1.1).
  server.on(
    'checkExpectation',
    oneAfterAnother<AppResponse>((_request, response) => response.writeHead(417).end()),
  );
  const connections = new Set<Socket>();
  const add = (socket: Socket) => {
    connections.add(socket);
    socket.once('close', () => connections.delete(socket));
  };
  server.on('connection', add);
  if (limits.perAddress !== undefined) limitConnections(server, limits.perAddress, limits);
  // The connection inside TLS: its first byte is the first one after the handshake.
  if (certificate) server.on('secureConnection', add);
  const listening = new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host, reusePort: shared && canShare }, resolve);
  });
  await listening;
  return { http: server, connections };
}

/** Rejects with the error of the system if a server cannot listen with `shared`. */
export async function checkShared(host: string, port: number): Promise<void> {
  const probe = createServer((socket) => socket.destroy());
  const listening = once(probe, 'listening');
  probe.listen({ port, host, reusePort: canShare });
  await listening;
  const closed = once(probe, 'close');
  probe.close();
  await closed;
}

/**
 * Closes the connections of an address above `most`. With TLS there are two sockets for each connection; the event
 * `connection` has the first.
 */
function limitConnections(server: NetServer, most: number, { isProxy, onRefused }: ConnectionLimits): void {
  const connections = new Semaphore({ max: most, maxWaiting: 0 });
  server.on('connection', (socket: Socket) => {
    const { remoteAddress } = socket;
    if (remoteAddress === undefined || isProxy(remoteAddress)) return;
    const release = connections.take(addressKey(remoteAddress));
    if (typeof release === 'function') {
      socket.once('close', release);
      return;
    }
    onRefused(remoteAddress);
    socket.destroy();
  });
}

/**
 * Accepts no more connections, and resolves when the current requests have been answered, or after `grace` milliseconds
 * when their connections are closed. A connection without a first byte is closed after a second: a proxy may just have
 * opened it, and would not repeat a request with a body.
 */
export async function closeGracefully({ http, connections }: AppServer, grace: number): Promise<void> {
  // The system resets connections that it has accepted and Node has not. Node accepts them in each turn of its loop, before
  // the second of these callbacks.
  await setImmediate();
  await setImmediate();
  const closed = new Promise((resolve) => http.close(resolve));
  const startedAt = performance.now();
  const idle = setInterval(() => {
    http.closeIdleConnections();
    if (performance.now() - startedAt < firstByteTime) return;
    // Node counts a connection without a first byte as busy for a minute.
    for (const each of connections) if (each.bytesRead === 0) each.destroy();
  }, 50);
  const over = Promise.withResolvers<void>();
  const last = setTimeout(() => {
    http.closeAllConnections();
    over.resolve();
  }, grace);
  http.closeIdleConnections();
  await Promise.race([closed, over.promise]);
  clearInterval(idle);
  clearTimeout(last);
}
