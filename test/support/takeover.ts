import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { ExecutionContext } from 'ava';
import { startTestServer, type TestServer } from './server.ts';

/** A server that is replaced, and the one that replaces it. */
export interface Moving {
  old: TestServer;
  here: TestServer;
}

/** `old` is the predecessor of `here` for packages and images, with the names `old-feed` and `old-images`. */
export async function startMoving(
  t: ExecutionContext,
  settings: Record<string, unknown> = {},
  more: object = {},
): Promise<Moving> {
  const old = await startTestServer(t);
  const auth = { bearer: old.token };
  const predecessors = [
    { name: 'old-feed', kind: 'nuget', url: `${old.url}/v3/index.json`, auth, ...more },
    { name: 'old-images', kind: 'registry', url: old.url, auth, ...more },
  ];
  return { old, here: await startTestServer(t, { predecessors, ...settings }) };
}

/** Reads only the names that predecessors have, as the job does first. */
export async function readNames({ installation }: Pick<TestServer, 'installation'>): Promise<void> {
  await installation.takeover.walk({ signal: new AbortController().signal, say: () => undefined }, true);
}

/** A server in front of `old` that knows users, passwords and keys, as old servers do, and counts what it is asked. */
export async function startDoor(t: Pick<ExecutionContext, 'teardown'>, old: TestServer) {
  const users = new Map([['alice', 'guessable']]);
  const keys = new Set<string>();
  /** Users whose password is right and who may read nothing: they get 404. */
  const hidden = new Set<string>();
  const tried: string[] = [];
  const state = { isOpen: false, isDown: false, users, keys, hidden, tried };
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const { headers, method, url: path } = request;
    const [scheme, value = ''] = (headers.authorization ?? '').split(' ');
    const [user = '', password = ''] = Buffer.from(value, 'base64').toString().split(':');
    if (scheme === 'Basic') tried.push(`${user}:${password}`);
    const isUser = scheme === 'Basic' && users.get(user) === password;
    const isKnown = method === 'PUT' ? keys.has(String(headers['x-nuget-apikey'])) : isUser;
    const body = await buffer(request);
    if (state.isDown) response.writeHead(503).end();
    else if (isUser && hidden.has(user)) response.writeHead(404).end();
    else if (!state.isOpen && !isKnown) response.writeHead(401, { 'www-authenticate': 'Basic realm="old"' }).end();
    else {
      const found = await fetch(`${old.url}${path}`, {
        method: method!,
        headers: {
          authorization: `Bearer ${old.token}`,
          ...(headers['content-type'] && { 'content-type': headers['content-type'] }),
        },
        ...(body.length > 0 && { body }),
      });
      const type = found.headers.get('content-type') ?? 'application/octet-stream';
      const digest = found.headers.get('docker-content-digest');
      response.writeHead(found.status, { 'content-type': type, ...(digest && { 'docker-content-digest': digest }) });
      const content = Buffer.from(await found.arrayBuffer());
      response.end(content.toString('latin1').replaceAll(old.url, `http://${headers.host}`), 'latin1');
    }
  };
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  t.teardown(close);
  return { ...state, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, state, close };
}
