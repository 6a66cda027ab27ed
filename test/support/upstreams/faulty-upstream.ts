import { createServer, type IncomingMessage, type OutgoingHttpHeaders, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { createServer as createRawServer, type AddressInfo, type Server, type Socket } from 'node:net';
import type { ExecutionContext } from 'ava';

export { until } from '../until.ts';

// An upstream on a real socket that fails by a script. Each path has a list of behaviours: the first request gets the
// first, and so on; the last one stays. All requests are recorded.

export type Behaviour = (request: IncomingMessage, response: ServerResponse) => void;

export interface Asked {
  method: string;
  path: string;
  range: string | undefined;
  headers: IncomingMessage['headers'];
}

export interface FaultyUpstream {
  url: URL;
  asked: Asked[];
  /** Number of accepted connections. */
  connections(): number;
  on(path: string, ...behaviours: Behaviour[]): void;
  /** Number of requests for a path, with any method unless one is given. */
  count(path: string, method?: string): number;
  /** Cuts all connections, and each new one at once. Keeps its port, so that no other server gets it. */
  unplug(): void;
  /** Stops listening and cuts all connections. */
  stop(): Promise<void>;
  /** Cuts all idle connections. */
  cutIdle(): void;
}

export interface FaultyOptions {
  host?: string;
  port?: number;
  tls?: { key: string; cert: string };
}

export async function startFaultyUpstream(
  t: Pick<ExecutionContext, 'teardown'>,
  { host = '127.0.0.1', port = 0, tls }: FaultyOptions = {},
): Promise<FaultyUpstream> {
  const script = new Map<string, Behaviour[]>();
  const asked: Asked[] = [];
  const sockets = new Set<Socket>();
  const busy = new Set<Socket>();
  let connections = 0;
  let unplugged = false;
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    const path = request.url!;
    busy.add(request.socket);
    response.once('close', () => busy.delete(request.socket));
    asked.push({ method: request.method!, path, range: request.headers.range, headers: request.headers });
    const behaviours = script.get(path) ?? script.get(path.split('?', 1)[0]!);
    const behaviour = behaviours && (behaviours.length > 1 ? behaviours.shift()! : behaviours[0]!);
    if (behaviour) behaviour(request, response);
    else answer(404)(request, response);
  };
  const options = { keepAliveTimeout: 60_000 };
  const server = tls ? createSecureServer({ ...options, ...tls }, listener) : createServer(options, listener);
  server.on('connection', (socket: Socket) => {
    connections += 1;
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
    if (unplugged) socket.resetAndDestroy();
  });
  await listen(server, host, port);
  const stop = async () => {
    for (const socket of sockets) socket.destroy();
    if (server.listening) await new Promise((resolve) => server.close(resolve));
  };
  t.teardown(stop);
  return {
    url: urlOf(server, tls ? 'https' : 'http', host),
    asked,
    connections: () => connections,
    on: (path, ...behaviours) => void script.set(path, behaviours),
    count: (path, method) => asked.filter((each) => each.path === path && (!method || each.method === method)).length,
    unplug: () => {
      unplugged = true;
      for (const socket of sockets) socket.resetAndDestroy();
    },
    stop,
    cutIdle: () => {
      for (const socket of sockets) if (!busy.has(socket)) socket.resetAndDestroy();
    },
  };
}

/** A server that sends given bytes on each connection. */
export async function startRawUpstream(
  t: Pick<ExecutionContext, 'teardown'>,
  speak: (socket: Socket, request: string, connection: number) => void,
): Promise<URL> {
  let connection = 0;
  const sockets = new Set<Socket>();
  const server = createRawServer((socket) => {
    connection += 1;
    const mine = connection;
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => sockets.delete(socket));
    socket.on('data', (request) => speak(socket, request.toString('latin1'), mine));
  });
  await listen(server, '127.0.0.1', 0);
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return urlOf(server, 'http', '127.0.0.1');
}

async function listen(server: Server, host: string, port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, host, resolve));
}

function urlOf(server: Server, scheme: string, host: string): URL {
  const { port } = server.address() as AddressInfo;
  return new URL(`${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}/`);
}

/** A status, headers and a small body. */
export function answer(status: number, headers: OutgoingHttpHeaders = {}, body: Buffer | string = ''): Behaviour {
  return (request, response) => {
    response.writeHead(status, { 'content-length': Buffer.byteLength(body), ...headers });
    response.end(request.method === 'HEAD' ? undefined : body);
  };
}

export interface Serving {
  headers?: OutgoingHttpHeaders;
  /** With Content-Length; otherwise chunked. */
  length?: boolean;
  /** Serves ranges, with 206. */
  ranges?: boolean;
  /** After this many bytes of the body, the connection is cut or silent, by `how`. */
  until?: number;
  how?: 'reset' | 'end' | 'stall';
}

/** Serves `bytes` by the options. */
export function serve(bytes: Buffer, options: Serving = {}): Behaviour {
  const { headers = {}, length = true, ranges = true, until, how = 'reset' } = options;
  return (request, response) => {
    const match = ranges ? /^bytes=(\d+)-$/.exec(request.headers.range ?? '') : null;
    const start = match ? Number(match[1]) : 0;
    if (match && start >= bytes.length) return answer(416)(request, response);
    const rest = bytes.subarray(start);
    response.writeHead(match ? 206 : 200, {
      ...(length && { 'content-length': rest.length }),
      ...(match && { 'content-range': `bytes ${start}-${bytes.length - 1}/${bytes.length}` }),
      ...headers,
    });
    if (request.method === 'HEAD') return void response.end();
    if (until === undefined) return void response.end(rest);
    const part = rest.subarray(0, until);
    const then = () => {
      if (how === 'reset') response.socket?.resetAndDestroy();
      else if (how === 'end') response.socket?.end();
    };
    // Send the headers even if no byte of the body follows.
    if (part.length === 0) {
      response.flushHeaders();
      setImmediate(then);
    } else {
      response.write(part, () => setImmediate(then));
    }
  };
}

/** Sends an endless body, as fast as the client reads it; `sent` counts its bytes. */
export function endless(sent: { bytes: number }, headers: OutgoingHttpHeaders = {}): Behaviour {
  const piece = Buffer.alloc(65_536, 'x');
  return (_request, response) => {
    response.writeHead(200, headers);
    const more = () => {
      while (!response.destroyed) {
        sent.bytes += piece.length;
        if (!response.write(piece)) break;
      }
    };
    response.on('drain', more);
    more();
  };
}

/** Delays a behaviour until it is released; after that it does not delay. */
export function held(behaviour: Behaviour): { behaviour: Behaviour; release: () => void } {
  const waiting: (() => void)[] = [];
  let released = false;
  return {
    behaviour: (request, response) => {
      if (released) behaviour(request, response);
      else waiting.push(() => behaviour(request, response));
    },
    release: () => {
      released = true;
      for (const each of waiting.splice(0)) each();
    },
  };
}
